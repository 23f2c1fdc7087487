// Brings what a speculation chose from host memory to where it is attended (InfiniGen).
#include <algorithm>
#include <cstring>

#include "engine/device/launch_context.h"
#include "engine/kernels/fetch_list.h"
#include "engine/mechanisms/partial_key_index/partial_key_indexes.h"
#include "engine/mechanisms/partial_key_index/work.h"
#include "engine/runtime/listed_fetch.h"

namespace tandem {

/// What the KV heads chose, from host memory to where it is attended.
void PartialKeyIndexes::move_units(BodyContext& ctx, const PartialKeyIndex& index, std::uint32_t layer,
                                   const std::vector<std::uint32_t>& pages) const {
  const KvShape& shape = kv_.shape();
  const std::uint32_t piece = std::min(index.unit, kPageTokens);  // tokens that are adjacent on the host
  const std::size_t bytes = piece * shape.vector_bytes();
  const std::size_t room = std::size_t{2} * shape.kv_heads * index.most * (index.unit / piece);
  std::vector<std::uint32_t> from(room), to(room);
  std::uint32_t count = 0;
  const UnitFetch fetch{ctx.read<std::uint32_t>(index.chosen) + index.chosen_offset(layer, 0), index.most, pages.data(),
                        static_cast<std::uint32_t>(index.staged_offset(layer, 0) / bytes)};
  const auto slots = static_cast<std::uint32_t>(kv_.host_buffer().bytes() / shape.slot_bytes());
  list_units(&fetch, 1, shape.kv_heads, index.unit, slots,
             {from.data(), to.data(), &count, static_cast<std::uint32_t>(room)});
  const char* host = ctx.read<char>(kv_.host_buffer());
  char* staged = ctx.write<char>(index.staged);
  for (std::uint32_t i = 0; i < count; ++i) std::memcpy(staged + to[i] * bytes, host + from[i] * bytes, bytes);
}

namespace {

Packed fetched_units(const PartialKeyIndex& index, std::uint32_t layer) {
  const std::uint32_t half = index.half(layer);
  Packed kv;
  kv.sequence = index.sequence;
  kv.memory = {TierBuffer(index.staged), index.staged_offset(layer, 0), index.half_bytes(), 0, index.most * index.unit};
  kv.tokens = index.most * index.unit;
  kv.count = {TierBuffer(index.chosen), index.chosen_offset(layer, 0), 1 + std::size_t{index.most}, index.unit};
  kv.access = {index.chosen.reads(half, half + 1), index.staged.reads(half, half + 1)};
  return kv;
}

}  // namespace

SpeculatedKv PartialKeyIndexes::fetch(const LayerContext& context, const QueryRef& query,
                                      std::span<const SpeculateRequest> requests) {
  const std::uint32_t layer = query.layer;
  SpeculatedKv speculated{layer, {}, {}};
  Op op("fetch speculated kv", Cause::recall, layer);
  op.kind = Kind::copy;
  op.cost.gathered = op.cost.upper_bound = true;
  op.cost.pieces = 0;
  op.after = {speculate(context, query, requests)};
  const KvShape& shape = kv_.shape();
  std::vector<SpeculatedRow> rows;
  rows.reserve(requests.size());
  std::size_t most = 0;  // bytes of a row
  for (const SpeculateRequest& request : requests) {
    const PartialKeyIndex& index = kept_.get(request.index.id);
    SpeculatedRow row{index, {}};
    const Range pages{0, index.tokens[layer] / kPageTokens};
    row.pages = index.host_pages->of(kv_, request.sequence->id, layer, pages);
    kv_.append_access(request.sequence->id, layer, pages, Tier::host, Range{0, shape.kv_heads}, false, op.access);
    op.access.insert(op.access.end(), {index.chosen.reads(index.half(layer), index.half(layer) + 1),
                                       index.staged.writes(index.half(layer), index.half(layer) + 1)});
    op.cost.h2d += std::uint64_t{index.most} * index.unit * 2 * shape.vector_bytes() * shape.kv_heads;
    op.cost.pieces += index.most * shape.kv_heads * 2;
    most = std::max(most, shape.kv_heads * index.half_bytes());
    speculated.rows.push_back(request.sequence->row);
    speculated.fetched.push_back(fetched_units(index, layer));
    rows.push_back(std::move(row));
  }
  op.cost.kernels = 1 + gathers_of(rows.size(), most);  // list, gathers
  op.launch = [&](LaunchContext& ctx) { launch_units(ctx, rows, layer); };
  op.has_cost_only_part = true;
  op.body = [this, layer, rows](BodyContext& ctx) {
    Cost cost;
    cost.pieces = 0;
    const KvShape& s = kv_.shape();
    const std::size_t vector_bytes = s.vector_bytes();
    for (const SpeculatedRow& r : rows) {
      const PartialKeyIndex& index = r.index;
      for (std::uint32_t g = 0; g < s.kv_heads; ++g) {
        const std::uint32_t* list = ctx.read<std::uint32_t>(index.chosen) + index.chosen_offset(layer, g);
        cost.h2d += std::uint64_t{list[0]} * index.unit * 2 * vector_bytes;
        if (index.scope != Scope::layer ||
            index.unit == 1) {  // K and V of a page and head lie in one run; of a token in two
          cost.pieces += list[0] * (index.unit == 1 ? 2 : index.unit / kPageTokens);
        } else if (g == 0) {  // a page has all heads; runs that are adjacent on the host
          const std::uint32_t per_unit = index.unit / kPageTokens;
          for (std::uint32_t i = 1; i <= list[0]; ++i) {
            const std::uint32_t* pages = r.pages->data() + std::size_t{list[i]} * per_unit;
            for (std::uint32_t page = 0; page < per_unit; ++page)
              cost.pieces += page == 0 || pages[page] != pages[page - 1] + 1 ? 1 : 0;
          }
        }
      }
      if (ctx.computes()) move_units(ctx, index, layer, *r.pages);
    }
    cost.pieces = std::max<std::uint32_t>(cost.pieces, 1);
    ctx.settle(cost);
  };
  const Event ready = ask(LaneKind::recall, std::move(op));
  for (Packed& kv : speculated.fetched) kv.ready = ready;
  return speculated;
}

}  // namespace tandem
