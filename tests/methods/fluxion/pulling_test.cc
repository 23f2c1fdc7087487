// CPU workers and the device that pull Fluxion's tasks: how long it takes, who gets what, and on real threads.
#include <algorithm>
#include <gtest/gtest.h>
#include <map>
#include <set>
#include <tuple>

#include "tests/methods/fluxion/random_heads.h"

namespace tandem::testing {
namespace {

HardwareProfile balanced_profile() {
  HardwareProfile p = load_profile("fluxion-a100");
  p.device.launch_ns = p.device.segment_launch_ns = p.device.op_floor_ns = 10;
  p.device.attention_ns = p.device.product_ns = 0;
  p.control.submit_ns = 10;
  p.handoff = {10, 10};
  p.host.attention_gbps_per_thread = p.host.select_gbps_per_thread = 1;
  p.host.threads = 1;
  p.host.attention_efficiency = 1;
  p.link.h2d_curve = {{1, 1.0}};
  p.link.d2h_curve = {{1, 20.0}};
  p.link.h2d_gather_curve.clear();
  return p;
}

TEST(Fluxion, PullingByPriorityIsTheFastestPolicyOnMixedLengths) {
  Bench bench(tiny_model(), make_sim_device(balanced_profile()));
  std::vector<std::unique_ptr<Prefix>> prefixes;
  std::vector<DecodeRequest> requests;
  for (const auto& prompt : kMixed) {
    prefixes.push_back(bench.engine.prefill(prompt));
    requests.push_back({prefixes.back().get(), 4});
  }
  const auto time = [&](const std::string& policy) {
    const auto method = with_random_heads("fluxion:sinks=16,window=32," + policy);
    return bench.engine.decode(*method, requests).idle.decode.window;
  };
  const Nanos priority = time("policy=priority");
  EXPECT_LT(priority, time("policy=cpu-only"));
  for (const std::string share : {"0.35", "0.5", "0.65"}) {
    EXPECT_LT(priority, time("policy=uniform,cpu_share=" + share)) << share;
    EXPECT_LT(priority, time("policy=length,cpu_share=" + share)) << share;
  }
  EXPECT_EQ(priority, time("policy=priority"));  // to the nanosecond
}

TEST(Fluxion, AGuardLeavesTheLargestTaskToTheFasterSide) {
  HardwareProfile profile = balanced_profile();
  profile.link.h2d_curve = {{1, 0.02}};  // 50 times slower than the CPU
  Bench bench(tiny_model(), make_sim_device(profile));
  const auto time = [&](const std::string& options) {
    const auto method = with_random_heads("fluxion:sinks=16,window=32" + options);
    return bench.decode(*method, kMixed, 4).idle.decode.window;
  };
  EXPECT_LT(time(",guard=yes,cpu_share=0.98"), 0.8 * double(time(",guard=no")));
}

TEST(Fluxion, AGuardKnowsThatOneOfSeveralWorkersIsSlowerThanAll) {
  HardwareProfile profile = balanced_profile();
  profile.host.threads = 8;
  profile.host.attention_gbps_per_thread = profile.host.select_gbps_per_thread = 0.125;
  profile.link.h2d_curve = {{1, 3.0}};  // three times as fast as the CPU, twelve times as a worker
  Bench bench(tiny_model(), make_sim_device(profile));
  const auto time = [&](const std::string& options) {
    const auto method = with_random_heads("fluxion:sinks=16,window=32,workers=4" + options);
    return bench.decode(*method, kMixed, 4).idle.decode.window;
  };
  EXPECT_LT(double(time(",guard=yes,cpu_share=0.25")), 0.5 * double(time(",guard=no")));
}

TEST(Fluxion, WorkersChooseBlocksWhileOthersRead) {
  HardwareProfile profile = load_profile("fluxion-a100");
  profile.host.gflops_per_thread = 0.5;  // choosing takes as long as reading, on two of twenty threads
  Bench bench(tiny_model(), make_sim_device(profile));
  std::vector<Nanos> time;
  for (const std::string workers : {"1", "2", "4"}) {
    const auto method = with_random_heads("fluxion:sinks=16,window=32,policy=cpu-only,workers=" + workers);
    const DecodeResult result = bench.decode(*method, kMixed, 4);
    std::set<LaneId> lanes;
    for (const TraceRecord& r : result.trace.records) {
      if (std::string(r.name) == "select blocks") lanes.insert(r.lane);
    }
    EXPECT_EQ(std::to_string(lanes.size()), workers);
    time.push_back(result.idle.decode.window);
  }
  EXPECT_LT(double(time[1]), 0.9 * double(time[0]));
  EXPECT_LT(double(time[2]), 0.9 * double(time[1]));
}

TEST(Fluxion, WorkersDivideTheThreadsAmongThemselves) {
  // Options and the threads of the CPU, to the threads of each worker. A layer has 2 x 3 tasks of 2 query heads.
  const std::vector<std::tuple<std::string, std::uint32_t, std::multiset<std::uint32_t>>> cases = {
      {"workers=3", 20, {7, 7, 6}},
      {"workers=8", 20, {4, 4, 3, 3, 3, 3}},  // no more than tasks
      {"workers=8", 3, {1, 1, 1}},            // or threads
      {"workers=0", 20, {10, 10}},
      {"workers=0", 3, {3}}};  // two would not have a thread for each head
  for (const auto& [options, threads, expected] : cases) {
    HardwareProfile profile = load_profile("fluxion-a100");
    profile.host.threads = threads;
    Bench bench(tiny_model(), make_sim_device(profile));
    const auto method = with_random_heads("fluxion:sinks=16,window=32,stage=fixed32,policy=cpu-only," + options);
    std::map<LaneId, std::uint32_t> by_lane;
    for (const TraceRecord& r : bench.decode(*method, kMixed, 4).trace.records) {
      const std::string name = r.name;
      if (name != "select blocks" && name != "host attention") continue;
      EXPECT_EQ(by_lane.try_emplace(r.lane, r.cost.threads).first->second, r.cost.threads) << name;
    }
    std::multiset<std::uint32_t> parts;
    for (const auto& lane : by_lane) parts.insert(lane.second);
    EXPECT_EQ(parts, expected) << options << " of " << threads;
  }
}

TEST(Fluxion, TheDeviceTakesATaskWhenItIsFree) {
  Bench bench(tiny_model(), make_sim_device(balanced_profile()));
  const DecodeResult result = bench.decode(*with_random_heads("fluxion:sinks=16,window=32"), kMixed, 4);
  std::map<std::uint32_t, Nanos> attended, estimated, device_end, host_end, merged;
  std::size_t checked = 0;
  for (const TraceRecord& r : result.trace.records) {
    if (r.start < result.trace.steps.front().end) continue;
    const std::string name = r.name;
    if (name == "device attention") attended[r.layer] = r.end;
    if (name == "estimate heads") {
      EXPECT_GE(r.start, attended[r.layer]);
      estimated[r.layer] = r.end;
      device_end.erase(r.layer);
      host_end.erase(r.layer);
    }
    if (name == "select blocks" || name == "attend over the link") {
      ASSERT_TRUE(estimated.contains(r.layer));
      EXPECT_GT(r.start, estimated[r.layer]);  // properties reach the CPU before anybody selects
    }
    if (name == "attend over the link") device_end[r.layer] = r.end;
    if (name == "host attention") host_end[r.layer] = std::max(host_end[r.layer], r.end);
    if (name == "merge") {
      EXPECT_GE(r.start, std::max(device_end[r.layer], host_end[r.layer]));
      checked += device_end[r.layer] > 0 && host_end[r.layer] > 0 ? 1 : 0;
    }
  }
  EXPECT_GE(checked, 6u);  // of 4 steps and 2 layers
  const CauseTimes& idle = result.idle.decode.by_cause;
  EXPECT_GT(idle[static_cast<std::size_t>(Cause::host_attention)] + idle[static_cast<std::size_t>(Cause::selection)],
            0);
  EXPECT_GT(idle[static_cast<std::size_t>(Cause::recall)], 0);
}

TEST(Fluxion, RealThreadsPullTheSameResults) {
  Logits expected, actual;
  {
    Bench bench(tiny_model());
    bench.decode(*with_random_heads("fluxion:sinks=16,window=32"), kMixed, 6, {.logits = &expected});
  }
  for (const std::string workers : {"0", "1", "3", "8"}) {
    Bench bench(tiny_model(), make_emu_device({.host_worker_threads = 8}), {}, 4);
    actual.clear();
    const std::string spec = "fluxion:sinks=16,window=32,workers=" + workers;
    bench.decode(*with_random_heads(spec), kMixed, 6, {.logits = &actual});
    EXPECT_EQ(expected, actual) << spec;
  }
}

/// Digests grow on one lane of the host while tasks are pulled on all of them.
TEST(Fluxion, RealThreadsPullTheSameResultsWhileTokensSpill) {
  const std::vector<std::vector<std::int32_t>> prompts = {random_prompt(671, 1), random_prompt(157, 2),
                                                          random_prompt(30, 3), random_prompt(412, 4)};
  Logits expected, actual;
  {
    Bench bench(tiny_model());
    const DecodeResult result =
        bench.decode(*with_random_heads("fluxion:sinks=16,window=16,spill=1"), prompts, 8, {.logits = &expected});
    const auto first = std::find_if(result.trace.steps.begin(), result.trace.steps.end(),
                                    [](const StepMark& s) { return s.step != Device::kSetupStep; });
    EXPECT_EQ(std::count_if(result.trace.records.begin(), result.trace.records.end(),
                            [&](const TraceRecord& r) {
                              return std::string(r.name) == "build digests" && r.start > first->begin;
                            }),
              3 * 2);  // three sequences spill, each in a step of its own, in each layer
  }
  for (const std::string workers : {"1", "3"}) {
    Bench bench(tiny_model(), make_emu_device({.host_worker_threads = 4}), {}, 4);
    actual.clear();
    bench.decode(*with_random_heads("fluxion:sinks=16,window=16,spill=1,workers=" + workers), prompts, 8,
                 {.logits = &actual});
    EXPECT_EQ(expected, actual) << workers;
  }
}

}  // namespace
}  // namespace tandem::testing
