#include "engine/mechanisms/query_drift/query_drift.h"

#include <algorithm>

#include "engine/common/drawing.h"
#include "engine/common/error.h"
#include "engine/device/launch_context.h"
#include "engine/mechanisms/query_drift/kernels/drift.h"

namespace tandem {
namespace {

/// Share of urgent heads, drawn where only shapes are simulated. Assumed for large models, whose queries the paper
/// finds alike; a model of 5.4 M parameters has 0.77 (methods/freekv/README.md).
constexpr double kDrawnUrgent = 0.1;

struct Row {
  std::uint32_t row = 0, request = 0, layer = 0, step = 0;
  std::size_t lists = 0, list = 0;  // of the layer's first KV head, and from one to the next, in u32
  DeviceBuffer missing;
  DeviceBuffer queries, now, later;  // PreviousQueries
  float least = 0;
  bool first = false;

  HeadDrift head(const BodyContext& ctx, const DeviceBuffer& query, const ModelShape& shape, std::uint32_t g) const {
    const std::size_t width = std::size_t{shape.q_heads} * shape.head_dim;
    const std::size_t of_group = std::size_t{g} * shape.group() * shape.head_dim;
    const std::size_t at = lists + g * list;
    return {ctx.read<float>(query) + row * width + of_group,
            ctx.write<float>(queries) + layer * width + of_group,
            ctx.read<std::uint32_t>(missing) + at,
            ctx.write<std::uint32_t>(now) + at,
            ctx.write<std::uint32_t>(later) + at,
            least,
            first ? 1u : 0u};
  }
};

/// Parts lists where no queries exist.
void draw_parts(const BodyContext& ctx, const Row& row, const ScorePlace& place, const DeviceBuffer& query,
                const ModelShape& shape) {
  for (std::uint32_t g = 0; g < shape.kv_heads; ++g) {
    const HeadDrift head = row.head(ctx, query, shape, g);
    const std::uint64_t drawn =
        mix64((std::uint64_t{place.sequence} << 40) + (std::uint64_t{place.step} << 20) + place.layer * 256 + g);
    const bool urgent = row.first || double(drawn >> 11) * 0x1p-53 < kDrawnUrgent;
    std::copy_n(head.missing, 1 + head.missing[0], urgent ? head.now : head.later);
    (urgent ? head.later : head.now)[0] = 0;
  }
}

}  // namespace

PreviousQueries QueryDrift::room_for(SequenceId sequence, std::uint32_t slots) const {
  const ModelShape& s = forward_.shape();
  const std::size_t lists = std::size_t{s.layers} * s.kv_heads * (1 + std::size_t{slots}) * sizeof(std::uint32_t);
  PreviousQueries previous{sequence, slots, {}, {}, {}, std::vector<bool>(s.layers)};
  previous.queries =
      device_.allocate_device(std::size_t{s.layers} * s.q_heads * s.head_dim * sizeof(float), "previous queries");
  previous.now = device_.allocate_device(lists, "missing now");
  previous.later = device_.allocate_device(lists, "missing later");
  return previous;
}

DriftRef QueryDrift::open(SequenceState& sequence, std::uint32_t slots) {
  return {kept_.add(room_for(sequence.id, slots))};
}

void QueryDrift::renew(SequenceState& sequence, DriftRef drift, std::uint32_t slots) {
  kept_.get(drift.id) = room_for(sequence.id, slots);
}

PartedSplit QueryDrift::part(const LayerContext& context, const SplitRef& split, std::span<const DriftRef> drifts,
                             float least) {
  const ModelShape& shape = context.shape;
  const std::uint32_t layer = context.layer;
  const QueryRef query = attention_.layer_query(context);
  const DeviceBuffer values = attention_.query_values(query);
  PartedSplit parted{split, split};
  if (split.rows.empty()) return parted;
  Op op("part by drift", Cause::selection, layer);
  op.after = {query.ready};
  wait_for(op.after, split.ready);
  std::vector<Row> rows;
  rows.reserve(split.rows.size());
  for (std::size_t i = 0; i < split.rows.size(); ++i) {
    const std::uint32_t row = split.rows[i];
    PreviousQueries& previous = kept_.get(drifts[row].id);
    const ResidentSet& set = parts_.ops.use<Residency>().get(split.sets[i]);
    TANDEM_CHECK(set.per_head && set.slots == previous.slots, "drift of a set of {} slots in room for {}", set.slots,
                 previous.slots);
    rows.push_back({row, context.batch[row]->request, layer, context.step, set.choice_offset(layer, 0),
                    1 + std::size_t{set.slots}, set.missing, previous.queries, previous.now, previous.later, least,
                    !previous.known[layer]});
    previous.known[layer] = true;
    // Reads both steps' queries and the missing list; writes queries and two lists.
    op.cost.hbm += std::uint64_t{3} * shape.q_heads * shape.head_dim * sizeof(float) + 3 * set.choice_bytes();
    op.cost.flops += std::uint64_t{6} * shape.q_heads * shape.head_dim;
    op.access.insert(op.access.end(), {values.reads(row, row + 1), previous.queries.writes(layer, layer + 1),
                                       set.missing.reads(layer, layer + 1), previous.now.writes(layer, layer + 1),
                                       previous.later.writes(layer, layer + 1)});
    parted.now.missing.push_back(previous.now);
    parted.later.missing.push_back(previous.later);
  }
  op.launch = [&](LaunchContext& ctx) {
    std::vector<HeadDrift> heads;
    for (const Row& row : rows) {
      for (std::uint32_t g = 0; g < shape.kv_heads; ++g) heads.push_back(row.head(ctx, values, shape, g));
    }
    part_by_drift_cuda(ctx.pass(heads), static_cast<std::uint32_t>(heads.size()), shape.group(), shape.head_dim,
                       ctx.stream());
  };
  op.has_cost_only_part = true;
  op.body = [shape, values, rows, draws = draws_](BodyContext& ctx) {
    for (const Row& row : rows) {
      if (!ctx.computes()) {
        draw_parts(ctx, row, draws->place(row.request, row.layer, row.step, BatchDraws::By::heads), values, shape);
        continue;
      }
      for (std::uint32_t g = 0; g < shape.kv_heads; ++g)
        part_by_drift(row.head(ctx, values, shape, g), shape.group(), shape.head_dim);
    }
  };
  parted.now.ready = parted.later.ready = ask(LaneKind::device_compute, std::move(op));
  return parted;
}

}  // namespace tandem
