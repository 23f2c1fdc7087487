#include "engine/mechanisms/context_view/context_view.h"

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "engine/common/error.h"
#include "engine/kernels/convert.h"
#include "engine/runtime/copy_op.h"

namespace tandem {
namespace {

/// A layer of a context in memory that a body reaches.
struct ContextLayer {
  std::uint32_t layer = 0, tokens = 0;
  std::vector<std::uint32_t> slots;  // of its pages
};

void show_layer(const KvStore& kv, const ContextLayer& context, const char* pages, const float* query,
                const ContextRequest& request) {
  const KvShape& shape = kv.shape();
  const std::size_t dim = shape.head_dim;
  std::vector<std::vector<float>> rows(std::size_t{2} * shape.kv_heads, std::vector<float>(context.tokens * dim));
  ContextView view;
  view.layer = context.layer;
  view.tokens = context.tokens;
  view.query = query;
  view.keys.reserve(shape.kv_heads);
  view.values.reserve(shape.kv_heads);
  for (std::uint32_t head = 0; head < shape.kv_heads; ++head) {
    std::vector<float>&keys = rows[head], &values = rows[shape.kv_heads + head];
    for (std::uint32_t page = 0; page < context.slots.size(); ++page) {
      const std::size_t first = std::size_t{page} * kPageTokens;
      const std::size_t n = std::min<std::size_t>(kPageTokens, context.tokens - first) * dim;
      to_f32(pages + kv.k_offset(context.slots[page], head), shape.type, 0, n, keys.data() + first * dim);
      to_f32(pages + kv.v_offset(context.slots[page], head), shape.type, 0, n, values.data() + first * dim);
    }
    view.keys.push_back(keys.data());
    view.values.push_back(values.data());
  }
  request.read(view);
}

}  // namespace

/// On a GPU a thread of the host looks at a copy of the layer, one layer at a time in the same memory.
void ContextViews::show(SequenceState& sequence, const ContextRequest& request) {
  const ModelShape shape = forward_.shape();
  const KvShape& kv = kv_.shape();
  const PromptQueries queries = parts_.queries_of(sequence.id);
  const std::uint32_t tokens = sequence.tokens;
  const Range pages{0, blocks_for(tokens)};
  const std::size_t width = std::size_t{shape.q_heads} * shape.head_dim;
  HostBuffer copied_pages, copied_query;
  if (device_.is_gpu()) {
    if (!request.read) return;
    copied_pages = device_.allocate_host(pages.end * kv.slot_bytes(), "copy of a context");
    copied_query = device_.allocate_host(width * sizeof(float), "copy of its last query");
  }
  Event looked;
  for (std::uint32_t layer = 0; layer < shape.layers; ++layer) {
    Op op("read context", Cause::selection, layer);
    op.cost = request.cost;
    op.cost.hbm += std::uint64_t{2} * tokens * kv.kv_heads * kv.vector_bytes();
    op.access = {queries.values.reads(layer, layer + 1)};
    kv_.append_filled(sequence.id, layer, pages, Tier::device, op.after);
    ContextLayer context{layer, tokens, kv_.declare_reads(op, sequence.id, layer, pages, Tier::device)};
    const std::size_t query = (std::size_t{layer} * queries.kept + (tokens - 1) % queries.kept) * width;
    if (!device_.is_gpu()) {
      op.body = [this, context = std::move(context), queries, query, request](BodyContext& ctx) {
        if (!request.read) return;
        show_layer(kv_, context, ctx.read<char>(kv_.device_buffer()), ctx.read<float>(queries.values) + query, request);
      };
      ask(LaneKind::device_compute, std::move(op));
      continue;
    }
    Op copy("context to host", Cause::selection, layer);
    copy.access = std::exchange(op.access, {copied_pages.reads(), copied_query.reads()});
    copy.access.insert(copy.access.end(), {copied_pages.writes(), copied_query.writes()});
    copy.after = std::exchange(op.after, {});
    wait_for(copy.after, looked);
    set_copies(copy, [this, slots = context.slots, copied_pages, copied_query, queries, query](Copier& copier) {
      const std::size_t bytes = kv_.shape().slot_bytes();
      Copier::Between copied = copier.between(copied_pages, kv_.device_buffer());
      for (std::size_t page = 0; page < slots.size(); ++page) copied.add(page * bytes, slots[page] * bytes, bytes);
      copier.between(copied_query, queries.values).add(0, query * sizeof(float), copied_query.bytes());
    });
    copy.cost.pieces = 1;
    op.after = {ask(LaneKind::d2h, std::move(copy))};
    std::iota(context.slots.begin(), context.slots.end(), 0u);
    op.cost.dram = std::exchange(op.cost.hbm, 0);
    op.body = [this, context = std::move(context), copied_pages, copied_query, request](BodyContext& ctx) {
      show_layer(kv_, context, ctx.read<char>(copied_pages), ctx.read<float>(copied_query), request);
    };
    looked = ask(LaneKind::host_workers, std::move(op));
  }
}

}  // namespace tandem
