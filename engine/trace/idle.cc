#include "engine/trace/idle.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <numeric>
#include <utility>

#include "engine/common/error.h"
#include "engine/device/device.h"

namespace tandem {
namespace {

// A piece of busy time. Pieces are disjoint and ascending; where operations overlap, the earlier one owns the time.
struct Busy {
  Nanos begin, end;
  std::int64_t record;
};

const TraceRecord& record_at(const Trace& trace, std::int64_t index) {
  TANDEM_CHECK(index >= 0 && index < static_cast<std::int64_t>(trace.records.size()), "the trace has no record {}",
               index);
  return trace.records[static_cast<std::size_t>(index)];
}

std::vector<Busy> busy_pieces(const Trace& trace, const std::vector<bool>& counted) {
  std::vector<std::int64_t> order;
  for (std::size_t i = 0; i < trace.records.size(); ++i) {
    const TraceRecord& r = trace.records[i];
    if (r.kind == Kind::compute && counted[r.lane] && r.end > r.start) order.push_back(static_cast<std::int64_t>(i));
  }
  std::stable_sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) {
    return record_at(trace, a).start < record_at(trace, b).start;
  });
  std::vector<Busy> pieces;
  for (const std::int64_t i : order) {
    const TraceRecord& r = record_at(trace, i);
    const Nanos begin = pieces.empty() ? r.start : std::max(r.start, pieces.back().end);
    if (begin < r.end) pieces.push_back({begin, r.end, i});
  }
  return pieces;
}

// The device's busy time: of its inference lanes where these compute, of its side streams where only they do.
std::vector<Busy> device_pieces(const Trace& trace) {
  std::vector<bool> inference(trace.lanes.size()), side(trace.lanes.size());
  for (std::size_t lane = 0; lane < trace.lanes.size(); ++lane) {
    inference[lane] = trace.lanes[lane].inference;
    side[lane] = !inference[lane] && trace.lanes[lane].kind == LaneKind::side_compute;
  }
  const std::vector<Busy> first = busy_pieces(trace, inference);
  std::vector<Busy> pieces = first;
  std::size_t next = 0;
  for (const Busy& beside : busy_pieces(trace, side)) {
    Nanos cursor = beside.begin;
    while (next < first.size() && first[next].end <= cursor) ++next;
    for (std::size_t i = next; cursor < beside.end; ++i) {
      const Nanos until = i < first.size() ? std::min(first[i].begin, beside.end) : beside.end;
      if (cursor < until) pieces.push_back({cursor, until, beside.record});
      cursor = i < first.size() ? std::max(cursor, first[i].end) : beside.end;
    }
  }
  std::ranges::sort(pieces, [](const Busy& a, const Busy& b) { return a.begin < b.begin; });
  return pieces;
}

Cause cause_of(const Trace& trace, const TraceRecord& record) {
  if (record.cause != Cause::none) return record.cause;
  if (record.kind == Kind::copy) return Cause::transfer;
  if (record.kind == Kind::control || record.kind == Kind::wait) return Cause::scheduler;
  const LaneKind lane = trace.lanes[record.lane].kind;
  if (lane == LaneKind::host_workers) return Cause::host_attention;
  return lane == LaneKind::control ? Cause::scheduler : Cause::none;
}

// Attributes [begin, end). The walk starts at the record `next`, which held on until `end`: with its start
// (`from_start`), or with its own duration too. Adds to `waited`, by record, what each one's duration covers.
CauseTimes attribute(const Trace& trace, Nanos begin, Nanos end, std::int64_t next, bool from_start,
                     std::vector<Nanos>& waited) {
  CauseTimes times{};
  Nanos cursor = end;
  const auto cut = [&](Nanos to, Cause cause) {
    const Nanos lower = std::clamp(to, begin, cursor), length = cursor - lower;
    times[static_cast<std::size_t>(cause)] += length;
    cursor = lower;
    return length;
  };
  std::int64_t index = next;
  if (from_start && index >= 0) index = record_at(trace, index).critical;
  std::size_t visited = 0;
  while (index >= 0 && cursor > begin) {
    const TraceRecord& record = record_at(trace, index);
    cut(record.end, Cause::handoff);
    waited[static_cast<std::size_t>(index)] += cut(record.start, cause_of(trace, record));
    index = record.critical;
    TANDEM_CHECK(++visited <= trace.records.size(), "the critical path of record {} is a circle", next);
  }
  cut(begin, Cause::scheduler);
  return times;
}

IdleTimes idle_for(const CauseTimes& times) {
  return {0, std::accumulate(times.begin(), times.end(), Nanos{0}), times};
}

/// Times of a step, or of several, and of its layers.
class StepBuilder {
 public:
  void add(std::uint32_t layer, const IdleTimes& times) {
    step_.add(times);
    LayerIdle& entry = layers_[layer];
    entry.layer = layer;
    entry.add(times);
  }
  StepIdle finish() {
    for (const auto& [layer, entry] : layers_) step_.layers.push_back(entry);
    return std::move(step_);
  }

 private:
  StepIdle step_;
  std::map<std::uint32_t, LayerIdle> layers_;  // kNoLayer is the largest number, so it comes last
};

void check_step(const StepIdle& step) {
  TANDEM_CHECK(step.busy + step.idle == step.window, "step {}: busy {} + idle {} is not the window {}", step.step,
               step.busy, step.idle, step.window);
  const Nanos causes = idle_for(step.by_cause).idle;
  TANDEM_CHECK(causes == step.idle, "step {}: causes sum to {}, idle is {}", step.step, causes, step.idle);
  IdleTimes sum;
  for (const LayerIdle& layer : step.layers) {
    TANDEM_CHECK(idle_for(layer.by_cause).idle == layer.idle, "step {}, layer {}: causes do not sum to idle", step.step,
                 layer.layer);
    sum.add(layer);
  }
  TANDEM_CHECK(sum == step, "step {}: layers do not sum to the step", step.step);
}

// Its sums over steps, from these.
void sum_up(IdleReport& report) {
  StepBuilder decode;
  Nanos window = 0;
  CostTotals sum = report.outside, decoded;
  for (const StepIdle& step : report.steps) {
    sum.add(step.cost);
    if (step.step == Device::kSetupStep) continue;
    window += step.window;
    decoded.add(step.cost);
    for (const LayerIdle& layer : step.layers) decode.add(layer.layer, layer);
  }
  report.decode = decode.finish();
  report.decode.window = window;
  report.decode.cost = decoded;
  check_step(report.decode);
  TANDEM_CHECK(sum == report.total, "the costs of the windows do not sum to the costs of the records");
}

void check_trace(const Trace& trace) {
  for (std::size_t i = 0; i < trace.records.size(); ++i) {
    const TraceRecord& r = trace.records[i];
    TANDEM_CHECK(r.lane < trace.lanes.size(), "record {} ('{}') is on lane {} of {}", i, r.name, r.lane,
                 trace.lanes.size());
    TANDEM_CHECK(r.start <= r.end, "record {} ('{}') ends before it starts", i, r.name);
    TANDEM_CHECK(r.critical < static_cast<std::int64_t>(trace.records.size()), "record {} ('{}') waits for record {}",
                 i, r.name, r.critical);
  }
  for (std::size_t i = 0; i < trace.steps.size(); ++i) {
    const StepMark& mark = trace.steps[i];
    TANDEM_CHECK(mark.begin <= mark.end, "window {} ends before it begins", i);
    TANDEM_CHECK(i == 0 || mark.begin == trace.steps[i - 1].end, "windows {} and {} do not tile", i - 1, i);
  }
}

}  // namespace

void IdleTimes::add(const IdleTimes& other) {
  busy += other.busy;
  idle += other.idle;
  for (std::size_t c = 0; c < by_cause.size(); ++c) by_cause[c] += other.by_cause[c];
}

void CostTotals::add(const TraceRecord& record, LaneKind lane, Nanos device_waited) {
  const Cost& cost = record.cost;
  const bool other = lane == LaneKind::peer_compute;
  (other ? peer_hbm : hbm) += cost.hbm;
  (other ? peer_flops : flops) += cost.flops + cost.solved;
  peer_link += cost.peer;
  dram += cost.dram;
  h2d += cost.h2d;
  d2h += cost.d2h;
  touched += cost.context;
  looked_up += cost.looked_up;
  if (cost.looked_up == 0 || cost.h2d == 0) return;
  missed += cost.h2d;
  cancelled += cost.cancelled;
  if (cost.ahead && device_waited > 0) late += cost.h2d;
  bringing += record.end - record.start;
  waited += device_waited;
}

void CostTotals::add(const CostTotals& other) {
  using T = CostTotals;
  for (const auto sum : {&T::hbm, &T::dram, &T::h2d, &T::d2h, &T::flops, &T::peer_link, &T::peer_hbm, &T::peer_flops,
                         &T::touched, &T::looked_up, &T::missed, &T::late, &T::cancelled})
    this->*sum += other.*sum;
  bringing += other.bringing;
  waited += other.waited;
}

IdleReport account_idle(const Trace& trace) {
  check_trace(trace);
  const std::vector<Busy> pieces = device_pieces(trace);

  IdleReport report;
  std::vector<Nanos> waited(trace.records.size());
  std::size_t first = 0;
  for (const StepMark& mark : trace.steps) {
    StepBuilder builder;
    Nanos cursor = mark.begin;
    while (first < pieces.size() && pieces[first].end <= mark.begin) ++first;
    for (std::size_t i = first; i < pieces.size() && pieces[i].begin < mark.end; ++i) {
      const std::uint32_t layer = record_at(trace, pieces[i].record).layer;
      if (pieces[i].begin > cursor) {
        builder.add(layer, idle_for(attribute(trace, cursor, pieces[i].begin, pieces[i].record, true, waited)));
        cursor = pieces[i].begin;
      }
      const Nanos end = std::min(pieces[i].end, mark.end);
      builder.add(layer, {end - cursor, 0, {}});
      cursor = end;
    }
    if (cursor < mark.end) {
      const std::uint32_t layer = mark.closed_by < 0 ? Op::kNoLayer : record_at(trace, mark.closed_by).layer;
      builder.add(layer, idle_for(attribute(trace, cursor, mark.end, mark.closed_by, false, waited)));
    }
    StepIdle& step = report.steps.emplace_back(builder.finish());
    step.step = mark.step;
    step.begin = mark.begin;
    step.end = mark.end;
    step.window = mark.end - mark.begin;
  }

  for (std::size_t i = 0; i < trace.records.size(); ++i) {
    const TraceRecord& record = trace.records[i];
    CostTotals one;
    one.add(record, trace.lanes[record.lane].kind, waited[i]);
    report.total.add(one);
    const auto after = std::upper_bound(report.steps.begin(), report.steps.end(), record.start,
                                        [](Nanos start, const StepIdle& step) { return start < step.end; });
    const bool found = after != report.steps.end() && record.start >= after->begin;
    (found ? after->cost : report.outside).add(one);
  }

  for (const StepIdle& step : report.steps) check_step(step);
  sum_up(report);
  return report;
}

void append_idle(IdleReport& report, IdleReport later) {
  std::move(later.steps.begin(), later.steps.end(), std::back_inserter(report.steps));
  report.outside.add(later.outside);
  report.total.add(later.total);
  sum_up(report);
}

}  // namespace tandem
