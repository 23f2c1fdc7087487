// The scheduler against hand-computed times and against a slow simulator with tiny time steps in floating point.
#include "engine/device/scheduler.h"

#include <gtest/gtest.h>
#include <random>

namespace tandem {
namespace {

constexpr auto kHbm = static_cast<std::size_t>(Resource::hbm);
constexpr auto kDram = static_cast<std::size_t>(Resource::dram);

ScheduledOp op(Nanos fixed, Nanos flow, std::size_t resource = kHbm, std::uint32_t share = kUnit) {
  ScheduledOp result;
  result.phases.fixed = fixed;
  result.phases.flow = flow;
  if (flow > 0) result.phases.share[resource] = share;
  return result;
}

TEST(Scheduler, TwoLanesOnDifferentResourcesOverlap) {
  Scheduler scheduler(2);
  scheduler.submit(0, 0, op(0, 100, kHbm));
  scheduler.submit(1, 1, op(0, 60, kDram));
  EXPECT_EQ(scheduler.run_until(0).end, 100);
  EXPECT_EQ(scheduler.time(1).end, 60);
}

TEST(Scheduler, TwoOperationsOnOneResourceRunAtHalfRate) {
  Scheduler scheduler(2);
  scheduler.submit(0, 0, op(0, 100));
  scheduler.submit(1, 1, op(0, 40));
  scheduler.run_all();
  EXPECT_EQ(scheduler.time(1).end, 80);   // 40 at half rate
  EXPECT_EQ(scheduler.time(0).end, 140);  // 40 done by 80, then 60 alone
}

TEST(Scheduler, SharesThatFitTogetherDoNotSlowDown) {
  Scheduler scheduler(2);
  scheduler.submit(0, 0, op(0, 100, kHbm, kUnit / 2));
  scheduler.submit(1, 1, op(0, 100, kHbm, kUnit / 2));
  scheduler.run_all();
  EXPECT_EQ(scheduler.time(0).end, 100);
  EXPECT_EQ(scheduler.time(1).end, 100);
}

TEST(Scheduler, WhatTheCpusOwnLimitsSlowDownAsksLessOfMemory) {
  constexpr auto kReads = static_cast<std::size_t>(Resource::host_reads);
  Scheduler scheduler(5);
  for (std::size_t worker = 0; worker < 4; ++worker) {  // four that want all of what the CPU reads: half of memory
    ScheduledOp reads = op(0, 100, kReads);
    reads.phases.share[kDram] = kUnit / 2;
    scheduler.submit(worker, static_cast<std::int64_t>(worker), reads);
  }
  scheduler.submit(4, 4, op(0, 300, kDram, kUnit / 2));  // the other half
  scheduler.run_all();
  for (std::int64_t worker = 0; worker < 4; ++worker) EXPECT_EQ(scheduler.time(worker).end, 400);
  EXPECT_EQ(scheduler.time(4).end, 300);
}

TEST(Scheduler, LatencyDoesNotShare) {
  Scheduler scheduler(2);
  scheduler.submit(0, 0, op(50, 100));
  scheduler.submit(1, 1, op(0, 50));
  scheduler.run_all();
  EXPECT_EQ(scheduler.time(1).end, 50);
  EXPECT_EQ(scheduler.time(0).end, 150);
}

TEST(Scheduler, EdgesLaneOrderAndEarliestDecideTheStart) {
  Scheduler scheduler(2);
  ScheduledOp first = op(100, 0);
  first.earliest = 10;
  first.earliest_record = 7;
  scheduler.submit(0, 8, first);
  ScheduledOp second = op(5, 0);
  second.after = {{8, 30}};
  scheduler.submit(1, 9, second);
  ScheduledOp third = op(5, 0);
  third.earliest = 20;
  scheduler.submit(1, 10, third);
  scheduler.run_all();
  EXPECT_EQ(scheduler.time(8).start, 10);
  EXPECT_EQ(scheduler.time(8).critical, 7);
  EXPECT_EQ(scheduler.time(9).start, 140);
  EXPECT_EQ(scheduler.time(9).critical, 8);
  EXPECT_EQ(scheduler.time(10).start, 145);
  EXPECT_EQ(scheduler.time(10).critical, 9);
}

TEST(Scheduler, LaterSubmissionsShareWithWhatIsInFlight) {
  Scheduler scheduler(3);
  scheduler.submit(0, 0, op(0, 1000));
  scheduler.submit(1, 1, op(100, 0));
  EXPECT_EQ(scheduler.run_until(1).end, 100);  // operation 0 is in flight
  EXPECT_LT(scheduler.time(0).end, 0);
  ScheduledOp late = op(0, 50);
  late.earliest = 200;
  scheduler.submit(2, 2, late);
  scheduler.run_all();
  EXPECT_EQ(scheduler.time(2).end, 300);
  EXPECT_EQ(scheduler.time(0).end, 1050);
}

// Independent oracle: a clock that ticks every 1/16 ns, doubles, no events, no phases in common with the scheduler.
struct SlowOp {
  std::size_t lane;
  ScheduledOp op;
  double start = -1, end = -1, fixed_left = 0, flow_left = 0, rate = 1;
};

void run_slowly(std::vector<SlowOp>& ops, std::size_t lanes) {
  constexpr double kTick = 1.0 / 16;
  std::size_t left = ops.size();
  for (double now = 0; left > 0; now += kTick) {
    ASSERT_LT(now, 1e6);
    std::vector<SlowOp*> running;
    for (std::size_t lane = 0; lane < lanes; ++lane) {
      for (SlowOp& candidate : ops) {
        if (candidate.lane != lane || candidate.end >= 0) continue;
        if (candidate.start < 0) {
          bool ready = now >= static_cast<double>(candidate.op.earliest);
          for (const Dependency& d : candidate.op.after) {
            const SlowOp& before = ops[static_cast<std::size_t>(d.record)];
            ready = ready && before.end >= 0 && now >= before.end + static_cast<double>(d.latency);
          }
          if (ready) {
            candidate.start = now;
            candidate.fixed_left = static_cast<double>(candidate.op.phases.fixed);
            candidate.flow_left = static_cast<double>(candidate.op.phases.flow);
          }
        }
        if (candidate.start >= 0) running.push_back(&candidate);
        break;
      }
    }
    // First the CPU's own resources, then the others with what these leave of each rate.
    for (SlowOp* r : running) r->rate = 1;
    for (const auto& [begin, end] : {std::pair{0, kHostResources}, std::pair{kHostResources, kResourceCount}}) {
      double demand[kResourceCount] = {};
      for (const SlowOp* r : running) {
        if (r->fixed_left > 0) continue;
        for (int k = begin; k < end; ++k)
          demand[k] += r->rate * static_cast<double>(r->op.phases.share[static_cast<std::size_t>(k)]) / kUnit;
      }
      for (SlowOp* r : running) {
        double slowest = 1;
        for (int k = begin; k < end; ++k) {
          if (r->op.phases.share[static_cast<std::size_t>(k)] != 0) slowest = std::max(slowest, demand[k]);
        }
        r->rate /= slowest;
      }
    }
    for (SlowOp* r : running) {
      if (r->fixed_left > 0) {
        r->fixed_left -= kTick;
      } else {
        r->flow_left -= r->rate * kTick;
      }
      if (r->fixed_left <= 1e-9 && r->flow_left <= 1e-9) {
        r->end = now + kTick;
        --left;
      }
    }
  }
}

TEST(Scheduler, AgreesWithASlowSimulatorOnRandomGraphs) {
  for (std::uint32_t seed = 0; seed < 40; ++seed) {
    std::mt19937 random(seed);
    const auto below = [&](std::size_t n) { return static_cast<std::uint32_t>(random() % n); };
    const std::size_t lanes = 2 + below(4);
    const std::size_t count = 5 + below(20);
    std::vector<SlowOp> slow;
    Scheduler scheduler(lanes);
    Nanos earliest = 0;
    for (std::size_t i = 0; i < count; ++i) {
      ScheduledOp o;
      o.phases.fixed = 1 + below(30);
      o.phases.flow = below(4) == 0 ? 0 : 1 + below(200);
      for (int k = 0; k < kResourceCount && o.phases.flow > 0; ++k) {
        if (below(2) == 0) o.phases.share[static_cast<std::size_t>(k)] = below(2) == 0 ? kUnit : 1 + below(kUnit);
      }
      earliest += below(40);
      o.earliest = earliest;
      for (std::uint32_t e = below(3); e > 0 && i > 0; --e) o.after.push_back({below(i), below(50)});
      const std::size_t lane = below(lanes);
      slow.push_back({lane, o});
      scheduler.submit(lane, static_cast<std::int64_t>(i), o);
    }
    run_slowly(slow, lanes);
    scheduler.run_all();
    for (std::size_t i = 0; i < count; ++i) {
      // Whole nanoseconds against sixteenths: one rounding per operation on the path.
      const ScheduledTime& time = scheduler.time(static_cast<std::int64_t>(i));
      EXPECT_NEAR(static_cast<double>(time.start), slow[i].start, 1.2 * static_cast<double>(count)) << seed << " " << i;
      EXPECT_NEAR(static_cast<double>(time.end), slow[i].end, 1.2 * static_cast<double>(count)) << seed << " " << i;
    }
  }
}

TEST(Scheduler, StoppingInBetweenChangesNothing) {
  for (std::uint32_t seed = 0; seed < 50; ++seed) {
    std::vector<std::vector<ScheduledTime>> results;
    for (const bool stop : {false, true}) {
      std::mt19937 random(seed);
      const auto below = [&](std::size_t n) { return static_cast<std::uint32_t>(random() % n); };
      Scheduler scheduler(4);
      for (std::int64_t i = 0; i < 60; ++i) {
        ScheduledOp o = op(below(20), below(100), below(kResourceCount), 1 + below(kUnit));
        if (i > 0) o.after.push_back({static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(i)), 3});
        o.earliest = 200 * i;  // late enough for any stop in between
        scheduler.submit(random() % 4, i, o);
        const auto target = static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(i + 1));
        if (stop && target < i / 2) scheduler.run_until(target);
      }
      scheduler.run_all();
      results.emplace_back();
      for (std::int64_t i = 0; i < 60; ++i) results.back().push_back(scheduler.time(i));
    }
    for (std::size_t i = 0; i < 60; ++i) {
      EXPECT_EQ(results[0][i].start, results[1][i].start) << seed << " " << i;
      EXPECT_EQ(results[0][i].end, results[1][i].end) << seed << " " << i;
    }
  }
}

}  // namespace
}  // namespace tandem
