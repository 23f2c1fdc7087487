#include <algorithm>
#include <cstring>
#include <utility>

#include "engine/common/error.h"
#include "engine/device/launch_context.h"
#include "engine/kv/link_pieces.h"
#include "engine/mechanisms/residency/kernels/residency.h"
#include "engine/mechanisms/residency/residency.h"
#include "engine/runtime/copy_op.h"
#include "engine/runtime/launched_attention.h"
#include "engine/runtime/layer_costs.h"
#include "engine/runtime/listed_fetch.h"

namespace tandem {
void Residency::make_room() {
  if (halves_[0].query) return;
  for (HostRoom& half : halves_) half = make_host_room(device_, forward_.shape(), forward_.max_batch(), "ahead: ");
}

Event Residency::submit_split(const SplitRef& split, std::span<const Blocks> selections) {
  const std::uint32_t layer = split.query.layer;
  struct Row {
    ResidentSet set;  // as it is now
    DigestIndex index;
  };
  std::vector<Row> rows;
  rows.reserve(split.rows.size());
  Op op("split by residency", Cause::selection, layer);
  for (std::size_t i = 0; i < split.rows.size(); ++i) {
    const ResidentSet& set = kept_.get(split.sets[i].id);
    const DigestIndex& index = parts_.stores.digests.get(selections[i].digests.id);
    // Choice and table in, choice and what is missing out.
    op.cost.hbm += 4 * set.choice_bytes() + std::size_t{set.lists} * (set.slots - set.choice) * sizeof(std::uint32_t);
    op.access.insert(op.access.end(), {index.selection.reads(), set.table.reads(layer, layer + 1),
                                       set.chosen.writes(layer, layer + 1), set.missing.writes(layer, layer + 1)});
    wait_for(op.after, set.changed[layer]);
    rows.push_back({set, index});
  }
  const auto lists_of = [layer, rows = std::move(rows)](const BodyContext& ctx) {
    std::vector<ResidentSplit> lists;
    for (const Row& row : rows) {
      const ResidentSet& set = row.set;
      const std::uint32_t* selected = row.index.selection.read<std::uint32_t>(ctx);
      for (std::uint32_t list = 0; list < set.lists; ++list)
        lists.push_back({.selected = selected + list * (1 + std::size_t{row.index.room}),
                         .table = ctx.read<std::uint32_t>(set.table) + set.table_offset(layer, list),
                         .residents = set.residents(layer),
                         .chosen = ctx.write<std::uint32_t>(set.chosen) + set.choice_offset(layer, list),
                         .missing = ctx.write<std::uint32_t>(set.missing) + set.choice_offset(layer, list)});
    }
    return lists;
  };
  op.launch = [&](LaunchContext& ctx) {
    const std::vector<ResidentSplit> lists = lists_of(ctx);
    split_residents_cuda(ctx.pass(lists), static_cast<std::uint32_t>(lists.size()), ctx.stream());
  };
  op.has_cost_only_part = true;
  op.body = [lists_of](BodyContext& ctx) {
    for (const ResidentSplit& list : lists_of(ctx)) split_residents(list);
  };
  return device_.submit(device_.lane(LaneKind::device_compute), std::move(op));
}

Event Residency::prediction_to_host(const LayerContext& context, const SplitRef& split) {
  const std::uint32_t layer = split.query.layer, part = layer % 2;
  const ModelShape& shape = context.shape;
  const std::size_t width = std::size_t{shape.q_heads} * shape.head_dim;
  const DeviceBuffer& query = attention_.query_values(split.query);
  Op op("prediction to host", Cause::transfer, layer);
  std::vector<ResidentSet> sets;
  sets.reserve(split.rows.size());
  for (std::size_t i = 0; i < split.rows.size(); ++i) {
    const std::uint32_t row = split.rows[i];
    const ResidentSet& set = kept_.get(split.sets[i].id);
    op.access.insert(op.access.end(),
                     {query.reads(row, row + 1), half(layer).query.writes(row, row + 1),
                      set.missing.reads(layer, layer + 1), set.missing_on_host.writes(part, part + 1)});
    sets.push_back(set);
  }
  op.after = {split.ready};
  op.has_cost_only_part = true;
  set_copies(op, [layer, part, width, query, rows = split.rows, sets = std::move(sets),
                  to = half(layer).query](Copier& copier) {
    if (copier.computes()) copier.between(to, query).add_rows(rows, width * sizeof(float));
    for (const ResidentSet& set : sets) {  // the whole list: its length is on the device
      copier.short_runs(set.missing_on_host, set.missing)
          .add(set.choice_offset(part, 0) * sizeof(std::uint32_t), set.choice_offset(layer, 0) * sizeof(std::uint32_t),
               set.choice_bytes());
    }
  });
  return device_.submit(device_.lane(LaneKind::d2h), std::move(op));
}

struct Residency::Missing {
  std::uint32_t row = 0;
  ResidentSet set;        // as it is now
  HostPages::List pages;  // of the candidates
};

/// Declares that `op` reads the candidates' pages.
Residency::Missing Residency::missing_of(const SequenceState& sequence, const ResidentSet& set, std::uint32_t layer,
                                         Op& op) const {
  const Range pages = set.page_range(layer);
  kv_.append_access(sequence.id, layer, pages, Tier::host, Range{0, set.shape.kv_heads}, false, op.access);
  return {sequence.row, set, set.host_pages->of(kv_, sequence.id, layer, pages)};
}

std::optional<HostPart> Residency::host_partial(const LayerContext& context, const SplitRef& split) {
  if (split.rows.empty()) return std::nullopt;
  make_room();
  const ModelShape& shape = context.shape;
  const std::uint32_t layer = split.query.layer, part = layer % 2;
  const HostRoom& own = half(layer);
  const std::size_t vector_bytes = kv_.shape().vector_bytes();
  Op op("host attention", Cause::host_attention, layer);
  op.cost.work = Work::attention;
  op.cost.upper_bound = true;
  std::vector<Missing> work;
  work.reserve(split.rows.size());
  std::uint64_t small = 0, most = 0;  // bytes of q in and o out; tokens, summed over KV heads
  for (std::size_t i = 0; i < split.rows.size(); ++i) {
    const std::uint32_t row = split.rows[i];
    Missing missing = missing_of(*context.batch[row], kept_.get(split.sets[i].id), layer, op);
    op.access.insert(op.access.end(),
                     {own.query.reads(row, row + 1), own.part.writes(row, row + 1), own.lse.writes(row, row + 1),
                      attention_.counters().writes(row, layer), missing.set.missing_on_host.reads(part, part + 1)});
    small += std::uint64_t{2} * shape.q_heads * shape.head_dim * sizeof(float);
    most += std::uint64_t{shape.kv_heads} * missing.set.choice * missing.set.block;
    work.push_back(std::move(missing));
  }
  op.cost.dram = small;
  add_host_attention(op.cost, most, vector_bytes, shape.group(), shape.head_dim);
  op.cost.tasks =
      shape.kv_heads * static_cast<std::uint32_t>(work.size()) + static_cast<std::uint32_t>(most / kPartTokens);
  op.after = {prediction_to_host(context, split)};
  op.has_cost_only_part = true;
  op.body = [this, shape, layer, part, own, small, vector_bytes, work](BodyContext& ctx) {
    const bool attend = ctx.computes();
    auto* counters = ctx.write<HostAttended>(attention_.counters().values);
    const char* pages = ctx.read<char>(kv_.host_buffer());
    std::vector<HeadSpans> heads;
    heads.reserve(attend ? work.size() * shape.kv_heads : 0);
    Cost cost;
    cost.work = Work::attention;
    cost.dram = small;
    cost.pieces = cost.tasks = 0;
    std::uint64_t attended = 0;
    for (const Missing& m : work) {
      const ResidentSet& set = m.set;
      HostAttended& counted = counters[attention_.counters().at(m.row, layer)];
      for (std::uint32_t head = 0; head < shape.kv_heads; ++head) {
        if (attend) heads.push_back({m.row, head, {}});
        const std::uint32_t* list =
            ctx.read<std::uint32_t>(set.missing_on_host) + set.choice_offset(part, set.list_of(head));
        for (std::uint32_t i = 1; i <= list[0]; ++i) {
          if (i == 1 || list[i] != list[i - 1] + 1) ++cost.pieces;
          for (std::uint32_t page = 0; attend && page < set.pages_per_block(); ++page) {
            const std::uint32_t slot = (*m.pages)[list[i] * set.pages_per_block() + page];
            heads.back().spans.push_back(
                {pages + kv_.k_offset(slot, head), pages + kv_.v_offset(slot, head), kPageTokens, ~0u});
          }
        }
        const std::uint64_t tokens = std::uint64_t{list[0]} * set.block;
        counted.tokens += tokens;
        attended += tokens;
        cost.tasks += parts_of(tokens);
      }
    }
    if (attend)
      attend_in_parts(pool_, shape, kv_.shape().type, heads, cut_parts(heads, vector_bytes), ctx.read<float>(own.query),
                      ctx.write<float>(own.part), ctx.write<float>(own.lse));
    add_host_attention(cost, attended, vector_bytes, shape.group(), shape.head_dim);
    cost.pieces = std::max<std::uint32_t>(cost.pieces, 1);
    ctx.settle(cost);  // which pages it reads is known earlier than what they are: all candidates stay declared
  };
  const Event done = device_.submit(device_.lane(LaneKind::host_workers), std::move(op));
  return HostPart{layer, split.rows, own, done};
}

Event Residency::recall(const LayerContext& context, const SplitRef& split, std::span<const std::uint32_t> rows) {
  const std::uint32_t layer = split.query.layer;
  Op op("recall blocks", Cause::recall, layer);
  op.kind = Kind::copy;
  op.cost.gathered = true;
  op.cost.upper_bound = true;
  op.cost.pieces = 0;
  std::vector<Missing> work;
  std::vector<std::size_t> gathered;  // bytes of each list
  std::vector<ResidentRef> recalled;
  std::uint64_t looked_up = 0;
  for (std::size_t i = 0; i < split.rows.size(); ++i) {
    const std::uint32_t row = split.rows[i];
    if (std::find(rows.begin(), rows.end(), row) == rows.end()) continue;
    const SequenceState& sequence = *context.batch[row];
    Missing missing = missing_of(sequence, kept_.get(split.sets[i].id), layer, op);
    if (!split.missing.empty()) missing.set.missing = split.missing[i];
    const ResidentSet& set = missing.set;
    op.access.insert(op.access.end(), {set.chosen.reads(layer, layer + 1), set.missing.reads(layer, layer + 1),
                                       set.table.writes(layer, layer + 1), set.pages.writes(layer, layer + 1)});
    const std::size_t chosen = set.choice * set.block_bytes();
    if (set.recent) {
      op.access.push_back(set.order.writes(layer, layer + 1));
      looked_up += chosen;
    }
    op.cost.h2d += chosen;
    op.cost.pieces += set.choice * set.lists * set.pages_per_block();
    wait_for(op.after, set.read[layer]);
    wait_for(op.after, split.ready);
    kv_.append_filled(sequence.id, layer, set.page_range(layer), Tier::host, op.after);
    gathered.insert(gathered.end(), set.lists, chosen / set.lists);
    work.push_back(std::move(missing));
    recalled.push_back(split.sets[i]);
  }
  if (work.empty()) return {};
  op.cost.looked_up = looked_up;
  op.cost.kernels = 1 + gathers_of(gathered);  // slots, gathers
  // Which blocks move is known on the device only: its own threads bring them over the link.
  op.launch = [&](LaunchContext& ctx) {
    std::vector<ResidentSwap> lists;
    std::vector<Pieces> moves;
    std::size_t all = 0;
    std::vector<std::span<const std::uint32_t>> pages_of;
    pages_of.reserve(work.size());
    for (const Missing& m : work) {
      all += m.set.lists;
      pages_of.emplace_back(*m.pages);
    }
    const std::vector<const std::uint32_t*> uploaded = ctx.upload_each(pages_of);
    auto* const moved = ctx.scratch<std::uint32_t>(all);  // pages of each list
    for (std::size_t row = 0; row < work.size(); ++row) {
      const ResidentSet& set = work[row].set;
      for (std::uint32_t list = 0; list < set.lists; ++list) {
        const std::size_t at = set.choice_offset(layer, list);
        lists.push_back({.chosen = ctx.read<std::uint32_t>(set.chosen) + at,
                         .missing = ctx.read<std::uint32_t>(set.missing) + at,
                         .slots = set.slots,
                         .pages = uploaded[row],
                         .moves = moved + lists.size()});
        moves.push_back(listed_moves(ctx, set, layer, list, ctx.read<char>(kv_.host_buffer()), lists.back()));
      }
    }
    swap_residents_cuda(ctx.pass(lists), static_cast<std::uint32_t>(lists.size()), ctx.stream());
    gather_lists(ctx, moves);
    Cost none, page;
    none.pieces = 0;
    none.looked_up = looked_up;
    page.h2d = moves.front().bytes;
    ctx.settle_by(moved, static_cast<std::uint32_t>(all), page, none);
  };
  op.has_cost_only_part = true;
  op.body = [this, layer, looked_up, work](BodyContext& ctx) {
    Cost cost;
    cost.looked_up = looked_up;
    LinkPieces crossing;
    for (const Missing& m : work) {
      const ResidentSet& set = m.set;
      for (std::uint32_t list = 0; list < set.lists; ++list) {
        // A choice has no more blocks than there are slots. So at least as many residents are not chosen as blocks are
        // missing, and each of them has a lower score.
        const std::size_t at = set.choice_offset(layer, list);
        cost.h2d += move_residents(ctx, set, layer, list, Tier::host, crossing,
                                   {.chosen = ctx.read<std::uint32_t>(set.chosen) + at,
                                    .missing = ctx.read<std::uint32_t>(set.missing) + at,
                                    .slots = set.slots,
                                    .pages = m.pages->data()});
      }
    }
    cost.pieces = std::max(crossing.count(), 1u);
    ctx.settle(cost);
  };
  const Event done = ask(LaneKind::recall, std::move(op));
  for (const ResidentRef& set : recalled) kept_.get(set.id).changed[layer] = done;
  return done;
}

}  // namespace tandem
