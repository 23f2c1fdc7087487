// Attention mass and the tokens that it keeps on the device (H2O, Zhang et al. 2023, section 4): the choice when a
// prompt is there, and in every step the update after the attention.
#include <algorithm>
#include <optional>

#include "engine/common/error.h"
#include "engine/kernels/attention.h"
#include "engine/kernels/attention_weights.h"
#include "engine/kernels/topk.h"
#include "engine/runtime/decode_attention.h"
#include "engine/runtime/engine_ops.h"

namespace tandem {
namespace {

/// Tokens of one KV head that compete for the places of a set.
struct Candidates {
  std::vector<std::uint32_t> positions;  // ascending
  std::vector<float> mass;
  std::vector<const char*> keys, values;

  void add(std::uint32_t position, float m, const char* k, const char* v) {
    positions.push_back(position);
    mass.push_back(m);
    keys.push_back(k);
    values.push_back(v);
  }
};

/// Those that stay, ascending: all from `window_begin` on, then the heaviest; ties go to the older token.
std::vector<std::uint32_t> choose(const Candidates& all, std::uint32_t room, std::uint32_t window_begin) {
  const auto count = static_cast<std::uint32_t>(all.positions.size());
  const auto old = static_cast<std::uint32_t>(
      std::lower_bound(all.positions.begin(), all.positions.end(), window_begin) - all.positions.begin());
  const std::uint32_t recent = std::min(count - old, room), heavy = std::min(room - recent, old);
  std::vector<std::uint32_t> kept(heavy);
  top_k(all.mass.data(), old, heavy, kept.data());
  for (std::uint32_t i = count - recent; i < count; ++i) kept.push_back(i);
  return kept;
}

/// The weights of one query over the candidates, summed over all heads: every KV head gets the same mass.
void weigh_by_latest(ThreadPool& pool, const float* query, const ModelShape& shape, DType kv,
                     std::vector<Candidates>& heads) {
  const std::size_t n = heads[0].positions.size();
  pool.parallel_for(shape.kv_heads, [&](std::size_t g) {
    Candidates& own = heads[g];
    std::vector<KvSpan> spans;
    spans.reserve(n);
    for (const char* key : own.keys) spans.push_back({key, nullptr, 1, ~0u});
    std::vector<float> scores(shape.group() * n);
    token_scores(query + g * shape.group() * shape.head_dim, spans, {shape.group(), shape.head_dim, kv}, scores.data());
    own.mass.assign(n, 0.0f);
    for (std::size_t h = 0; h < shape.group(); ++h)
      blend_weights(scores.data() + h * n, log_sum_exp(scores.data() + h * n, n), n, 1, 1, own.mass.data());
  });
  for (std::size_t g = 1; g < heads.size(); ++g) {
    for (std::size_t i = 0; i < n; ++i) heads[0].mass[i] += heads[g].mass[i];
  }
  for (std::size_t g = 1; g < heads.size(); ++g) heads[g].mass = heads[0].mass;
}

/// The place that a new token takes from the lightest one outside the window; of equals from the newest.
std::uint32_t lightest_place(const float* mass, const std::uint32_t* positions, std::uint32_t held,
                             std::uint32_t window_begin) {
  std::uint32_t place = held;
  for (std::uint32_t i = 0; i < held; ++i) {
    if (positions[i] >= window_begin) continue;
    if (place == held || mass[i] < mass[place] || (mass[i] == mass[place] && positions[i] > positions[place]))
      place = i;
  }
  return place;
}

}  // namespace

HeavyRef EngineOps::keep_heavy(SequenceState& sequence, std::optional<HeavyRef> ref, const HeavyRequest& request) {
  const KvShape& shape = kv_.shape();
  const std::uint32_t tokens = sequence.tokens, room = request.heavy + request.window;
  TANDEM_CHECK(request.window > 0, "the step's own token is in the window");
  if (!ref) {
    ref = HeavyRef{stores_.heavy.add(tandem::make_heavy_set(device_, sequence.id, shape, 0, 0))};
    const auto found = sums_.find(sequence.id);
    TANDEM_CHECK(request.latest || tokens == 0 || (found != sums_.end() && found->second.room > 0),
                 "sequence {} has no column sums", sequence.id);
    HeavySet& empty = stores_.heavy.get(ref->id);
    empty.arriving_tokens = {0, tokens};
    if (tokens > 0 && !request.latest) empty.arriving = found->second.values;
  }
  const HeavySet old = stores_.heavy.get(ref->id);
  HeavySet& set = stores_.heavy.get(ref->id);
  set = make_heavy_set(device_, sequence.id, shape, room, request.window);
  set.latest = request.latest;
  const PromptQueries queries = request.latest ? queries_.at(sequence.id) : PromptQueries{};
  TANDEM_CHECK(!request.latest || tokens == 0 || queries.kept > 0, "sequence {} has no prompt queries", sequence.id);
  const Range arriving = old.arriving_tokens;
  const std::uint32_t stride = arriving_stride(old), added = arriving.end - arriving.begin;
  const std::uint32_t window_begin = tokens - std::min(request.window, tokens);
  const Range blocks{arriving.begin / kPageTokens, blocks_for(arriving.end)};
  for (std::uint32_t layer = 0; layer < shape.layers && added + old.held[layer] > 0; ++layer) {
    const std::uint32_t held = old.held[layer], kept = std::min(room, held + added);
    set.held[layer] = kept;
    Op op;
    op.name = "keep heavy hitters";
    op.cause = Cause::selection;
    op.layer = layer;
    op.cost.work = Work::select;
    op.cost.hbm = shape.kv_heads * (std::uint64_t{held + added} * sizeof(float) + 2 * kept * set.token_bytes());
    op.cost.kernels = 2;  // top-k, gather
    set.append_access(layer, true, op.access);
    if (held > 0) old.append_access(layer, false, op.access);
    if (request.latest) {
      op.access.push_back(queries.values.reads(layer, layer + 1));
      op.cost.hbm += std::uint64_t{held + added} * shape.kv_heads * shape.vector_bytes();  // keys, for their scores
    } else if (added > 0) {
      op.access.push_back(old.arriving.reads(layer, layer + 1));
    }
    kv_.append_access(sequence.id, layer, blocks, Tier::device, Range{0, shape.kv_heads}, false, op.access);
    std::vector<std::uint32_t> slots;
    for (std::uint32_t block = blocks.begin; block < blocks.end; ++block) {
      slots.push_back(kv_.slot(sequence.id, layer, block, Tier::device));
      TANDEM_CHECK(slots.back() != KvStore::kNoSlot, "block {} of layer {} is not on the device", block, layer);
    }
    op.body = [this, old, to = set, layer, held, arriving, stride, window_begin, slots, blocks, queries,
               last = tokens - 1](BodyContext& ctx) {
      const KvShape& s = kv_.shape();
      const std::size_t bytes = s.vector_bytes();
      std::vector<Candidates> heads(s.kv_heads);
      pool_.parallel_for(s.kv_heads, [&](std::size_t head) {
        const auto g = static_cast<std::uint32_t>(head);
        Candidates& all = heads[g];
        std::vector<std::uint32_t> order(held);  // of the old set's places, by position
        for (std::uint32_t i = 0; i < held; ++i) order[i] = i;
        const std::size_t from = old.list(layer, g);
        if (held > 0) {
          const auto* positions = ctx.read<std::uint32_t>(old.positions) + from;
          std::sort(order.begin(), order.end(),
                    [&](std::uint32_t a, std::uint32_t b) { return positions[a] < positions[b]; });
          for (const std::uint32_t i : order)
            all.add(positions[i], ctx.read<float>(old.mass)[from + i], ctx.read<char>(old.keys) + (from + i) * bytes,
                    ctx.read<char>(old.values) + (from + i) * bytes);
        }
        for (std::uint32_t t = arriving.begin; t < arriving.end; ++t) {
          const char* pages = ctx.read<char>(kv_.device_buffer());
          const std::uint32_t slot = slots[t / kPageTokens - blocks.begin];
          const std::size_t at = t % kPageTokens * bytes;
          const std::size_t sum = (std::size_t{layer} * s.kv_heads + g) * stride + (t - arriving.begin);
          all.add(t, to.latest ? 0 : ctx.read<float>(old.arriving)[sum], pages + kv_.k_offset(slot, g) + at,
                  pages + kv_.v_offset(slot, g) + at);
        }
      });
      if (to.latest) {
        const ModelShape& model = attention_.shape();
        const std::size_t row = std::size_t{layer} * queries.kept + last % queries.kept;
        weigh_by_latest(pool_, ctx.read<float>(queries.values) + row * model.q_heads * model.head_dim, model, s.type,
                        heads);
      }
      pool_.parallel_for(s.kv_heads, [&](std::size_t head) {
        const auto g = static_cast<std::uint32_t>(head);
        const Candidates& all = heads[g];
        std::size_t place = to.list(layer, g);
        for (const std::uint32_t i : choose(all, to.room, window_begin)) {
          std::copy_n(all.keys[i], bytes, ctx.write<char>(to.keys) + place * bytes);
          std::copy_n(all.values[i], bytes, ctx.write<char>(to.values) + place * bytes);
          ctx.write<float>(to.mass)[place] = all.mass[i];
          ctx.write<std::uint32_t>(to.positions)[place++] = all.positions[i];
        }
      });
    };
    ask(LaneKind::device_compute, std::move(op));
  }
  return *ref;
}

/// Tokens that the buffer of a new prompt's mass has room for.
std::uint32_t EngineOps::arriving_stride(const HeavySet& set) const {
  const std::size_t lists = std::size_t{kv_.shape().layers} * kv_.shape().kv_heads;
  return static_cast<std::uint32_t>(set.arriving.bytes() / sizeof(float) / lists);
}

void DecodeAttention::submit_heavy(const LayerContext& context, const std::vector<Emitted>& emitted) {
  const ModelShape& shape = context.shape;
  const std::uint32_t layer = context.layer;
  struct Row {
    HeavySet set;
    std::uint32_t row = 0, held = 0, position = 0, slot = 0;
    std::size_t offset = 0;  // of its scores
  };
  Op op;
  op.name = "update heavy hitters";
  op.layer = layer;
  op.access = {scores_.reads()};
  std::vector<Row> rows;
  rows.reserve(emitted.size());
  for (const Emitted& e : emitted) {
    HeavySet& set = *e.heavy;
    const SequenceState& sequence = *context.batch[e.row];
    const std::uint32_t position = sequence.tokens - 1, held = set.held[layer];
    rows.push_back(
        {set, e.row, held, position, kv_.slot(sequence.id, layer, position / kPageTokens, Tier::device), e.offset});
    set.append_access(layer, true, op.access);
    op.access.push_back(device_lse_.reads(e.row, e.row + 1));
    kv_.append_access(sequence.id, layer, {position / kPageTokens, position / kPageTokens + 1}, Tier::device,
                      Range{0, shape.kv_heads}, false, op.access);
    // Scores in; mass in and out, positions in; the own token from its page to its place.
    op.cost.hbm += std::uint64_t{shape.q_heads} * (held + 1) * sizeof(float) +
                   shape.kv_heads * (3 * held * sizeof(float) + 2 * set.token_bytes());
    op.cost.flops += std::uint64_t{10} * shape.q_heads * (held + 1);
    set.held[layer] = std::min(held + 1, set.room);
  }
  op.body = [this, shape, layer, rows = std::move(rows), scores = scores_](BodyContext& ctx) {
    const std::uint32_t group = shape.group();
    const std::size_t bytes = kv_.shape().vector_bytes();
    std::vector<float> newest(rows.size() * shape.kv_heads);
    pool_.parallel_for(newest.size(), [&](std::size_t task) {
      const Row& row = rows[task / shape.kv_heads];
      const auto g = static_cast<std::uint32_t>(task % shape.kv_heads);
      const std::uint32_t tokens = row.held + 1;  // the own one first
      const float* own = ctx.read<float>(scores) + row.offset + std::size_t{g} * group * tokens;
      const float* lse = ctx.read<float>(device_lse_) + std::size_t{row.row} * shape.q_heads + g * group;
      float* mass = ctx.write<float>(row.set.mass) + row.set.list(layer, g);
      if (row.set.latest) std::fill_n(mass, row.held, 0.0f);
      for (std::uint32_t h = 0; h < group; ++h) {
        blend_weights(own + std::size_t{h} * tokens, lse[h], 1, 1, 1, &newest[task]);
        blend_weights(own + std::size_t{h} * tokens + 1, lse[h], row.held, 1, 1, mass);
      }
    });
    std::vector<std::uint32_t> places(newest.size());
    pool_.parallel_for(rows.size(), [&](std::size_t r) {
      const Row& row = rows[r];
      const std::uint32_t window_begin = row.position + 1 - std::min(row.set.window, row.position + 1);
      std::vector<float> sum(row.held);  // over the layer's heads
      for (std::uint32_t g = 0; g < shape.kv_heads; ++g) {
        const float* mass = ctx.read<float>(row.set.mass) + row.set.list(layer, g);
        for (std::uint32_t i = 0; i < row.held && row.set.latest; ++i) sum[i] += mass[i];
      }
      for (std::uint32_t g = 0; g < shape.kv_heads; ++g) {
        const std::size_t list = row.set.list(layer, g);
        const float* mass = row.set.latest ? sum.data() : ctx.read<float>(row.set.mass) + list;
        places[r * shape.kv_heads + g] =
            row.held < row.set.room
                ? row.held
                : lightest_place(mass, ctx.read<std::uint32_t>(row.set.positions) + list, row.held, window_begin);
      }
    });
    pool_.parallel_for(newest.size(), [&](std::size_t task) {
      const Row& row = rows[task / shape.kv_heads];
      const auto g = static_cast<std::uint32_t>(task % shape.kv_heads);
      const std::size_t list = row.set.list(layer, g), place = places[task];
      const char* pages = ctx.read<char>(kv_.device_buffer());
      const std::size_t at = row.position % kPageTokens * bytes;
      std::copy_n(pages + kv_.k_offset(row.slot, g) + at, bytes,
                  ctx.write<char>(row.set.keys) + (list + place) * bytes);
      std::copy_n(pages + kv_.v_offset(row.slot, g) + at, bytes,
                  ctx.write<char>(row.set.values) + (list + place) * bytes);
      ctx.write<float>(row.set.mass)[list + place] = newest[task];
      ctx.write<std::uint32_t>(row.set.positions)[list + place] = row.position;
    });
  };
  device_.submit(compute_, std::move(op));
}

}  // namespace tandem
