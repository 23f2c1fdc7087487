#include "engine/trace/idle.h"

#include <algorithm>
#include <chrono>
#include <gtest/gtest.h>
#include <numeric>
#include <random>
#include <thread>

#include "engine/common/error.h"
#include "engine/device/emu_device.h"
#include "engine/device/sim_device.h"
#include "tests/engine/device/test_profile.h"

namespace tandem {
namespace {

constexpr LaneId kControl = 0, kDevice = 1, kHost = 4, kSide = 6, kPeer = 7;

Trace empty_trace() {
  Trace trace;
  trace.lanes = {{0, LaneKind::control, "control", 1, false},   {1, LaneKind::device_compute, "device", 1, true},
                 {2, LaneKind::h2d, "h2d", 1, false},           {3, LaneKind::d2h, "d2h", 1, false},
                 {4, LaneKind::host_workers, "host", 8, false}, {5, LaneKind::device_compute, "device 2", 1, true},
                 {6, LaneKind::side_compute, "side", 1, false}, {7, LaneKind::peer_compute, "peer", 1, false}};
  return trace;
}

std::int64_t add(Trace& trace, LaneId lane, Kind kind, Cause cause, Nanos start, Nanos end, std::int64_t critical = -1,
                 std::uint32_t layer = Op::kNoLayer) {
  TraceRecord record;
  record.name = "op";
  record.lane = lane;
  record.kind = kind;
  record.cause = cause;
  record.start = start;
  record.end = end;
  record.critical = critical;
  record.layer = layer;
  trace.records.push_back(record);
  return static_cast<std::int64_t>(trace.records.size()) - 1;
}

Nanos of(const StepIdle& step, Cause cause) {
  return step.by_cause[static_cast<std::size_t>(cause)];
}

TEST(Idle, AGapIsCutWhereTheCauseChanges) {
  Trace trace = empty_trace();
  const auto query = add(trace, kDevice, Kind::compute, Cause::none, 0, 100, -1, 3);
  const auto copy = add(trace, 3, Kind::copy, Cause::transfer, 100, 120, query, 3);
  const auto partial = add(trace, kHost, Kind::compute, Cause::host_attention, 150, 300, copy, 3);
  const auto merge = add(trace, kDevice, Kind::compute, Cause::none, 340, 400, partial, 4);
  const auto wait = add(trace, kControl, Kind::wait, Cause::none, 430, 430, merge);
  trace.steps = {{0, 0, 430, wait}};
  const IdleReport report = account_idle(trace);
  const StepIdle& step = report.steps.at(0);
  EXPECT_EQ(step.window, 430);
  EXPECT_EQ(step.busy, 160);
  EXPECT_EQ(step.idle, 270);
  EXPECT_EQ(of(step, Cause::transfer), 20);
  EXPECT_EQ(of(step, Cause::host_attention), 150);
  EXPECT_EQ(of(step, Cause::handoff), 30 + 40 + 30);
  ASSERT_EQ(step.layers.size(), 3u);
  EXPECT_EQ(step.layers[0].layer, 3u);
  EXPECT_EQ(step.layers[0].busy, 100);
  EXPECT_EQ(step.layers[0].idle, 0);
  EXPECT_EQ(step.layers[1].layer, 4u);
  EXPECT_EQ(step.layers[1].idle, 240);
  EXPECT_EQ(step.layers[2].layer, Op::kNoLayer);
  EXPECT_EQ(step.layers[2].idle, 30);
}

// One copy ahead is early, another is waited for in part. A third was asked for, and a look-up hits.
TEST(Idle, BytesThatCameLateAreThoseThatTheDeviceWaitedFor) {
  Trace trace = empty_trace();
  const auto bring = [&](Nanos start, Nanos end, bool ahead, std::uint64_t bytes) {
    const auto at = add(trace, 2, Kind::copy, Cause::recall, start, end);
    Cost& cost = trace.records.back().cost;
    cost.looked_up = cost.h2d = bytes;
    cost.ahead = ahead;
    cost.cancelled = ahead ? 0 : 5;
    return at;
  };
  bring(0, 50, true, 1000);
  const auto late = bring(50, 130, true, 200);
  add(trace, kDevice, Kind::compute, Cause::none, 0, 100);
  add(trace, kDevice, Kind::compute, Cause::none, 130, 150, late);
  trace.records.back().cost.looked_up = 7;
  const auto asked = bring(150, 190, false, 30);
  const auto last = add(trace, kDevice, Kind::compute, Cause::none, 190, 200, asked);
  trace.steps = {{0, 0, 200, last}};
  const CostTotals cost = account_idle(trace).decode.cost;
  EXPECT_EQ(cost.looked_up, 1237u);
  EXPECT_EQ(cost.missed, 1230u);
  EXPECT_EQ(cost.late, 200u);
  EXPECT_EQ(cost.cancelled, 5u);
  EXPECT_EQ(cost.bringing, 50 + 80 + 40);
  EXPECT_EQ(cost.waited, 30 + 40);
}

TEST(Idle, OverlappedHostWorkIsNotIdle) {
  Trace trace = empty_trace();
  const auto first = add(trace, kDevice, Kind::compute, Cause::none, 0, 100);
  const auto partial = add(trace, kHost, Kind::compute, Cause::host_attention, 20, 130);
  const auto second = add(trace, kDevice, Kind::compute, Cause::none, 130, 200, partial);
  trace.steps = {{0, 0, 200, second}};
  const StepIdle step = account_idle(trace).steps.at(0);
  EXPECT_EQ(step.idle, 30);
  EXPECT_EQ(of(step, Cause::host_attention), 30);
  EXPECT_EQ(first, 0);
}

TEST(Idle, CopiesAndWaitsOnTheInferenceLaneAreNeverBusy) {
  Trace trace = empty_trace();
  const auto compute = add(trace, kDevice, Kind::compute, Cause::none, 0, 10);
  const auto gather = add(trace, kDevice, Kind::copy, Cause::recall, 10, 40, compute);
  const auto spin = add(trace, kDevice, Kind::wait, Cause::selection, 40, 60, gather);
  const auto end = add(trace, kDevice, Kind::compute, Cause::none, 60, 70, spin);
  trace.steps = {{0, 0, 70, end}};
  const StepIdle step = account_idle(trace).steps.at(0);
  EXPECT_EQ(step.busy, 20);
  EXPECT_EQ(of(step, Cause::recall), 30);
  EXPECT_EQ(of(step, Cause::selection), 20);
}

TEST(Idle, ASideStreamIsTheSameDeviceAndAPeerIsNot) {
  Trace trace = empty_trace();
  const auto query = add(trace, kDevice, Kind::compute, Cause::none, 0, 100, -1, 2);
  const auto choice = add(trace, kSide, Kind::compute, Cause::selection, 60, 300, query, 0);
  const auto attention = add(trace, kDevice, Kind::compute, Cause::none, 310, 400, choice, 2);
  const auto other = add(trace, kPeer, Kind::compute, Cause::selection, 400, 450, attention, 0);
  const auto end = add(trace, kDevice, Kind::compute, Cause::none, 450, 500, other, 3);
  add(trace, kSide, Kind::copy, Cause::transfer, 500, 520, end);
  trace.steps = {{0, 0, 350, attention}, {1, 350, 520, end}};
  const IdleReport report = account_idle(trace);
  EXPECT_EQ(report.steps[0].busy, 340);
  EXPECT_EQ(report.steps[0].idle, 10);
  EXPECT_EQ(of(report.steps[0], Cause::selection), 0);
  EXPECT_EQ(report.steps[1].busy, 100);
  EXPECT_EQ(of(report.steps[1], Cause::selection), 50);
  // Time is a side stream's where no inference lane computes.
  ASSERT_EQ(report.steps[0].layers.size(), 2u);
  EXPECT_EQ(report.steps[0].layers[0].busy, 200);
  EXPECT_EQ(report.steps[0].layers[1].busy, 140);
}

TEST(Idle, TheRestOfAGapBelongsToTheScheduler) {
  Trace trace = empty_trace();
  const auto launch = add(trace, kControl, Kind::control, Cause::launch, 60, 70);
  const auto kernel = add(trace, kDevice, Kind::compute, Cause::none, 70, 80, launch);
  trace.steps = {{0, 0, 100, kernel}, {1, 100, 150, -1}};
  const IdleReport report = account_idle(trace);
  EXPECT_EQ(of(report.steps[0], Cause::scheduler), 60);
  EXPECT_EQ(of(report.steps[0], Cause::launch), 10);
  EXPECT_EQ(of(report.steps[0], Cause::handoff), 20);
  EXPECT_EQ(of(report.steps[1], Cause::scheduler), 50);
  EXPECT_EQ(report.decode.window, 150);
}

TEST(Idle, OperationsAcrossAWindowBorderAreClipped) {
  Trace trace = empty_trace();
  const auto kernel = add(trace, kDevice, Kind::compute, Cause::none, 50, 150);
  const auto other = add(trace, 5, Kind::compute, Cause::none, 100, 160);
  trace.steps = {{Device::kSetupStep, 0, 120, kernel}, {0, 120, 200, other}};
  const IdleReport report = account_idle(trace);
  EXPECT_EQ(report.steps[0].busy, 70);
  EXPECT_EQ(report.steps[1].busy, 40);
  EXPECT_EQ(report.steps[1].idle, 40);
  EXPECT_EQ(report.decode.window, 80);  // without the setup window
}

TEST(Idle, CostsGoToTheWindowInWhichAnOperationStarts) {
  Trace trace = empty_trace();
  for (const Nanos start : {0, 99, 100, 199, 200}) {
    add(trace, kDevice, Kind::compute, Cause::none, start, start + 1);
    trace.records.back().cost = {
        .hbm = 1u + static_cast<std::uint64_t>(start), .dram = 2, .h2d = 3, .d2h = 4, .flops = 5};
  }
  trace.steps = {{0, 0, 100, 1}, {1, 100, 200, 3}};
  const IdleReport report = account_idle(trace);
  EXPECT_EQ(report.steps[0].cost.hbm, 1u + 100u);
  EXPECT_EQ(report.steps[1].cost.hbm, 101u + 200u);
  EXPECT_EQ(report.outside.hbm, 201u);
  EXPECT_EQ(report.total.flops, 25u);
}

TEST(Idle, InconsistentTracesAreRefused) {
  Trace trace = empty_trace();
  add(trace, kDevice, Kind::compute, Cause::none, 0, 10);
  trace.steps = {{0, 0, 10, 0}, {1, 11, 20, 0}};
  EXPECT_THROW(account_idle(trace), LogicError);
  trace.steps = {{0, 0, 20, 7}};
  EXPECT_THROW(account_idle(trace), LogicError);
  trace.steps = {{0, 0, 20, 0}};
  EXPECT_NO_THROW(account_idle(trace));
  trace.records[0].critical = 5;
  EXPECT_THROW(account_idle(trace), LogicError);
  trace.records[0].critical = -1;
  trace.records[0].end = -1;
  EXPECT_THROW(account_idle(trace), LogicError);
  trace.records[0].end = 10;
  trace.records[0].lane = 9;
  EXPECT_THROW(account_idle(trace), LogicError);
}

// Oracle: every nanosecond of the window for itself.
void check_by_nanosecond(const Trace& trace, const StepIdle& step, const StepMark& mark) {
  CauseTimes causes{};
  Nanos busy = 0;
  for (Nanos t = mark.begin; t < mark.end; ++t) {
    const auto computes = [&](const TraceRecord& r, Nanos at) {
      const LaneInfo& lane = trace.lanes[r.lane];
      return r.kind == Kind::compute && (lane.inference || lane.kind == LaneKind::side_compute) && r.start <= at &&
             at < r.end;
    };
    const auto busy_at = [&](Nanos at) {
      return std::any_of(trace.records.begin(), trace.records.end(),
                         [&](const TraceRecord& r) { return computes(r, at); });
    };
    if (busy_at(t)) {
      ++busy;
      continue;
    }
    Nanos end = t + 1;
    while (end < mark.end && !busy_at(end)) ++end;
    std::int64_t index = mark.closed_by;
    if (end < mark.end) {
      for (const bool inference : {false, true}) {  // an inference lane's is asked last, and so first
        for (auto r = trace.records.rbegin(); r != trace.records.rend(); ++r)
          if (r->start == end && computes(*r, end) && trace.lanes[r->lane].inference == inference) index = r->critical;
      }
    }
    Cause cause = Cause::scheduler;
    for (; index >= 0; index = trace.records[static_cast<std::size_t>(index)].critical) {
      const TraceRecord& r = trace.records[static_cast<std::size_t>(index)];
      if (t >= r.end) {
        cause = Cause::handoff;
        break;
      }
      if (t >= r.start) {
        cause = r.cause;
        if (cause == Cause::none && r.kind == Kind::copy) cause = Cause::transfer;
        if (cause == Cause::none && (r.kind == Kind::control || r.kind == Kind::wait)) cause = Cause::scheduler;
        if (cause == Cause::none && r.lane == kControl) cause = Cause::scheduler;
        if (cause == Cause::none && r.lane == kHost) cause = Cause::host_attention;
        break;
      }
    }
    ++causes[static_cast<std::size_t>(cause)];
  }
  EXPECT_EQ(step.busy, busy);
  EXPECT_EQ(step.by_cause, causes);
}

Trace random_sim_trace(std::uint32_t seed) {
  std::mt19937 random(seed);
  const auto below = [&](std::uint32_t n) { return static_cast<std::uint32_t>(random() % n); };
  HardwareProfile profile = round_profile();
  profile.device.launch_ns = 7;
  profile.device.segment_launch_ns = 30;
  profile.handoff = {.device_to_host_ns = 5, .host_to_device_ns = 9};
  auto sim = make_sim_device(profile);
  std::vector<Event> events;
  for (std::uint32_t step = 0; step < 4; ++step) {
    const bool segment = below(2) == 0;
    if (segment) sim->begin_segment("graph");
    for (std::uint32_t i = 0; i < 12; ++i) {
      Op op;
      op.name = "op";
      op.layer = below(3) == 0 ? Op::kNoLayer : below(3);
      op.cause = static_cast<Cause>(below(kCauseCount));
      const LaneId lane = below(8);
      op.kind = lane == 2 || lane == 3 ? Kind::copy : below(5) == 0 ? Kind::wait : Kind::compute;
      op.cost = {
          .hbm = below(60'000), .dram = below(1000), .h2d = below(300), .d2h = below(300), .fixed_ns = below(20)};
      for (std::uint32_t e = below(3); e > 0 && !events.empty(); --e) {
        op.after.push_back(
            events[events.size() - 1 - below(static_cast<std::uint32_t>(std::min<std::size_t>(events.size(), 8)))]);
      }
      events.push_back(sim->submit(lane, op));
    }
    if (segment) sim->end_segment();
    sim->end_step(step == 0 ? Device::kSetupStep : step, events[events.size() - 1 - below(6)]);
  }
  return sim->drain();
}

TEST(Idle, RandomSimulatedTracesNanosecondByNanosecond) {
  for (std::uint32_t seed = 0; seed < 60; ++seed) {
    const Trace trace = random_sim_trace(seed);
    const IdleReport report = account_idle(trace);
    ASSERT_EQ(report.steps.size(), 4u);
    for (std::size_t i = 0; i < 4; ++i) {
      const StepIdle& step = report.steps[i];
      EXPECT_EQ(step.busy + step.idle, step.window);
      EXPECT_EQ(std::accumulate(step.by_cause.begin(), step.by_cause.end(), Nanos{0}), step.idle);
      check_by_nanosecond(trace, step, trace.steps[i]);
      if (HasFailure()) FAIL() << "seed " << seed << " window " << i;
    }
    CostTotals sum;
    for (const TraceRecord& record : trace.records) sum.add(record, trace.lanes[record.lane].kind, 0);
    EXPECT_EQ(report.total, sum);
  }
}

TEST(Idle, TracesOfRealThreadsAddUp) {
  auto emu = make_emu_device();
  const auto op = [](const char* name, Cause cause, std::vector<Event> after) {
    Op result;
    result.name = name;
    result.cause = cause;
    result.after = std::move(after);
    result.body = [](BodyContext&) { std::this_thread::sleep_for(std::chrono::microseconds(200)); };
    return result;
  };
  for (std::uint32_t step = 0; step < 5; ++step) {
    const Event query = emu->submit(kDevice, op("query", Cause::none, {}));
    const Event partial = emu->submit(kHost, op("partial", Cause::host_attention, {query}));
    emu->end_step(step, emu->submit(kDevice, op("merge", Cause::none, {partial})));
  }
  const IdleReport report = account_idle(emu->drain());
  EXPECT_EQ(report.decode.busy + report.decode.idle, report.decode.window);
  EXPECT_GE(report.decode.busy, 10 * 200'000);
  EXPECT_GE(of(report.decode, Cause::host_attention), 5 * 200'000);
}

// What the overlap of a layer-ahead method must look like in virtual time: host attention that fits under the layer is
// free, what sticks out is idle time with that name.
TEST(Idle, HostAttentionUnderALayer) {
  for (const Nanos host_time : {600, 1300}) {
    auto sim = make_sim_device(round_profile());
    const auto op = [](const char* name, Nanos ns, Cause cause, std::vector<Event> after) {
      Op result;
      result.name = name;
      result.cause = cause;
      result.cost = {.work = Work::fixed, .fixed_ns = ns};
      result.after = std::move(after);
      return result;
    };
    Event layer, token;
    for (int i = 0; i < 4; ++i) {
      const Event partial = sim->submit(kHost, op("partial", host_time, Cause::host_attention, {layer}));
      layer = sim->submit(kDevice, op("layer", 1000, Cause::none, {}));
      token = sim->submit(kDevice, op("merge", 10, Cause::none, {partial}));
    }
    sim->end_step(0, token);
    const StepIdle step = account_idle(sim->drain()).steps.at(0);
    EXPECT_EQ(step.busy, 4 * 1010);
    EXPECT_EQ(of(step, Cause::launch), 110);  // before the first layer
    // Long: partials run back to back from 10 on, so merge i starts at 10 + 1300 (i + 1) + 40. The first layer ends at
    // 1110 and leaves 200 + 40 to wait; the others start when the merge before is done and leave 250 + 40.
    EXPECT_EQ(of(step, Cause::host_attention), host_time < 1000 ? 0 : 200 + 3 * 250);
    EXPECT_EQ(of(step, Cause::handoff), host_time < 1000 ? 30 : 4 * 40 + 30);
  }
}

}  // namespace
}  // namespace tandem
