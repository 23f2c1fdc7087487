#include "engine/runtime/engine_ops.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "engine/common/error.h"
#include "engine/kernels/digest.h"

namespace tandem {
namespace {

constexpr std::uint32_t kDigestBlocks = 64;  // of one thread at a time

std::uint32_t digest_parts(std::uint32_t blocks) {
  return (blocks + kDigestBlocks - 1) / kDigestBlocks;
}

}  // namespace

Event EngineOps::ask(LaneKind kind, Op op) {
  const Event event = device_.submit(device_.lane(kind), std::move(op));
  const auto same = [event](const Event& e) { return e.lane == event.lane; };
  const auto found = std::find_if(last_asked_.begin(), last_asked_.end(), same);
  if (found == last_asked_.end()) {
    last_asked_.push_back(event);
  } else {
    *found = event;
  }
  return event;
}

Event EngineOps::offload(const SequenceState& sequence, Range tokens, std::uint32_t layer, AttentionAverage* average) {
  TANDEM_CHECK(tokens.begin % kPageTokens == 0 && tokens.end % kPageTokens == 0 && tokens.begin < tokens.end &&
                   tokens.end <= sequence.tokens,
               "move_to_host of tokens [{}, {}) of {}", tokens.begin, tokens.end, sequence.tokens);
  const Range blocks{tokens.begin / kPageTokens, tokens.end / kPageTokens};
  const KvShape& shape = kv_.shape();
  Op op;
  op.name = "offload kv";
  op.kind = Kind::copy;
  op.cause = Cause::offload;
  op.layer = layer;
  const std::vector<SlotCopy> copies = kv_.add_host_blocks(sequence.id, layer, blocks, op.after);
  kv_.append_filled(sequence.id, layer, blocks, Tier::device, op.after);
  op.cost.d2h = copies.size() * shape.slot_bytes();
  kv_.append_access(sequence.id, layer, blocks, Tier::device, Range{0, shape.kv_heads}, false, op.access);
  kv_.append_access(sequence.id, layer, blocks, Tier::host, Range{0, shape.kv_heads}, true, op.access);
  std::uint32_t pieces = 0;  // runs that are adjacent on both sides
  for (std::size_t i = 0; i < copies.size(); ++i) {
    if (i == 0 || copies[i].from != copies[i - 1].from + 1 || copies[i].to != copies[i - 1].to + 1) ++pieces;
  }
  op.cost.pieces = pieces;
  if (average != nullptr) {
    op.cost.d2h += std::uint64_t{average->q_heads} * (tokens.end - tokens.begin) * sizeof(float);
    op.cost.pieces += average->q_heads;
    average->append_window_access(layer, tokens, false, op.access);
    op.access.push_back(average->left_access(layer, tokens, true));
    if (average->updated[layer].valid()) op.after.push_back(average->updated[layer]);
  }
  op.body = [this, copies, tokens, layer, average](BodyContext& ctx) {
    const std::size_t bytes = kv_.shape().slot_bytes();
    const auto* from = ctx.read<std::byte>(kv_.device_buffer());
    auto* to = ctx.write<std::byte>(kv_.host_buffer());
    for (const SlotCopy& copy : copies) std::memcpy(to + copy.to * bytes, from + copy.from * bytes, bytes);
    if (average == nullptr) return;
    for (std::uint32_t head = 0; head < average->q_heads; ++head) {
      const float* window = ctx.read<float>(average->window) + average->window_offset(layer, head);
      float* left = ctx.write<float>(average->left) + average->left_offset(layer, head);
      average->for_each_run(tokens, [&](std::uint32_t token, std::uint32_t at, std::uint32_t count) {
        std::copy_n(window + at, count, left + token);
      });
    }
  };
  const Event done = ask(LaneKind::d2h, std::move(op));
  kv_.set_filled(sequence.id, layer, blocks, Tier::host, done);
  kv_.drop(sequence.id, layer, blocks, Tier::device, done);
  if (average != nullptr) {
    for (std::uint32_t token = tokens.begin; token < tokens.end; token += kPageTokens)
      average->copied_page(layer, token) = done;
  }
  return done;
}

void EngineOps::move_to_host(SequenceState& sequence, Range tokens) {
  for (std::uint32_t layer = 0; layer < kv_.shape().layers; ++layer) offload(sequence, tokens, layer, nullptr);
}

void EngineOps::move_to_host(SequenceState& sequence, Range tokens, std::uint32_t layer, AverageRef average) {
  offload(sequence, tokens, layer, &stores_.averages.get(average.id));
}

DigestRef EngineOps::build_digests(SequenceState& sequence, Range tokens, std::uint32_t block) {
  const KvShape& shape = kv_.shape();
  const std::uint32_t q_heads = attention_.q_heads();
  DigestRef ref;
  ref.id = stores_.digests.add(make_digest_index(device_, sequence.id, tokens, block, shape, q_heads));
  ref.side = Side::host;
  const DigestIndex& index = stores_.digests.get(ref.id);
  const Range blocks{tokens.begin / kPageTokens, blocks_for(tokens.end)};
  for (std::uint32_t layer = 0; layer < shape.layers; ++layer) {
    Op op;
    op.name = "build digests";
    op.cause = Cause::selection;
    op.layer = layer;
    op.cost.dram =
        std::uint64_t{tokens.end - tokens.begin} * shape.kv_heads * shape.vector_bytes() + index.layer_bytes();
    op.cost.tasks = shape.kv_heads * digest_parts(index.blocks);
    kv_.append_filled(sequence.id, layer, blocks, Tier::host, op.after);
    kv_.append_access(sequence.id, layer, blocks, Tier::host, Range{0, shape.kv_heads}, false, op.access);
    op.access.push_back(index.values.writes(layer, layer + 1));
    std::vector<std::uint32_t> slots;
    for (std::uint32_t b = blocks.begin; b < blocks.end; ++b) {
      slots.push_back(kv_.slot(sequence.id, layer, b, Tier::host));
      TANDEM_CHECK(slots.back() != KvStore::kNoSlot, "digests over block {}, which is not on the host", b);
    }
    op.body = [this, &index, layer, slots](BodyContext& ctx) {
      const KvShape& s = kv_.shape();
      const char* pages = ctx.read<char>(kv_.host_buffer());
      char* values = ctx.write<char>(index.values);
      const std::uint32_t pages_per_block = index.block / kPageTokens;
      const std::uint32_t parts = digest_parts(index.blocks);
      pool_.parallel_for(std::size_t{s.kv_heads} * parts, [&](std::size_t task) {
        const auto head = static_cast<std::uint32_t>(task / parts);
        const std::uint32_t first = static_cast<std::uint32_t>(task % parts) * kDigestBlocks;
        std::vector<char> low(pages_per_block * s.vector_bytes()), high(low.size());  // [page][D]
        for (std::uint32_t b = first; b < std::min(first + kDigestBlocks, index.blocks); ++b) {
          const Range range = index.block_tokens(b);
          std::uint32_t count = 0;
          for (std::uint32_t token = range.begin; token < range.end; token += kPageTokens, ++count) {
            const std::uint32_t slot = slots[(token - index.tokens.begin) / kPageTokens];
            build_digest(pages + kv_.k_offset(slot, head), s.type, std::min(kPageTokens, range.end - token), s.head_dim,
                         low.data() + count * s.vector_bytes(), high.data() + count * s.vector_bytes());
          }
          const std::size_t at = b * s.vector_bytes();
          merge_digest(low.data(), high.data(), s.type, count, s.head_dim, values + index.min_offset(layer, head) + at,
                       values + index.max_offset(layer, head) + at);
        }
      });
    };
    ask(LaneKind::host_workers, std::move(op));
  }
  return ref;
}

void EngineOps::drop(SequenceState& sequence, Range tokens) {
  const Range blocks{blocks_for(tokens.begin), tokens.end / kPageTokens};
  if (blocks.begin >= blocks.end) return;
  for (std::uint32_t layer = 0; layer < kv_.shape().layers; ++layer) {
    kv_.drop(sequence.id, layer, blocks, Tier::device, last_reader_);
  }
}

SelectionRef EngineOps::score_topk(const LayerContext& context, const ScoreRequest& request) {
  return attention_.score_topk(context, request);
}

}  // namespace tandem
