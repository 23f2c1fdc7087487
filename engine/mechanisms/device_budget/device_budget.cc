#include "engine/mechanisms/device_budget/device_budget.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "engine/common/error.h"
#include "engine/device/launch_context.h"
#include "engine/mechanisms/device_budget/kernels/unit_mass.h"
#include "engine/runtime/copy_op.h"
#include "engine/runtime/selection.h"

namespace tandem {
namespace {

std::vector<SequenceId> ids_of(std::span<SequenceState* const> batch) {
  std::vector<SequenceId> ids;
  ids.reserve(batch.size());
  for (const SequenceState* sequence : batch) ids.push_back(sequence->id);
  return ids;
}

}  // namespace

std::uint32_t DeviceBudget::units_of(const SequenceState& sequence) const {
  const std::uint32_t pages = blocks_for(sequence.max_tokens + kPageTokens);
  return (pages + offload_->unit_pages() - 1) / offload_->unit_pages();
}

UnitMass DeviceBudget::make_mass(const SequenceState& sequence) {
  UnitMass mass;
  mass.sequence = sequence.id;
  if (!measures()) return mass;
  mass.units = units_of(sequence);
  mass.values = device_.allocate_device(mass.units * sizeof(float), "unit mass");
  mass.on_host = device_.allocate_host(mass.units * sizeof(float), "unit mass on the host");
  Op op("clear mass");
  op.access = {mass.values.writes()};
  const std::vector<float> zeros(mass.units);
  set_copies(op, [values = mass.values, zeros](Copier& copier) {
    const auto bytes = std::as_bytes(std::span(zeros));
    copier.from_values(values, bytes).add(0, 0, bytes.size());
  });
  ask(LaneKind::device_compute, std::move(op));
  return mass;
}

std::size_t DeviceBudget::slots_of(const SequenceState& sequence, const DeviceShare& share) const {
  const std::uint32_t pages = blocks_for(sequence.max_tokens), layers = kv_.shape().layers;
  const std::size_t all = std::size_t{pages} * layers, least = offload_->least_slots(sequence.max_tokens);
  const std::size_t always = std::size_t{layers} * offload_->always_pages();
  const auto own = static_cast<std::size_t>(std::ceil(share.share * static_cast<double>(all))) + always;
  if (own >= least) return own;
  throw_input_error(
      "device={} of {} tokens has room for {} pages, and {} of this model's {} layers must be on the device together "
      "({} pages, with what never leaves): give at least device={:.3f}{}.",
      share.share, sequence.max_tokens, own, std::min(layers, 1 + share.policy.look_ahead), layers, least,
      static_cast<double>(least - always) / static_cast<double>(all) + 0.0005,
      share.policy.look_ahead > 0 ? ", or lower look_ahead" : "");
}

void DeviceBudget::set_budget() {
  std::size_t budget = 0;
  for (const Managed& m : managed_) budget += m.slots;
  offload_->set_budget(budget);
}

DeviceBudget::Managed& DeviceBudget::managed(SequenceId id) {
  const auto found = std::ranges::find(managed_, id, &Managed::id);
  TANDEM_CHECK(found != managed_.end(), "sequence {} has no device budget", id);
  return *found;
}

void DeviceBudget::open(SequenceState& sequence, const DeviceShare& share) {
  if (offload_ == nullptr)
    offload_ = std::make_unique<KvOffload>(kv_, share.policy,
                                           [this](LaneKind lane, Op op) { return ask(lane, std::move(op)); });
  mass_from_ = share.policy.eviction == Eviction::attention ? share.mass : MassFrom::nothing;
  Managed& own = managed_.emplace_back();
  own.id = sequence.id;
  own.slots = slots_of(sequence, share);
  own.mass = mass_.add(make_mass(sequence));
  set_budget();
  offload_->add(sequence.id);
  offload_->all_read(last_reader());
  fit();
}

Event DeviceBudget::last_reader() const {
  Event last = parts_.last_reader;
  for (const Event& asked : parts_.last_asked)
    if (asked.lane == device_.lane(LaneKind::device_compute) && asked.value > last.value) last = asked;
  return last;
}

void DeviceBudget::fit() {
  offload_->fit();
  std::vector<SequenceId> all;
  all.reserve(managed_.size());
  for (const Managed& m : managed_) all.push_back(m.id);
  offload_->make_room(all, 1);
}

void DeviceBudget::refit(SequenceState& sequence, const DeviceShare& share) {
  Managed& own = managed(sequence.id);
  own.slots = slots_of(sequence, share);
  set_budget();
  if (measures() && units_of(sequence) > mass_.get(own.mass).units)
    mass_.get(own.mass) = make_mass(sequence);  // counts from zero again
  offload_->all_read(last_reader());
  for (const Managed& m : managed_) offload_->cancel(m.id);  // what was prefetched for a step that never came
  fit();
}

void DeviceBudget::before_layer(const LayerContext& context) {
  const std::vector<SequenceId> ids = ids_of(context.batch);
  std::vector<NeededKv> all;
  all.reserve(ids.size());
  for (const SequenceId id : ids) all.push_back({id});
  ask_for(all, context.layer);
  const std::uint32_t layers = context.shape.layers;
  for (std::uint32_t ahead = 1; ahead <= std::min(offload_->policy().look_ahead, layers - 1); ++ahead) {
    if (context.layer + ahead < layers) {
      offload_->prefetch(ids, context.layer + ahead);
      continue;
    }
    // The next step's layer, for sequences that may have a next step.
    std::vector<SequenceId> going_on;
    for (const SequenceState* sequence : context.batch)
      if (sequence->tokens < sequence->max_tokens) going_on.push_back(sequence->id);
    offload_->prefetch(going_on, context.layer + ahead - layers);
  }
}

void DeviceBudget::ask_for(std::span<const NeededKv> needed, std::uint32_t layer) {
  const std::uint64_t before = offload_->counters().hits;
  ready_ = offload_->need(needed, layer);
  found_ = (offload_->counters().hits - before) * kv_.shape().slot_bytes();
}

void DeviceBudget::arrive(const LayerContext& context, AttendPlan& plan) {
  for (AttendItem& item : plan.items) {
    KvTokens& tokens = *std::visit([](KvTokens& kv) { return &kv; }, item.kv);
    if (ready_.valid()) tokens.ready = ready_;  // a choice was made before it was asked for
    tokens.found = std::exchange(found_, 0);    // of all rows
    if (measures()) item.weights = {this, managed(context.batch[item.row]->id).mass};
  }
}

void DeviceBudget::bring(const LayerContext& context, AttendPlan& plan) {
  wait_for_choices(context, plan);
  std::vector<NeededKv> needed;
  needed.reserve(context.batch.size());
  for (const SequenceState* sequence : context.batch) {
    std::vector<std::uint32_t> units;
    for (const AttendItem& item : plan.items)
      if (item.row == sequence->row) add_units(context, item, units);
    std::ranges::sort(units);
    units.erase(std::ranges::unique(units).begin(), units.end());
    needed.push_back({sequence->id, std::move(units)});
  }
  ask_for(needed, context.layer);
  arrive(context, plan);
}

void DeviceBudget::wait_for_choices(const LayerContext& context, const AttendPlan& plan) {
  struct Lists {
    HostBuffer to;
    TierBuffer from;
    std::uint32_t lists = 0, stride = 0, entries = 0;  // of a list, u32: from one to the next, and copied
  };
  Op op("choice to host", Cause::transfer, context.layer);
  std::vector<Lists> all;
  for (const AttendItem& item : plan.items) {
    const auto* const blocks = std::get_if<Blocks>(&item.kv);
    if (blocks == nullptr) continue;
    Managed& own = managed(context.batch[item.row]->id);
    const DigestIndex& index = parts_.stores.digests.get(blocks->digests.id);
    own.lists = lists_of(blocks->scope, context.shape);
    own.stride = 1 + index.room;
    const std::size_t bytes = std::size_t{own.lists} * own.stride * sizeof(std::uint32_t);
    if (own.choice.bytes() != bytes) own.choice = device_.allocate_host(bytes, "chosen blocks on the host");
    all.push_back({own.choice, index.selection, own.lists, own.stride, 1 + blocks->blocks});
    op.access.insert(op.access.end(), {index.selection.reads(), own.choice.writes()});
    wait_for(op.after, blocks->ready);
  }
  if (all.empty()) return;
  op.has_cost_only_part = true;
  set_copies(op, [all](Copier& copier) {
    for (const Lists& own : all) {
      Copier::Between lists = copier.short_runs(own.to, own.from);
      for (std::size_t list = 0; list < own.lists; ++list) {
        const std::size_t at = list * own.stride * sizeof(std::uint32_t);
        lists.add(at, at, own.entries * sizeof(std::uint32_t));
      }
    }
  });
  device_.host_wait(ask(LaneKind::d2h, std::move(op)));
}

void DeviceBudget::add_units(const LayerContext& context, const AttendItem& item, std::vector<std::uint32_t>& units) {
  const std::uint32_t unit = offload_->policy().block;
  const std::size_t before = units.size();
  const auto add = [&](Range tokens) {
    for (std::uint32_t u = tokens.begin / unit; u * unit < tokens.end; ++u) units.push_back(u);
  };
  Managed& own = managed(context.batch[item.row]->id);
  std::size_t lists = 1;
  if (const auto* const ranges = std::get_if<Ranges>(&item.kv)) {
    std::ranges::for_each(ranges->positions, add);
  } else {
    const DigestIndex& index = parts_.stores.digests.get(std::get<Blocks>(item.kv).digests.id);
    const auto choice = device_.host_read<std::uint32_t>(own.choice);
    lists = own.lists;
    for (std::size_t list = 0; list < lists; ++list) {
      const auto chosen = choice.subspan(list * own.stride);
      for (std::uint32_t i = 1; i <= chosen[0]; ++i) add(index.block_tokens(chosen[i]));
    }
  }
  if (mass_from_ != MassFrom::choices) return;
  own.chosen.resize(units_of(*context.batch[item.row]));
  const float one = 1.0F / static_cast<float>(lists * context.shape.layers);
  for (const std::uint32_t u : std::span(units).subspan(before)) own.chosen[u] += one;
}

void DeviceBudget::after_layer(const LayerContext& context) {
  for (const SequenceState* sequence : context.batch) offload_->read(sequence->id, context.layer, last_reader());
}

void DeviceBudget::after_step(const StepContext& context) {
  offload_->all_read();  // the step's token is on the host
  for (const SequenceState* sequence : context.batch) {
    Managed& own = managed(sequence->id);
    if (mass_from_ == MassFrom::choices) {
      offload_->set_mass(sequence->id, own.chosen);
      for (float& mass : own.chosen) mass *= kDecay;
    }
    if (measures() && !device_.shapes_only()) {
      const UnitMass& mass = mass_.get(own.mass);
      device_.host_wait(mass.landed);
      offload_->set_mass(sequence->id, device_.host_read<float>(mass.on_host, {0, mass.units}).first(mass.units));
    }
  }
  offload_->make_room(ids_of(context.batch), 1);
}

void DeviceBudget::forget(SequenceId sequence) {
  if (offload_ == nullptr) return;
  offload_->remove(sequence);
  std::erase_if(managed_, [&](const Managed& m) { return m.id == sequence; });
  mass_.destroy_of(sequence);
  set_budget();
}

std::uint32_t DeviceBudget::most_tokens(std::uint32_t id) const {
  return mass_.get(id).units * offload_->policy().block;
}

void DeviceBudget::take_weights(const LayerContext& context, std::span<const EmittedWeights> rows,
                                const DeviceBuffer& scores, const DeviceBuffer& lse) {
  struct Row : EmittedWeights {
    DeviceBuffer mass;
  };
  const std::uint32_t heads = context.shape.q_heads, unit = offload_->policy().block, layers = context.shape.layers;
  std::vector<Row> emitted;
  std::uint32_t most_units = 0;
  Op op("add unit mass", Cause::none, context.layer);
  op.access = {scores.reads()};
  emitted.reserve(rows.size());
  for (const EmittedWeights& row : rows) {
    emitted.push_back({row, mass_.of(context.batch[row.row]->id, row.id).values});
    const std::uint32_t tokens = row.tokens.end - row.tokens.begin, units = (tokens + unit - 1) / unit;
    most_units = std::max(most_units, units);
    op.cost.hbm += (std::uint64_t{heads} * tokens + 2 * units) * sizeof(float);
    op.cost.context += std::uint64_t{2} * units * sizeof(float);
    op.cost.flops += std::uint64_t{10} * heads * tokens;
    op.access.push_back(lse.reads(row.row, row.row + 1));
    op.access.push_back(emitted.back().mass.writes());
  }
  const float keep = context.layer == 0 ? kDecay : 1.0F, share = 1.0F / static_cast<float>(heads * layers);
  const auto masses = [heads, scores, lse, emitted](const BodyContext& ctx) {
    std::vector<MassRow> out;
    out.reserve(emitted.size());
    for (const Row& row : emitted)
      out.push_back({ctx.read<float>(scores) + row.offset, ctx.read<float>(lse) + std::size_t{row.row} * heads,
                     ctx.write<float>(row.mass), row.stride, row.tokens.end - row.tokens.begin});
    return out;
  };
  op.body = [this, masses, heads, unit, keep, share](BodyContext& ctx) {
    const std::vector<MassRow> all = masses(ctx);
    pool_.parallel_for(all.size(), [&](std::size_t i) { add_unit_mass(all[i], heads, unit, keep, share); });
  };
  op.launch = [&](LaunchContext& ctx) {
    const std::vector<MassRow> all = masses(ctx);
    add_unit_mass_cuda(ctx.pass(all), static_cast<std::uint32_t>(all.size()), most_units, heads, unit, keep, share,
                       ctx.stream());
  };
  const Event added = ask(LaneKind::device_compute, std::move(op));
  if (context.layer + 1 < layers) return;
  Op copy("mass to host", Cause::transfer);
  copy.after = {added};
  std::vector<RowsCopy> copies;
  std::uint32_t most_room = 0;
  for (const EmittedWeights& row : rows) {
    const UnitMass& mass = mass_.get(row.id);
    most_room = std::max(most_room, mass.units);
    copies.push_back({mass.on_host, mass.values, mass.units * sizeof(float)});
    wait_for(copy.after, mass.landed);
  }
  copy_rows(copy, most_room, std::move(copies));
  const Event landed = ask(LaneKind::d2h, std::move(copy));
  for (const EmittedWeights& row : rows) mass_.get(row.id).landed = landed;
}

}  // namespace tandem
