#include "engine/runtime/decode_attention.h"

#include <algorithm>
#include <utility>

#include "engine/common/error.h"
#include "engine/runtime/copy_op.h"

namespace tandem {
DecodeAttention::DecodeAttention(Forward& forward, Device& device, ThreadPool& pool, KvStore& kv,
                                 SequenceStores& stores, BatchDraws* draws)
    : forward_(forward),
      device_(device),
      pool_(pool),
      kv_(kv),
      stores_(stores),
      draws_(draws),
      compute_(device.lane(LaneKind::device_compute)),
      d2h_(device.lane(LaneKind::d2h)),
      workers_(device.lane(LaneKind::host_workers)),
      page_tables_(kv) {
  const ModelShape& s = forward.shape();
  own_ = make_partials(device, s, forward.max_batch(), "device partial", "device lse");
  host_ = make_host_room(device, s, forward.max_batch(), "");
  counters_.layers = s.layers;
  counters_.values =
      device.allocate_host(std::size_t{forward.max_batch()} * s.layers * sizeof(HostAttended), "host attended");
  device_attended_ = device.allocate_host(forward.max_batch() * sizeof(std::uint64_t), "device attended");
  attended_.resize(forward.max_batch());
  std::ranges::fill(device.host_write<HostAttended>(counters_.values), HostAttended{});
  std::ranges::fill(device.host_write<std::uint64_t>(device_attended_), 0u);
}

void DecodeAttention::begin_layer(Event query_ready) {
  query_ready_ = query_ready;
  query_on_host_ = Event{};
}

Event DecodeAttention::query_on_host(const LayerContext& context) {
  if (query_on_host_.valid()) return query_on_host_;
  const auto rows = static_cast<std::uint32_t>(context.batch.size());
  const std::size_t bytes = std::size_t{rows} * context.shape.q_heads * context.shape.head_dim * sizeof(float);
  Op op("query to host", Cause::transfer, context.layer);
  op.after = {query_ready_};
  copy_rows(op, rows, {{host_.query, forward_.q(), bytes}});
  query_on_host_ = device_.submit(d2h_, std::move(op));
  return query_on_host_;
}

QueryRef DecodeAttention::predict_query(const LayerContext& context, std::uint32_t layer, std::uint32_t norm_of) {
  const ModelShape& s = forward_.shape();
  const std::size_t bytes = std::size_t{forward_.max_batch()} * s.q_heads * s.head_dim * sizeof(float);
  for (DeviceBuffer& half : predicted_) {
    if (!half) half = device_.allocate_device(bytes, "predicted query");
  }
  std::vector<std::uint32_t> positions;
  positions.reserve(context.batch.size());
  for (const SequenceState* sequence : context.batch) positions.push_back(sequence->tokens - 1);
  return {layer, true, forward_.predict_query(layer, norm_of, std::move(positions), predicted_[layer % 2])};
}

void DecodeAttention::append_page_runs(const SequenceState& sequence, std::uint32_t layer, const Ranges& tokens,
                                       std::vector<PageRun>& runs) const {
  std::vector<std::uint32_t> slots;
  for (const Range& range : tokens.positions) {
    if (range.begin >= range.end) continue;
    slots.clear();
    kv_.append_slots(sequence.id, layer, {range.begin / kPageTokens, blocks_for(range.end)}, tokens.side, slots);
    std::uint32_t token = range.begin;
    for (const std::uint32_t slot : slots) {
      const std::uint32_t first = token % kPageTokens, count = std::min(kPageTokens - first, range.end - token);
      runs.push_back({slot, first, count, 0xFFFFFFFFu});
      token += count;
    }
  }
}

void DecodeAttention::run(const LayerContext& context, const AttendPlan& plan) {
  check_plan(context, plan);
  std::vector<const AttendItem*> on_device;
  std::vector<std::vector<const AttendItem*>> on_host(context.batch.size());
  for (const AttendItem& item : plan.items) {
    if (common_of(item.kv).side == Side::device) {
      on_device.push_back(&item);
    } else {
      on_host[item.row].push_back(&item);
    }
  }
  HostPart host;
  for (std::uint32_t row = 0; row < on_host.size(); ++row) {
    if (!on_host[row].empty()) host.rows.push_back(row);
  }
  TANDEM_CHECK(!plan.ready || host.rows.empty(), "a plan has items on the host beside a partial that is under way");
  const Emission emitted = plan_emission(context, on_device);
  if (plan.finisher != nullptr) {
    TANDEM_CHECK(!plan.ready && host.rows.empty() && emitted.empty(),
                 "a plan with a finisher has other host parts or leaves weights");
    run_finisher(context, plan, on_device);
    return;
  }
  if (host.rows.empty() &&
      !plan.ready) {  // the common case of methods without a host part: straight into the layer's attention
    submit_device(context, on_device, emitted, forward_.attention(), emitted.empty() ? DeviceBuffer{} : own_.lse);
    take_emission(context, emitted);
    return;
  }
  if (plan.ready) {
    host = *plan.ready;
  } else {
    host.layer = context.layer;
    host.room = host_;
    host.done = submit_host(context, on_host);
  }
  if (!on_device.empty()) submit_device(context, on_device, emitted, own_.out, own_.lse);
  take_emission(context, emitted);  // while the host is at work
  device_.end_segment();            // a segment must not contain a wait for the host
  device_.begin_segment("after host partials");
  merge_host_part(device_, forward_, static_cast<std::uint32_t>(context.batch.size()), host,
                  on_device.empty() ? nullptr : &own_);
}

void DecodeAttention::run_finisher(const LayerContext& context, const AttendPlan& plan,
                                   std::span<const AttendItem* const> on_device) {
  finisher_ = plan.finisher;
  const Event query = query_on_host(context);  // beside the device's own attention
  for (std::uint32_t i = 0; i < 2; ++i) {
    std::vector<const AttendItem*> apart;
    apart.reserve(plan.apart[i].size());
    for (const AttendItem& item : plan.apart[i]) apart.push_back(&item);
    const PartialBuffers to = finisher_->apart(i);
    submit_device(context, apart, {}, to.out, to.lse);
  }
  submit_device(context, on_device, {}, own_.out, own_.lse);
  finisher_->finish(context, {own_, host_, device_attended_}, query);
}

std::vector<DecodeAttention::Attended> DecodeAttention::take_attended(std::uint32_t rows) {
  std::vector<Attended> out(attended_.begin(), attended_.begin() + rows);
  const auto host = device_.host_write<HostAttended>(counters_.values, {0, rows * counters_.layers});
  const auto chosen = device_.host_write<std::uint64_t>(device_attended_, {0, rows});
  const std::vector<AttentionFinisher::Taken> taken =
      finisher_ != nullptr ? finisher_->take_taken(rows) : std::vector<AttentionFinisher::Taken>(rows);
  for (std::uint32_t row = 0; row < rows; ++row) {
    out[row].tokens[static_cast<int>(Side::device)] += std::exchange(chosen[row], 0);
    std::copy_n(taken[row].by, 2, out[row].tasks);
    for (std::uint32_t layer = 0; layer < counters_.layers; ++layer) {
      HostAttended counted = std::exchange(host[counters_.at(row, layer)], HostAttended{});
      if (!taken[row].host_tokens.empty()) counted.tokens += taken[row].host_tokens[layer];
      out[row].tokens[static_cast<int>(Side::host)] += counted.tokens;
      out[row].packed_bytes += counted.packed_bytes;
      out[row].host_tokens.push_back(counted.tokens);
    }
    attended_[row] = {};
  }
  return out;
}

}  // namespace tandem
