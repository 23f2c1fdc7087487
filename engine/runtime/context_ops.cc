// The part of Ops that shows a prefilled context to a method's own statistics.
#include <algorithm>
#include <utility>
#include <vector>

#include "engine/common/error.h"
#include "engine/kernels/convert.h"
#include "engine/runtime/engine_ops.h"

namespace tandem {

void EngineOps::read_context(SequenceState& sequence, const ContextRequest& request) {
  const ModelShape shape = attention_.shape();
  const KvShape& kv = kv_.shape();
  const auto found = queries_.find(sequence.id);
  TANDEM_CHECK(found != queries_.end() && found->second.kept > 0, "sequence {} has no prompt queries", sequence.id);
  const PromptQueries queries = found->second;
  const std::uint32_t tokens = sequence.tokens;
  const Range pages{0, blocks_for(tokens)};
  for (std::uint32_t layer = 0; layer < shape.layers; ++layer) {
    Op op;
    op.name = "read context";
    op.cause = Cause::selection;
    op.layer = layer;
    op.cost = request.cost;
    op.cost.hbm += std::uint64_t{2} * tokens * kv.kv_heads * kv.vector_bytes();
    op.access = {queries.values.reads(layer, layer + 1)};
    kv_.append_access(sequence.id, layer, pages, Tier::device, Range{0, kv.kv_heads}, false, op.access);
    kv_.append_filled(sequence.id, layer, pages, Tier::device, op.after);
    std::vector<std::uint32_t> slots;
    slots.reserve(pages.end);
    for (std::uint32_t page = 0; page < pages.end; ++page) {
      slots.push_back(kv_.slot(sequence.id, layer, page, Tier::device));
      TANDEM_CHECK(slots.back() != KvStore::kNoSlot, "page {} of layer {} is not on the device", page, layer);
    }
    op.body = [this, shape, layer, tokens, queries, slots = std::move(slots), read = request.read](BodyContext& ctx) {
      if (!read) return;
      const char* from = ctx.read<char>(kv_.device_buffer());
      const std::size_t dim = shape.head_dim;
      std::vector<std::vector<float>> rows(std::size_t{2} * shape.kv_heads, std::vector<float>(tokens * dim));
      ContextView view;
      view.layer = layer;
      view.tokens = tokens;
      view.query = ctx.read<float>(queries.values) +
                   (std::size_t{layer} * queries.kept + (tokens - 1) % queries.kept) * shape.q_heads * dim;
      for (std::uint32_t head = 0; head < shape.kv_heads; ++head) {
        std::vector<float>&keys = rows[head], &values = rows[shape.kv_heads + head];
        for (std::uint32_t page = 0; page < slots.size(); ++page) {
          const std::size_t first = std::size_t{page} * kPageTokens;
          const std::size_t n = std::min<std::size_t>(kPageTokens, tokens - first) * dim;
          to_f32(from + kv_.k_offset(slots[page], head), kv_.shape().type, 0, n, keys.data() + first * dim);
          to_f32(from + kv_.v_offset(slots[page], head), kv_.shape().type, 0, n, values.data() + first * dim);
        }
        view.keys.push_back(keys.data());
        view.values.push_back(values.data());
      }
      read(view);
    };
    ask(LaneKind::device_compute, std::move(op));
  }
}

}  // namespace tandem
