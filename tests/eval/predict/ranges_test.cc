// Ranges of steps: a replay takes what a run on the other profile takes, and ranges hold joint draws.
#include <algorithm>
#include <array>
#include <cmath>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <random>

#include "engine/common/json.h"
#include "engine/runtime/engine.h"
#include "eval/predict/prediction.h"
#include "methods/registry.h"

namespace tandem::eval {
namespace {

constexpr const char* kShape = "llama-3.2-1b";

Workload a_workload() {
  return {"test", "made up", {{{2, 0.5, 0.9}}}};
}

PredictionOptions options_of(const std::string& method) {
  PredictionOptions options;
  options.methods = {method};
  options.checked = false;
  options.batch = 2;
  options.context = 4096;
  options.steps = kRangeSteps;
  options.threads = 1;
  return options;
}

PredictedRow row_of(const std::string& method, const HardwareProfile& hardware, bool ranges = false) {
  PredictionOptions options = options_of(method);
  options.ranges = ranges;
  return predict(load_shape(kShape), hardware, a_workload(), options).rows.at(0);
}

/// The calls of a decode at this shape on `hardware`.
SimCalls calls_of(const std::string& spec, const HardwareProfile& hardware) {
  const Model shape = load_shape(kShape);
  const auto device = make_sim_device(hardware, {.shapes_only = true, .checked = false});
  ThreadPool pool(1);
  EngineOptions options;
  options.kv.device_bytes = options.kv.host_bytes = std::size_t{4} << 30;
  options.max_batch = 2;
  options.prefill_chunk = 2048;
  options.policy_ns = hardware.control.policy_ns;
  options.layer_ns = hardware.device.layer_ns;
  options.control_layer_ns = hardware.control.layer_ns;
  options.precision = DType::bf16;
  options.workload = std::make_shared<const Workload>(a_workload());
  keep_what_methods_need(options, {&spec, 1}, shape);
  Engine engine(shape, *device, pool, options);
  const std::vector<std::int32_t> prompt(4096, 0);
  const std::unique_ptr<Prefix> prefixes[] = {engine.prefill(prompt), engine.prefill(prompt)};
  const std::vector<DecodeRequest> requests = {{prefixes[0].get(), kRangeSteps}, {prefixes[1].get(), kRangeSteps}};
  const std::vector<std::vector<std::int32_t>> forced(2, std::vector<std::int32_t>(kRangeSteps, 0));
  const auto method = make_method(spec);
  record_calls(*device, kRangeSteps);
  engine.decode(*method, requests, {.forced = forced});
  SimCalls calls = take_calls(*device);
  for (const auto& prefix : prefixes) engine.release(*prefix);
  return calls;
}

constexpr const char* kMethods[] = {"full",           "full-offload",   "full-host",       "quest:budget=512",
                                    "gpu-fetch",      "hgca",           "hybrid-fixed",    "infinigen",
                                    "scoutattention", "h2o:budget=512", "tova:budget=512", "streaming"};

TEST(Replay, TakesWhatARunOnTheOtherProfileTakes) {
  const HardwareProfile usual = load_profile("fluxion-a100");
  HardwareProfile other = load_profile("h100");
  other.device.layer_ns = 0;
  for (const char* spec : kMethods) {
    const SimCalls calls = calls_of(spec, usual);
    EXPECT_NEAR(replayed_step(calls, usual) * 1e-6, row_of(spec, usual).step_ms, 1e-9) << spec;
    HardwareProfile changed = usual;
    changed.device = other.device;
    changed.link = other.link;
    changed.handoff.device_to_host_ns *= 3;
    changed.control = {5000, 7000, 0};
    changed.host.dram_gbps /= 2;
    EXPECT_NEAR(replayed_step(calls, changed) * 1e-6, row_of(spec, changed).step_ms, 1e-9) << spec;
    EXPECT_NE(replayed_step(calls, changed), replayed_step(calls, usual)) << spec;
  }
}

TEST(Replay, KnowsWhereTimesDecide) {
  const HardwareProfile hardware = load_profile("fluxion-a100");
  const char* spec = "fluxion:heads=published";
  const SimCalls calls = calls_of(spec, hardware);
  EXPECT_NEAR(replayed_step(calls, hardware) * 1e-6, row_of(spec, hardware).step_ms, 1e-9);
  EXPECT_TRUE(calls.times_decide);
  EXPECT_EQ(row_of(spec, hardware, /*ranges=*/true).step_high_ms, 0) << "another machine would deal the tasks anew";
  for (const char* other : kMethods) EXPECT_FALSE(calls_of(other, hardware).times_decide) << other;
}

TEST(Replay, TakesTheEnginesOwnTimesFromTheProfile) {
  HardwareProfile hardware = load_profile("fluxion-a100");
  hardware.control.layer_ns = 300000;
  hardware.device.layer_ns = 50000;
  const SimCalls calls = calls_of("full", hardware);
  HardwareProfile other = hardware;
  other.control.layer_ns = 900000;
  EXPECT_NEAR(replayed_step(calls, other) * 1e-6, row_of("full", other).step_ms, 1e-9);
  other.control.layer_ns = 1000;
  other.device.layer_ns = 400000;
  EXPECT_NEAR(replayed_step(calls, other) * 1e-6, row_of("full", other).step_ms, 1e-9);
}

TEST(Ranges, HoldTheStepAndNameTheWidest) {
  const HardwareProfile hardware = load_profile("fluxion-a100");
  for (const char* spec : {"full", "full-host", "full-offload"}) {
    const PredictedRow row = row_of(spec, hardware, /*ranges=*/true);
    EXPECT_LT(row.step_low_ms, row.step_ms) << spec;
    EXPECT_GT(row.step_high_ms, row.step_ms) << spec;
    EXPECT_TRUE(hardware.ranges.contains(row.widest_range)) << spec;
  }
  EXPECT_TRUE(row_of("full-host", hardware, true).widest_range.starts_with("host.attention"));
  EXPECT_TRUE(row_of("full-offload", hardware, true).widest_range.starts_with("link.h2d"));
  HardwareProfile exact = hardware;
  exact.ranges.clear();
  EXPECT_EQ(row_of("full", exact, true).step_high_ms, 0);
}

// Quadrature on a log scale is right for one number alone, and for two that multiply.
TimeRange step_range(const SimCalls& calls, const HardwareProfile& hardware) {
  return range_of(hardware, [&](const HardwareProfile& h) { return replayed_step(calls, h); });
}

TEST(Ranges, OneNumberGivesItsOwnEnds) {
  HardwareProfile hardware = load_profile("fluxion-a100");
  const FieldRange range = hardware.ranges.at("host.attention_efficiency");
  const SimCalls calls = calls_of("full-host", hardware);
  const double step = replayed_step(calls, hardware);
  hardware.ranges = {{"host.attention_efficiency", range}};
  const TimeRange alone = step_range(calls, hardware);
  EXPECT_NEAR(alone.high, replayed_step(calls, with_field(hardware, "host.attention_efficiency", range.low)) / step,
              1e-12);
  EXPECT_NEAR(alone.low, replayed_step(calls, with_field(hardware, "host.attention_efficiency", range.high)) / step,
              1e-12);
  EXPECT_EQ(alone.widest, "host.attention_efficiency");
}

HardwareProfile with_ranges(const std::map<std::string, FieldRange>& ranges) {
  HardwareProfile hardware = load_profile("fluxion-a100");
  hardware.host.dram_gbps = hardware.host.stream_gbps_per_thread = 10;
  hardware.ranges = ranges;
  return hardware;
}

TEST(Ranges, TwoLimitsThatAreEquallySlowMoveTogether) {
  const FieldRange range{5, 20, "a test"};
  const HardwareProfile hardware = with_ranges({{"host.dram_gbps", range}, {"host.stream_gbps_per_thread", range}});
  const TimeRange found = range_of(
      hardware, [](const HardwareProfile& h) { return 1 / std::min(h.host.dram_gbps, h.host.stream_gbps_per_thread); });
  EXPECT_NEAR(found.high, std::exp(std::sqrt(2.0) * std::log(2.0)), 1e-9);
  EXPECT_NEAR(found.low, std::exp(-std::log(2.0) / std::sqrt(2.0)), 1e-9);
}

TEST(Ranges, AnEndThatIsNoFasterStaysWhereItIs) {
  const HardwareProfile hardware =
      with_ranges({{"host.dram_gbps", {5, 20, "a test"}}, {"host.stream_gbps_per_thread", {5, 20, "a test"}}});
  const TimeRange found = range_of(hardware, [](const HardwareProfile& h) {  // slower at both ends, and as a rate is
    return std::exp(std::abs(std::log(h.host.dram_gbps / 10))) / h.host.stream_gbps_per_thread;
  });
  EXPECT_NEAR(found.low, 0.5, 1e-9);
  EXPECT_NEAR(found.high, std::exp(std::sqrt(2.0) * std::log(2.0)), 1e-9);
}

TEST(Ranges, AnEndOfNothingIsGoneToEvenly) {
  HardwareProfile hardware = with_ranges({});
  hardware.device.layer_ns = 4000;
  EXPECT_EQ(with_field(hardware, "device.layer_ns", 0, 0.25).device.layer_ns, 3000);
  EXPECT_EQ(with_field(hardware, "device.layer_ns", 0).device.layer_ns, 0);
}

std::string slashed(std::string field) {
  std::ranges::replace(field, '.', '/');
  return field;
}

/// All numbers at once, each between its ends on a log scale, most likely at its own value.
HardwareProfile drawn(const HardwareProfile& hardware, std::mt19937& generator) {
  HardwareProfile out = hardware;
  const nlohmann::json numbers = parse_json(profile_to_json(hardware), "the profile");
  for (const auto& [field, range] : hardware.ranges) {
    const double low = std::log(range.low), high = std::log(range.high);
    const nlohmann::json value = numbers.at(nlohmann::json::json_pointer("/" + slashed(field)));
    const double own = value.is_array() ? 0 : std::log(value.get<double>());  // of a curve: a factor
    const std::array<double, 3> ends = {low, own, high}, weights = {0, 1, 0};
    std::piecewise_linear_distribution<> triangle(ends.begin(), ends.end(), weights.begin());
    out = with_field(std::move(out), field, std::exp(triangle(generator)));
  }
  return out;
}

TEST(Ranges, HoldNineOfTenJointDraws) {
  constexpr int kDraws = 50;  // of each of four methods
  std::mt19937 generator(1);
  for (const std::string& name : profile_names()) {
    const HardwareProfile hardware = load_profile(name);
    int held = 0;
    for (const char* spec : {"full", "full-host", "gpu-fetch", "scoutattention"}) {
      const SimCalls calls = calls_of(spec, hardware);
      const double step = replayed_step(calls, hardware);
      const TimeRange range = step_range(calls, hardware);
      for (int i = 0; i < kDraws; ++i) {
        const double factor = replayed_step(calls, drawn(hardware, generator)) / step;
        held += factor >= range.low && factor <= range.high ? 1 : 0;
      }
    }
    EXPECT_GE(held, 4 * kDraws * 9 / 10) << name;
  }
}

}  // namespace
}  // namespace tandem::eval
