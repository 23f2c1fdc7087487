#include "engine/runtime/append_attention.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "engine/common/error.h"
#include "engine/device/launch_context.h"
#include "engine/kernels/attention.h"
#include "engine/kernels/attention_weights.h"
#include "engine/runtime/copy_op.h"
#include "engine/runtime/launched_attention.h"

namespace tandem {
namespace {

std::uint32_t token_count(const auto& pieces) {
  std::uint32_t tokens = 0;
  for (const auto& piece : pieces) tokens += piece.tokens;
  return tokens;
}

/// Queries of neighbouring rows as one group of one KV head, and their results back: [row][Hq][D] to [row][group][D].
struct RowBlock {
  std::vector<float> query, o, lse;
  std::uint32_t rows, group, dim, q_heads;

  RowBlock(const ModelShape& shape, std::uint32_t count, const float* from)
      : query(std::size_t{count} * shape.group() * shape.head_dim),
        o(query.size()),
        lse(std::size_t{count} * shape.group()),
        rows(count),
        group(shape.group()),
        dim(shape.head_dim),
        q_heads(shape.q_heads) {
    const std::size_t width = std::size_t{group} * dim;
    for (std::uint32_t row = 0; row < rows; ++row)
      std::copy_n(from + std::size_t{row} * q_heads * dim, width, query.data() + row * width);
  }
  void store(float* to_o, float* to_lse) const {
    const std::size_t width = std::size_t{group} * dim;
    for (std::uint32_t row = 0; row < rows; ++row) {
      std::copy_n(o.data() + row * width, width, to_o + std::size_t{row} * q_heads * dim);
      std::copy_n(lse.data() + std::size_t{row} * group, group, to_lse + std::size_t{row} * q_heads);
    }
  }
  AttentionShape shape(DType kv) const { return {rows * group, dim, kv}; }
};

}  // namespace

AppendAttention::AppendAttention(Forward& forward, Device& device, ThreadPool& pool, KvStore& kv, SequenceId sequence,
                                 Range tokens, std::uint32_t chunk, const AppendRequest& wanted)
    : forward_(forward),
      device_(device),
      pool_(pool),
      kv_(kv),
      sequence_(sequence),
      tokens_(tokens),
      weights_(wanted.weights),
      older_(wanted.older) {
  const std::uint32_t rows = std::min(chunk, tokens.end - tokens.begin);
  own_ = make_partials(device, forward.shape(), rows, "append: device partial", "append: device lse");
  if (older_ != nullptr) older_->begin_prompt(device, tokens);
  host_ = make_host_room(device, forward.shape(), rows, "append: ");
}

std::vector<AppendAttention::Piece> AppendAttention::pieces_of(std::uint32_t layer, Tier tier,
                                                               std::uint32_t end) const {
  std::vector<Piece> pieces;
  for (std::uint32_t block = 0; block < blocks_for(end); ++block) {
    const std::uint32_t slot = kv_.slot(sequence_, layer, block, tier);
    if (slot == KvStore::kNoSlot) continue;
    if (tier == Tier::host && kv_.slot(sequence_, layer, block, Tier::device) != KvStore::kNoSlot) continue;
    const std::uint32_t oldest = older_ != nullptr ? tokens_.begin : 0;
    const std::uint32_t begin = std::max(block * kPageTokens, oldest), page_end = (block + 1) * kPageTokens;
    if (begin < page_end) pieces.push_back({slot, begin, std::min(page_end, end) - begin});
  }
  return pieces;
}

std::vector<KvSpan> AppendAttention::spans_of(const char* pages, const std::vector<Piece>& pieces,
                                              std::uint32_t kv_head, Range of) const {
  std::vector<KvSpan> spans;
  for (const Piece& piece : pieces) {
    if (piece.begin >= of.end) break;
    if (piece.begin < of.begin) continue;
    const std::size_t at = piece.begin % kPageTokens * kv_.shape().vector_bytes();
    spans.push_back({pages + kv_.k_offset(piece.slot, kv_head) + at, pages + kv_.v_offset(piece.slot, kv_head) + at,
                     std::min(piece.tokens, of.end - piece.begin), ~0u});
  }
  return spans;
}

void AppendAttention::submit_device(const Forward::Attending& what, const std::vector<Piece>& pieces, bool merges) {
  const std::uint32_t layer = what.layer, first = what.first, rows = what.rows;
  const ModelShape& shape = forward_.shape();
  const DeviceBuffer& out = merges ? own_.out : forward_.attention();
  const std::uint64_t width = std::uint64_t{shape.q_heads} * shape.head_dim, tokens = token_count(pieces);
  Op op("append attention", Cause::none, layer);
  op.cost.work = Work::prefill_attention;
  op.cost.flops = 4 * (rows * tokens - std::uint64_t{rows} * (rows - 1) / 2) * width;  // no row attends a later one
  op.cost.hbm = tokens * kv_.shape().token_bytes() / shape.layers + 2 * rows * width * sizeof(float);
  op.access = {forward_.q().reads(0, rows), out.writes(0, rows), own_.lse.writes(0, rows)};
  wait_for(op.after, what.there);
  kv_.append_access(sequence_, layer, {0, blocks_for(first + rows)}, Tier::device, Range{0, shape.kv_heads}, false,
                    op.access);
  if (older_ != nullptr) {
    const std::uint64_t held = older_->count(layer);
    op.cost.flops += 4 * rows * held * width;
    op.cost.hbm += shape.kv_heads * (held * (older_->token_bytes() + sizeof(float)) + tokens * sizeof(float));
    older_->append_prompt_access(layer, op.access);
  }
  op.launch = [&](LaunchContext& ctx) {
    // Pages that have left the device are all older than the new prompt, and attention asks for no order but that: the
    // pages that are there are attended as if they were a whole, shorter prompt.
    TANDEM_CHECK(older_ == nullptr, "tokens that survived one by one are attended on a GPU");
    std::vector<std::uint32_t> slots;
    slots.reserve(pieces.size());
    for (const Piece& piece : pieces) {
      TANDEM_CHECK(piece.begin % kPageTokens == 0, "a piece begins at token {}, inside a page", piece.begin);
      slots.push_back(piece.slot);
    }
    const auto missing = blocks_for(first + rows) - static_cast<std::uint32_t>(slots.size());
    TANDEM_CHECK(missing * kPageTokens <= first, "{} pages are missing before token {}", missing, first);
    PrefillChunk chunk;
    chunk.q = ctx.read<float>(forward_.q());
    chunk.kv = device_pages(ctx, kv_);
    chunk.slots = ctx.upload(slots);
    chunk.first_position = first - missing * kPageTokens;
    chunk.n = rows;
    chunk.q_heads = forward_.shape().q_heads;
    chunk.out = ctx.write<float>(out);
    chunk.lse = ctx.write<float>(own_.lse);
    prefill_attention_cuda(chunk, ctx.stream());
  };
  op.body = [this, shape, layer, first, rows, pieces, out](BodyContext& ctx) {
    if (older_ != nullptr) {
      attend_with_mass(ctx, layer, first, rows, pieces, out);
      return;
    }
    const char* pages = ctx.read<char>(kv_.device_buffer());
    const float* query = ctx.read<float>(forward_.q());
    float* o = ctx.write<float>(out);
    float* lse = ctx.write<float>(own_.lse);
    const std::uint32_t group = shape.group(), dim = shape.head_dim;
    const AttentionShape attention{group, dim, kv_.shape().type};
    // Whole pages of before are attended apart, as the host attends them where they are there.
    const std::uint32_t older = tokens_.begin / kPageTokens * kPageTokens;
    pool_.parallel_for(std::size_t{rows} * shape.kv_heads, [&](std::size_t task) {
      const auto row = static_cast<std::uint32_t>(task / shape.kv_heads);
      const auto kv_head = static_cast<std::uint32_t>(task % shape.kv_heads);
      const std::size_t at = std::size_t{row} * shape.q_heads + kv_head * group;
      std::vector<float> before(std::size_t{group} * dim), before_lse(group);
      partial_attention(query + at * dim, spans_of(pages, pieces, kv_head, {0, older}), attention, before.data(),
                        before_lse.data());
      partial_attention(query + at * dim, spans_of(pages, pieces, kv_head, {older, first + row + 1}), attention,
                        o + at * dim, lse + at);
      const float *parts[] = {before.data(), o + at * dim}, *sums[] = {before_lse.data(), lse + at};
      merge_partials(parts, sums, 2, group, dim, o + at * dim, lse + at);
    });
  };
  device_.submit(device_.lane(LaneKind::device_compute), std::move(op));
}

void AppendAttention::attend_with_mass(BodyContext& ctx, std::uint32_t layer, std::uint32_t first, std::uint32_t rows,
                                       const std::vector<Piece>& pieces, const DeviceBuffer& out) const {
  const ModelShape& shape = forward_.shape();
  const std::uint32_t group = shape.group(), dim = shape.head_dim, held = older_->count(layer);
  const std::uint32_t total = tokens_.end - tokens_.begin;
  const char* pages = ctx.read<char>(kv_.device_buffer());
  const float* query = ctx.read<float>(forward_.q());
  float* o = ctx.write<float>(out);
  float* lse = ctx.write<float>(own_.lse);
  pool_.parallel_for(shape.kv_heads, [&](std::size_t task) {
    const auto g = static_cast<std::uint32_t>(task);
    const auto [mass, arriving] = older_->mass_of(ctx, layer, g);
    std::fill_n(arriving + (first - tokens_.begin), rows, 0.0f);
    std::vector<float> scores(std::size_t{group} * (held + total));
    for (std::uint32_t row = 0; row < rows; ++row) {
      const std::uint32_t position = first + row, seen = held + position + 1 - tokens_.begin;
      std::vector<KvSpan> spans = spans_of(pages, pieces, g, {0, position + 1});
      spans.insert(spans.begin(), older_->span(ctx, layer, g));
      const std::size_t head = std::size_t{row} * shape.q_heads + g * group;
      partial_attention(query + head * dim, spans, {group, dim, kv_.shape().type}, o + head * dim, lse + head,
                        scores.data());
      for (std::uint32_t h = 0; h < group; ++h) {
        const float* own = scores.data() + std::size_t{h} * seen;
        blend_weights(own, lse[head + h], held, 1, 1, mass);
        blend_weights(own + held, lse[head + h], seen - held, 1, 1, arriving);
      }
    }
  });
}

/// `done`: rows of the new prompt in the chunks before this one.
Event AppendAttention::submit_host(std::uint32_t layer, std::uint32_t done, std::uint32_t rows,
                                   std::vector<Piece> pieces, Event query_ready) {
  const ModelShape& shape = forward_.shape();
  const std::uint64_t width = std::uint64_t{shape.q_heads} * shape.head_dim, tokens = token_count(pieces);
  Op copy("query to host", Cause::transfer, layer);
  copy.after = {query_ready};
  copy_rows(copy, rows, {{host_.query, forward_.q(), rows * width * sizeof(float)}});
  const Event queries = device_.submit(device_.lane(LaneKind::d2h), std::move(copy));

  Op op("host append attention", Cause::host_attention, layer);
  op.cost.work = Work::attention;
  // Rows attend what lies on the host together, so that it is read once for all of them.
  constexpr std::uint32_t kMostHeads = 32;  // AttentionShape::group
  const std::uint32_t together = std::max(kMostHeads / shape.group(), 1u),
                      blocks_of_rows = (rows + together - 1) / together;
  op.cost.dram = blocks_of_rows * tokens * kv_.shape().token_bytes() / shape.layers + 2 * rows * width * sizeof(float);
  op.cost.flops = 4 * rows * tokens * width;
  op.cost.tasks = weights_ ? shape.kv_heads : shape.kv_heads * blocks_of_rows;
  op.access = {host_.query.reads(0, rows), host_.part.writes(0, rows), host_.lse.writes(0, rows)};
  const Range blocks{0, blocks_for(tokens_.begin)};
  kv_.append_access(sequence_, layer, blocks, Tier::host, Range{0, shape.kv_heads}, false, op.access);
  if (weights_) {
    op.cost.dram += 2 * tokens * shape.q_heads * sizeof(float);
    op.access.push_back(weights_->access(layer, {0, tokens_.begin}, true));
  }
  op.after = {queries};
  op.body = [this, shape, layer, rows, together, blocks_of_rows, pieces = std::move(pieces), done](BodyContext& ctx) {
    const char* pages = ctx.read<char>(kv_.host_buffer());
    const float* query = ctx.read<float>(host_.query);
    float* o = ctx.write<float>(host_.part);
    float* lse = ctx.write<float>(host_.lse);
    const std::uint32_t group = shape.group(), seen = token_count(pieces);
    const DType type = kv_.shape().type;
    if (!weights_) {
      pool_.parallel_for(std::size_t{blocks_of_rows} * shape.kv_heads, [&](std::size_t task) {
        const auto kv_head = static_cast<std::uint32_t>(task % shape.kv_heads);
        const auto first = static_cast<std::uint32_t>(task / shape.kv_heads) * together;
        const std::size_t at = std::size_t{first} * shape.q_heads + kv_head * group;
        RowBlock block(shape, std::min(together, rows - first), query + at * shape.head_dim);
        partial_attention(block.query.data(), spans_of(pages, pieces, kv_head, {}), block.shape(type), block.o.data(),
                          block.lse.data());
        block.store(o + at * shape.head_dim, lse + at);
      });
      return;
    }
    float* left = ctx.write<float>(weights_->values);
    const float share = 1.0f / static_cast<float>(tokens_.end - tokens_.begin);
    pool_.parallel_for(shape.kv_heads, [&](std::size_t task) {
      const auto kv_head = static_cast<std::uint32_t>(task);
      const std::vector<KvSpan> spans = spans_of(pages, pieces, kv_head, {});
      std::vector<float> scores(std::size_t{together} * group * seen);
      for (std::uint32_t first = 0; first < rows; first += together) {
        const std::size_t at = std::size_t{first} * shape.q_heads + kv_head * group;
        RowBlock block(shape, std::min(together, rows - first), query + at * shape.head_dim);
        partial_attention(block.query.data(), spans, block.shape(type), block.o.data(), block.lse.data(),
                          scores.data());
        block.store(o + at * shape.head_dim, lse + at);
        for (std::uint32_t head = 0; head < block.rows * group; ++head) {  // [row][group]
          const float* from = scores.data() + std::size_t{head} * seen;
          float* own = left + weights_->offset(layer, kv_head * group + head % group);
          for (const Piece& piece : pieces) {
            if (done + first + head / group == 0) std::fill_n(own + piece.begin, piece.tokens, 0.0f);
            blend_weights(from, block.lse[head], piece.tokens, 1, share, own + piece.begin);
            from += piece.tokens;
          }
        }
      }
    });
  };
  return device_.submit(device_.lane(LaneKind::host_workers), std::move(op));
}

void AppendAttention::run(const Forward::Attending& what) {
  const auto [layer, first, rows, query_ready, there] = what;
  const std::vector<Piece> device = pieces_of(layer, Tier::device, first + rows);
  std::vector<Piece> host = pieces_of(layer, Tier::host, tokens_.begin);
  if (host.empty()) {
    submit_device(what, device, false);
    return;
  }
  const Event host_done = submit_host(layer, first - tokens_.begin, rows, std::move(host), query_ready);
  submit_device(what, device, true);
  device_.end_segment();  // a segment must not contain a wait for the host
  device_.begin_segment("after host partials");
  std::vector<std::uint32_t> all(rows);
  std::iota(all.begin(), all.end(), 0u);
  merge_host_part(device_, forward_, rows, {layer, std::move(all), host_, host_done}, &own_);
}

}  // namespace tandem
