// Virtual times computed by hand. See test_profile.h: launch 100, segment 500, floor 20, submit 10, device to host 30,
// host to device 40 ns.
#include "engine/device/sim_device.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <gtest/gtest.h>
#include <random>

#include "tests/engine/device/sim_test.h"
#include "tests/engine/device/test_profile.h"

namespace tandem {
namespace {

TEST(SimDevice, LaunchesRunAheadOfTheDevice) {
  auto sim = make_sim_device(round_profile());
  const Lanes lanes(*sim);
  Event last;
  for (int i = 0; i < 3; ++i) last = sim->submit(lanes.device, fixed("kernel", 1000));
  EXPECT_EQ(sim->now(), 300);  // three launches, nothing waited for
  sim->host_wait(last);
  EXPECT_EQ(sim->now(), 100 + 3 * 1000 + 30);
  const Trace trace = sim->drain();
  ASSERT_EQ(trace.records.size(), 7u);  // launch, kernel, ..., wait
  EXPECT_EQ(trace.records[0].cause, Cause::launch);
  EXPECT_EQ(trace.records[0].kind, Kind::control);
  EXPECT_EQ(trace.records[1].start, 100);
  EXPECT_EQ(trace.records[1].critical, 0);
  EXPECT_EQ(trace.records[3].start, 1100);
  EXPECT_EQ(trace.records[3].critical, 1);
  EXPECT_EQ(trace.records[6].kind, Kind::wait);
  EXPECT_EQ(trace.records[6].start, 3130);
  EXPECT_EQ(trace.records[6].end, 3130);
  EXPECT_EQ(trace.records[6].critical, 5);
}

TEST(SimDevice, ShortKernelsAreBoundByTheirLaunches) {
  auto sim = make_sim_device(round_profile());
  const Lanes lanes(*sim);
  Event last;
  for (int i = 0; i < 4; ++i) last = sim->submit(lanes.device, fixed("kernel", 10));
  sim->host_wait(last);
  EXPECT_EQ(sim->now(), 400 + 10 + 30);
  EXPECT_EQ(sim->drain().records[7].critical, 6);  // its launch
}

TEST(SimDevice, SeveralKernelsAreSeveralLaunchesHereAndOneRequestToAPeer) {
  HardwareProfile profile = round_profile();
  profile.peer = {.gbps = 50, .latency_ns = 9};
  auto sim = make_sim_device(profile);
  const Lanes lanes(*sim);
  Op op = fixed("four", 10);
  op.cost.kernels = 4;
  sim->submit(lanes.device, op);
  EXPECT_EQ(sim->now(), 400);
  sim->submit(sim->lane(LaneKind::peer_compute), op);
  EXPECT_EQ(sim->now(), 500);
  sim->drain();
  const Nanos before = sim->now();
  {
    const Segment segment(*sim, "graph");
    sim->submit(lanes.device, op);
  }
  const Trace trace = sim->drain();
  EXPECT_EQ(find(trace, "four").end - find(trace, "four").start, 4 * 20) << "each has a floor";
  EXPECT_EQ(find(trace, "four").start, before + 500);
}

TEST(SimDevice, ASegmentPaysOneLaunchAndHasAFloor) {
  auto sim = make_sim_device(round_profile());
  const Lanes lanes(*sim);
  Event last;
  {
    const Segment segment(*sim, "layer graph");
    sim->submit(lanes.device, fixed("a", 5));
    sim->submit(lanes.device, fixed("b", 70));
    last = sim->submit(lanes.device, fixed("c", 5));
  }
  EXPECT_EQ(sim->now(), 500);
  sim->host_wait(last);
  EXPECT_EQ(sim->now(), 500 + 20 + 70 + 20 + 30);
  const Trace trace = sim->drain();
  EXPECT_STREQ(trace.records[0].name, "layer graph");
  EXPECT_EQ(trace.records.size(), 5u);
}

TEST(SimDevice, KernelsThatShareTheWorkTakeAFloorEachAndTheOthersTakeTheirsBesides) {
  auto sim = make_sim_device(round_profile());
  const Lanes lanes(*sim);
  const auto time = [&](Nanos ns, std::uint32_t kernels, std::uint32_t heavy) {
    Op op = fixed("layer", ns);
    op.cost.kernels = kernels;
    op.cost.heavy = heavy;
    {
      const Segment segment(*sim, "graph");
      sim->submit(lanes.device, op);
    }
    const Trace trace = sim->drain();
    return find(trace, "layer").end - find(trace, "layer").start;
  };
  EXPECT_EQ(time(1000, 6, 3), 1000 + 3 * 20);
  EXPECT_EQ(time(50, 6, 3), 3 * 20 + 3 * 20) << "three of 50 / 3 ns are three floors";
  EXPECT_EQ(time(1000, 1, 1), 1000);
  EXPECT_EQ(time(1000, 1, 3), 1000) << "no more share it than there are";
}

// Without graphs: every kernel is launched, whoever asks, and takes its floor.
TEST(SimDevice, WithoutGraphsASegmentPaysForEveryKernel) {
  HardwareProfile profile = round_profile();
  profile.device.segment_launch_ns = 0;
  profile.control.operation_ns = 7;
  auto sim = make_sim_device(profile);
  const Lanes lanes(*sim);
  Op op = fixed("four", 10);
  op.cost.kernels = 4;
  {
    const Segment segment(*sim, "graph");
    sim->submit(lanes.device, op);
    EXPECT_EQ(sim->now(), 407);
    op.name = "again";
    sim->submit(lanes.device, op);
    EXPECT_EQ(sim->now(), 814);
    sim->submit(lanes.host, fixed("on the host", 10));
    EXPECT_EQ(sim->now(), 824) << "no launch";
  }
  const Trace trace = sim->drain();
  EXPECT_EQ(find(trace, "four").start, 407);
  EXPECT_EQ(find(trace, "four").end, 407 + 4 * 20);
  EXPECT_EQ(find(trace, "again").start, 814);
}

TEST(SimDevice, StreamsOfTheDeviceSeeEachOtherAfterASignal) {
  HardwareProfile profile = round_profile();
  profile.handoff.stream_ns = 60;
  auto sim = make_sim_device(profile);
  const Lanes lanes(*sim);
  const Event copied = sim->submit(lanes.h2d, fixed("copy", 300));
  const Event done = sim->submit(lanes.device, fixed("kernel", 10, {copied}));
  sim->submit(lanes.device, fixed("behind", 10, {done}));
  const Trace trace = sim->drain();
  EXPECT_EQ(find(trace, "kernel").start, find(trace, "copy").end + 60);
  EXPECT_EQ(find(trace, "behind").start, find(trace, "kernel").end) << "one stream is in order";
}

TEST(SimDevice, ControlWorkInsideASegmentDelaysWhatIsSubmittedAfterIt) {
  auto sim = make_sim_device(round_profile());
  const Lanes lanes(*sim);
  const Segment segment(*sim, "graph");
  sim->submit(lanes.device, fixed("a", 20));  // 500 .. 520
  sim->submit(lanes.control, fixed("policy", 50));
  sim->submit(lanes.device, fixed("b", 20));  // not before 550
  const Trace trace = sim->drain();
  EXPECT_EQ(find(trace, "a").start, 500);
  EXPECT_EQ(find(trace, "b").start, 550);
  EXPECT_STREQ(trace.records[static_cast<std::size_t>(find(trace, "b").critical)].name, "policy");
}

TEST(SimDevice, AHostWaitSplitsASegment) {
  auto sim = make_sim_device(round_profile());
  const Lanes lanes(*sim);
  sim->begin_segment("graph");
  EXPECT_THROW(sim->begin_segment("inner"), LogicError);
  sim->host_wait(sim->submit(lanes.device, fixed("a", 20)));
  EXPECT_EQ(sim->now(), 550);
  sim->submit(lanes.device, fixed("b", 20));
  EXPECT_EQ(sim->now(), 1050);
  sim->end_segment();
  EXPECT_THROW(sim->end_segment(), LogicError);
}

TEST(SimDevice, HandOffsAcrossTheHostBorder) {
  auto sim = make_sim_device(round_profile());
  const Lanes lanes(*sim);
  const Event query = sim->submit(lanes.device, fixed("query", 50));             // 100 .. 150
  const Event copy = sim->submit(lanes.d2h, fixed("copy", 20, {query}));         // launch until 200; 200 .. 220
  const Event partial = sim->submit(lanes.host, fixed("partial", 300, {copy}));  // 220 + 30: 250 .. 550
  const Event merge = sim->submit(lanes.device, fixed("merge", 5, {partial}));   // 550 + 40: 590 .. 595
  sim->host_wait(merge);
  EXPECT_EQ(sim->now(), 625);
  const Trace trace = sim->drain();
  EXPECT_EQ(find(trace, "copy").start, 200);
  EXPECT_EQ(find(trace, "partial").start, 250);
  EXPECT_EQ(find(trace, "merge").start, 590);
  EXPECT_STREQ(trace.records[static_cast<std::size_t>(find(trace, "merge").critical)].name, "partial");
  EXPECT_STREQ(find(trace, "submit").name, "submit");
}

TEST(SimDevice, AHostWaitForHostWorkersHasNoHandOff) {
  auto sim = make_sim_device(round_profile());
  sim->host_wait(sim->submit(Lanes(*sim).host, fixed("work", 100)));
  EXPECT_EQ(sim->now(), 110);
}

TEST(SimDevice, ControlWorkTakesControlTimeAndDelaysLaunches) {
  auto sim = make_sim_device(round_profile());
  const Lanes lanes(*sim);
  const Event policy = sim->submit(lanes.control, fixed("policy", 7));
  EXPECT_EQ(sim->now(), 7);
  const Event kernel = sim->submit(lanes.device, fixed("kernel", 10, {policy}));  // launched by 107
  sim->submit(lanes.control, fixed("after", 3, {kernel}));                        // 117 + 30
  EXPECT_EQ(sim->now(), 150);
  const Trace trace = sim->drain();
  EXPECT_EQ(find(trace, "kernel").start, 107);
  EXPECT_EQ(find(trace, "after").start, 147);
}

TEST(SimDevice, CopiesAndHostAttentionShareDram) {
  HardwareProfile profile = round_profile();
  profile.link.h2d_curve = {{1, 100}};  // as fast as all of DRAM
  profile.host.attention_efficiency = 1;
  profile.host.attention_gbps_per_thread = 10;
  auto sim = make_sim_device(profile);
  const Lanes lanes(*sim);
  Op copy;
  copy.name = "copy";
  copy.cost.h2d = 100'000;  // 1000 ns alone
  Op attention;
  attention.name = "attention";
  attention.cost = {.work = Work::attention, .dram = 100'000};  // 1000 ns alone
  sim->submit(lanes.h2d, copy);                                 // starts at 100
  sim->submit(lanes.host, attention);                           // starts at 110
  const Trace trace = sim->drain();
  // The copy does 10 ns alone, both run at half rate until the copy's 990 are done at 110 + 1980, then 10 ns alone.
  EXPECT_EQ(find(trace, "copy").end, 2090);
  EXPECT_EQ(find(trace, "attention").end, 2100);
}

TEST(SimDevice, WindowsTileAndNameWhatClosedThem) {
  auto sim = make_sim_device(round_profile());
  const Lanes lanes(*sim);
  sim->end_step(Device::kSetupStep, sim->submit(lanes.device, fixed("prefill", 500)));
  sim->end_step(0, sim->submit(lanes.device, fixed("token", 100)));
  sim->end_step(1, sim->submit(lanes.device, fixed("token", 100)));
  const Trace trace = sim->drain();
  ASSERT_EQ(trace.steps.size(), 3u);
  EXPECT_EQ(trace.steps[0].begin, 0);
  EXPECT_EQ(trace.steps[0].end, 630);
  EXPECT_EQ(trace.steps[1].begin, 630);
  EXPECT_EQ(trace.steps[1].end, 860);
  EXPECT_EQ(trace.steps[2].end, 1090);
  EXPECT_EQ(trace.steps[0].step, Device::kSetupStep);
  const TraceRecord& closed = trace.records[static_cast<std::size_t>(trace.steps[2].closed_by)];
  EXPECT_EQ(closed.kind, Kind::wait);
  EXPECT_EQ(closed.end, 1090);
  EXPECT_EQ(trace.clock, "simulated for round numbers");
}

TEST(SimDevice, TheNextTraceStartsAtTheDrainAndOldEventsAreDone) {
  auto sim = make_sim_device(round_profile());
  const Lanes lanes(*sim);
  const Event old = sim->submit(lanes.device, fixed("old", 50));
  sim->drain();
  EXPECT_EQ(sim->now(), 180);
  const Event next = sim->submit(lanes.host, fixed("next", 5, {old}));
  sim->host_wait(old);
  sim->end_step(0, next);
  const Trace trace = sim->drain();
  EXPECT_EQ(trace.steps.at(0).begin, 180);
  EXPECT_EQ(find(trace, "next").start, 190);
  for (const TraceRecord& record : trace.records) EXPECT_LT(record.critical, 4);
}

TEST(SimDevice, TheHostsWorkersHaveTheProfilesThreads) {
  const auto sim = make_sim_device(round_profile());
  EXPECT_EQ(sim->lanes().at(sim->lane(LaneKind::host_workers)).threads, 10u);
  EXPECT_EQ(sim->lanes().at(5).id, 5u);
}

// A step of many lanes with random work, as a method would make it; everything ordered.
std::vector<Nanos> random_run(std::uint32_t seed, int count, bool waits) {
  std::mt19937 random(seed);
  auto sim = make_sim_device(load_profile("scoutattention-a100"));
  std::vector<Event> events;
  for (int i = 0; i < count; ++i) {
    Op op;
    op.name = "op";
    op.cost.hbm = random() % 1'000'000;
    op.cost.dram = random() % 100'000;
    op.cost.h2d = random() % 3 == 0 ? random() % 100'000 : 0;
    op.cost.d2h = random() % 3 == 0 ? random() % 100'000 : 0;
    op.cost.pieces = 1 + static_cast<std::uint32_t>(random() % 20);
    op.cost.work = random() % 2 == 0 ? Work::stream : Work::attention;
    const std::size_t near = std::min<std::size_t>(events.size(), 20);
    for (std::size_t e = near == 0 ? 0 : random() % 3; e > 0; --e)
      op.after.push_back(events[events.size() - 1 - random() % near]);
    events.push_back(sim->submit(1 + static_cast<LaneId>(random() % 5), op));
    if (waits && random() % 50 == 0) sim->end_step(static_cast<std::uint32_t>(i), events[events.size() - near / 2 - 1]);
  }
  const Trace trace = sim->drain();
  std::vector<Nanos> times;
  for (const TraceRecord& record : trace.records) {
    times.push_back(record.start);
    times.push_back(record.end);
    EXPECT_GE(record.end, record.start);
    if (record.critical >= 0) {
      EXPECT_LE(trace.records[static_cast<std::size_t>(record.critical)].end, record.start);
    }
  }
  return times;
}

TEST(SimDevice, RunsRepeatToTheNanosecond) {
  for (std::uint32_t seed = 0; seed < 5; ++seed) {
    for (const bool waits : {false, true}) EXPECT_EQ(random_run(seed, 1000, waits), random_run(seed, 1000, waits));
  }
}

TEST(SimDevice, AHundredThousandOperationsTakeLittleTime) {
  const auto begin = std::chrono::steady_clock::now();
  random_run(1, 100'000, true);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  RecordProperty("seconds", std::to_string(seconds));
  EXPECT_LT(seconds, 30) << "far more than the fraction of a second of a release build";
}

/// A bag of tasks of fixed durations, by task and puller.
QueuedTasks timed_bag(std::vector<std::uint8_t> allowed, std::vector<std::array<Nanos, 2>> ns) {
  static const char* const kNames[2][4] = {{"host 0", "host 1", "host 2", "host 3"},
                                           {"device 0", "device 1", "device 2", "device 3"}};
  QueuedTasks bag;
  bag.allowed = std::move(allowed);
  bag.ops = [ns = std::move(ns)](std::uint32_t task, std::uint32_t puller) {
    return std::vector<Op>{fixed(kNames[puller][task], ns[task][puller])};
  };
  return bag;
}

TEST(SimDevice, TheLaneThatIsFreeFirstTakesTheNextTaskOfABag) {
  auto sim = make_sim_device(round_profile());
  const Lanes lanes(*sim);
  const Puller pullers[] = {{lanes.host, 0}, {lanes.device, 1}};
  const std::vector<Event> last =
      sim->submit_queued(pullers, timed_bag({3, 3, 3, 3}, {{{1000, 2000}}, {{500, 700}}, {{400, 300}}, {{100, 100}}}));
  EXPECT_EQ(last[0], (Event{lanes.host, 2}));
  EXPECT_EQ(last[1], (Event{lanes.device, 2}));
  EXPECT_EQ(sim->now(), 1010);  // when the last task was taken
  const Trace trace = sim->drain();
  // The workers are woken once and then take by themselves; each of the device's tasks is seen to end and launched.
  EXPECT_EQ(find(trace, "host 0").start, 10);
  EXPECT_EQ(find(trace, "device 1").start, 110);
  EXPECT_EQ(find(trace, "device 2").start, 110 + 700 + 30 + 100);
  EXPECT_EQ(find(trace, "host 3").start, 1010);
  EXPECT_EQ(find(trace, "host 3").end, 1110);
  EXPECT_EQ(std::count_if(trace.records.begin(), trace.records.end(),
                          [](const TraceRecord& r) { return std::string(r.name) == "submit"; }),
            1);
}

TEST(SimDevice, ABagOfAssignedTasksKeepsNobodyWaiting) {
  auto sim = make_sim_device(round_profile());
  const Lanes lanes(*sim);
  const Puller pullers[] = {{lanes.host, 0}, {lanes.device, 1}};
  const std::vector<Event> last =
      sim->submit_queued(pullers, timed_bag({1, 2, 1, 2}, {{{1000, 0}}, {{0, 700}}, {{400, 0}}, {{0, 100}}}));
  EXPECT_EQ(sim->now(), 10 + 2 * 100);
  EXPECT_EQ(sim->submit_queued(pullers, timed_bag({1}, {{{5, 5}}}))[1], Event{});  // nothing for the device
  const Trace trace = sim->drain();
  EXPECT_EQ(find(trace, "host 2").start, 1010);
  EXPECT_EQ(find(trace, "device 3").start, find(trace, "device 1").end);
  EXPECT_TRUE(last[1].valid());
  EXPECT_TRUE(sim->submit_queued(pullers, QueuedTasks{})[0] == Event{});
}

TEST(SimDevice, ALaneThatIsStillBusyTakesNothing) {
  auto sim = make_sim_device(round_profile());
  const Lanes lanes(*sim);
  const Puller pullers[] = {{lanes.host, 0}, {lanes.device, 1}};
  sim->submit(lanes.host, fixed("earlier", 5000));
  sim->submit_queued(pullers, timed_bag({3, 3, 1}, {{{10, 10}}, {{10, 10}}, {{10, 10}}}));
  const Trace trace = sim->drain();
  EXPECT_EQ(find(trace, "device 0").start, 110);
  EXPECT_GT(find(trace, "device 1").start, 120);
  EXPECT_EQ(find(trace, "host 2").start, 10 + 5000 + 10);  // seen to be free, woken
}

}  // namespace
}  // namespace tandem
