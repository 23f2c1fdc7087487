// The measurement on the simulated device, where every time is exact: rounds repeat to the nanosecond, and the parts
// sum to the whole.
#include "eval/latency/latency.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <numeric>

#include "engine/common/error.h"
#include "engine/common/json.h"
#include "methods/registry.h"
#include "tests/engine/runtime/tiny.h"

namespace tandem::eval {
namespace {

using tandem::testing::random_prompt;
using tandem::testing::tiny_model;

constexpr std::uint32_t kContext = 100;

LatencyOptions small_options() {
  LatencyOptions options;
  options.context = kContext;
  options.steps = 3;
  options.rounds = 2;
  options.engine.kv.device_bytes = options.engine.kv.host_bytes = std::size_t{16} << 20;
  options.engine.prefill_chunk = 64;
  return options;
}

double sum_of_operations(const LatencyRow& result) {
  return std::accumulate(result.operations.begin(), result.operations.end(), 0.0,
                         [](double sum, const OperationTime& o) { return sum + o.ms; });
}

const OperationTime& operation(const LatencyRow& result, const std::string& name) {
  for (const OperationTime& o : result.operations)
    if (o.name == name) return o;
  throw std::runtime_error("no operation " + name);
}

TEST(Latency, DecodeIsTheMeanStepBehindTheContext) {
  const Model model = tiny_model();
  const auto device = tandem::testing::sim();
  ThreadPool pool(1);
  const LatencyRow result = measure_decode(small_options(), model, *device, pool).rows.at(0);
  ASSERT_EQ(result.round_ms.size(), 2u);
  EXPECT_NEAR(result.round_ms[0], result.round_ms[1], 1e-9);

  // The same steps from the engine itself: steps 1 to 3 behind the same number of tokens.
  tandem::testing::Bench bench(tiny_model());
  const auto method = make_method("full");
  const DecodeResult decoded = bench.decode(*method, {random_prompt(kContext + 1, 1)}, 4);
  double expected = 0;
  for (const StepIdle& step : decoded.idle.steps)
    if (step.step != Device::kSetupStep && step.step > 0) expected += double(step.window) * 1e-6 / 3;
  // Teacher forcing alone differs: it brings a log probability to the host with the token.
  EXPECT_NEAR(result.median_ms, expected, expected * 0.01);
  EXPECT_DOUBLE_EQ(result.tokens_per_second.value(), 1e3 / result.median_ms);
  EXPECT_LE(result.min_ms, result.median_ms);
  EXPECT_LE(result.median_ms, result.max_ms);
}

TEST(Latency, OperationsOfTheComputeLaneAndItsIdleTimeFillTheStep) {
  const Model model = tiny_model();
  const auto device = tandem::testing::sim();
  ThreadPool pool(1);
  const LatencyRow result = measure_decode(small_options(), model, *device, pool).rows.at(0);
  const double copies = operation(result, "download tokens").ms;  // on a lane of its own
  EXPECT_NEAR(sum_of_operations(result) - copies + result.compute_lane_idle_ms, result.median_ms, 1e-6);
  EXPECT_GT(result.compute_lane_idle_ms, 0);
  EXPECT_TRUE(std::is_sorted(result.operations.begin(), result.operations.end(),
                             [](const OperationTime& a, const OperationTime& b) { return a.ms > b.ms; }));
  // Attention behind 101 to 103 tokens plus its own: K and V of two layers and two heads of 16 floats.
  const double kv = 2 * 2 * 2 * 16 * 4 * 103, queries = 2 * 2 * 4 * 16 * 4;
  EXPECT_NEAR(operation(result, "device attention").gigabytes * 1e9, kv + queries, 1);
}

TEST(Latency, HostWorkIsNamedToo) {
  const Model model = tiny_model();
  const auto device = tandem::testing::sim();
  ThreadPool pool(1);
  LatencyOptions options = small_options();
  options.methods = {"hybrid-fixed:budget=0.5,window=16,sinks=16"};
  const LatencyRow result = measure_decode(options, model, *device, pool).rows.at(0);
  EXPECT_GT(operation(result, "host attention").ms, 0);
  EXPECT_GT(sum_of_operations(result) + result.compute_lane_idle_ms, 1.01 * result.median_ms) << "lanes overlap";
  EXPECT_THAT(result.method, ::testing::HasSubstr("budget=0.5"));
}

TEST(Latency, PrefillCountsItsTokens) {
  const Model model = tiny_model();
  const auto device = tandem::testing::sim();
  ThreadPool pool(1);
  const LatencyRow result = measure_prefill(small_options(), model, *device, pool).rows.at(0);
  const auto other = tandem::testing::sim();
  Engine engine(model, *other, pool, small_options().engine);  // which keeps no column sums
  const auto prefix = engine.prefill(random_prompt(kContext + 1, 1));
  EXPECT_DOUBLE_EQ(result.median_ms, double(prefix->prefill_ns) * 1e-6);
  EXPECT_DOUBLE_EQ(result.tokens_per_second.value(), 1e3 * kContext / result.median_ms);
  // Two chunks and two layers: the products' FLOPs are those of 100 tokens.
  const double mlp = 2.0 * kContext * 2 * (48 * 64 + 3 * 48 * 80);
  EXPECT_NEAR(operation(result, "output and mlp").gigaflops * 1e9, mlp, 1);
}

TEST(Latency, TokensPerSecondCountEverySequenceOfABatch) {
  const Model model = tiny_model();
  const auto device = tandem::testing::sim();
  ThreadPool pool(1);
  LatencyOptions options = small_options();
  options.batch = 3;
  const Latency result = measure_decode(options, model, *device, pool);
  const LatencyRow& row = result.rows.at(0);
  EXPECT_DOUBLE_EQ(row.tokens_per_second.value(), 3 * 1e3 / row.median_ms);
  // Each has a context of its own: three times the keys, values and queries of one.
  const double kv = 2 * 2 * 2 * 16 * 4 * 103, queries = 2 * 2 * 4 * 16 * 4;
  EXPECT_NEAR(operation(row, "device attention").gigabytes * 1e9, 3 * (kv + queries), 1);
  const auto other = tandem::testing::sim();
  const Latency one = measure_decode(small_options(), model, *other, pool);
  EXPECT_GE(result.memory.kv_bytes[0], 3 * (one.memory.kv_bytes[0] / 2)) << "forks add a page to each";
  EXPECT_THAT(latency_text(result), ::testing::HasSubstr("3 sequences behind 100 tokens each"));
}

TEST(Latency, MethodsTakeTurnsBehindOnePrefill) {
  const Model model = tiny_model();
  const auto device = tandem::testing::sim();
  ThreadPool pool(1);
  LatencyOptions options = small_options();
  options.methods = {"full", "hybrid-fixed:budget=0.5,window=16,sinks=16", "h2o:budget=32"};
  std::vector<std::uint64_t> told;
  options.progress = [&](std::uint64_t done, std::uint64_t total) {
    told.push_back(done);
    EXPECT_EQ(total, 1u + 3 * 3) << "a prefill, and each method's rounds";
  };
  const Latency result = measure_decode(options, model, *device, pool);
  ASSERT_EQ(result.rows.size(), 3u);
  EXPECT_EQ(told.size(), 11u);
  EXPECT_EQ(told.back(), 10u);
  for (std::size_t i = 0; i < 3; ++i) {
    const LatencyRow& row = result.rows[i];
    EXPECT_EQ(row.label, options.methods[i]);
    EXPECT_EQ(row.round_ms.size(), 2u);
    // As alone, where the prefill kept nothing for the others.
    LatencyOptions alone = small_options();
    alone.methods = {options.methods[i]};
    const auto other = tandem::testing::sim();
    const LatencyRow expected = measure_decode(alone, model, *other, pool).rows.at(0);
    EXPECT_NEAR(row.median_ms, expected.median_ms, 1e-3 * expected.median_ms) << row.label;
    EXPECT_EQ(row.method, expected.method);
  }
  const std::string text = latency_text(result);
  EXPECT_THAT(text, ::testing::AllOf(::testing::HasSubstr("speed-up"), ::testing::HasSubstr("hybrid-fixed  "),
                                     ::testing::HasSubstr("hybrid-fixed = hybrid-fixed:budget=0.5,window=16")));
  EXPECT_LE(std::count(text.begin(), text.end(), '\n'), 40);
  const auto json = parse_json(latency_json(result), "JSON");
  ASSERT_EQ(json.at("rows").size(), 3u);
  EXPECT_EQ(json.at("rows")[2].at("operations").size(), result.rows[2].operations.size()) << "all of them";
  EXPECT_DOUBLE_EQ(json.at("rows")[1].at("speed_up"), result.rows[0].median_ms / result.rows[1].median_ms);
}

TEST(Latency, EveryRoundLeavesTheResultSoFar) {
  const Model model = tiny_model();
  const auto device = tandem::testing::sim();
  ThreadPool pool(1);
  LatencyOptions options = small_options();
  options.methods = {"full", "h2o:budget=32"};
  std::vector<Latency> so_far;
  options.after_round = [&](const Latency& now) { so_far.push_back(now); };
  const Latency result = measure_decode(options, model, *device, pool);
  ASSERT_EQ(so_far.size(), 4u);
  ASSERT_EQ(so_far[0].rows.size(), 1u) << "a method that has no round yet has no row";
  EXPECT_EQ(so_far[0].rows[0].label, "full") << "what speed-ups are over comes first";
  EXPECT_GT(operation(so_far[0].rows[0], "device attention").ms, 0);
  EXPECT_EQ(so_far[1].rows.size(), 2u);
  EXPECT_EQ(so_far[1].unfinished, "2 of 4 rounds");
  EXPECT_EQ(parse_json(latency_json(so_far[1]), "JSON").at("unfinished"), "2 of 4 rounds");
  EXPECT_EQ(latency_json(so_far[3]), latency_json(result));
  EXPECT_FALSE(parse_json(latency_json(result), "JSON").contains("unfinished"));
}

TEST(Latency, JsonHoldsEveryRound) {
  const Model model = tiny_model();
  const auto device = tandem::testing::sim();
  ThreadPool pool(1);
  Latency result = measure_decode(small_options(), model, *device, pool);
  result.loading = {.seconds = 1.5, .huge_page_bytes = result.memory.weight_bytes / 2};
  const auto json = parse_json(latency_json(result), "JSON");
  EXPECT_EQ(json.at("what"), "decode");
  EXPECT_EQ(json.at("context"), kContext);
  EXPECT_EQ(json.at("steps"), 3);
  EXPECT_EQ(json.at("batch"), 1);
  const auto& row = json.at("rows").at(0);
  EXPECT_THAT(row.at("method").get<std::string>(), ::testing::StartsWith("full"));
  EXPECT_EQ(row.at("round_ms").get<std::vector<double>>(), result.rows[0].round_ms);
  EXPECT_EQ(row.at("operations").size(), result.rows[0].operations.size());
  EXPECT_THAT(json.at("clock").get<std::string>(), ::testing::HasSubstr("simulated for"));
  EXPECT_EQ(json.at("loading").at("seconds"), 1.5);
  EXPECT_EQ(json.at("memory").at("weight_bytes"), model.weights.bytes());
  // The prefix, and the copy of its last page that a fork writes: two layers, two heads of 16 floats, K and V.
  EXPECT_EQ(json.at("memory").at("device_kv_bytes"), (7 + 1) * 2 * 2 * 2 * 16 * 16 * 4);
  const std::string text = latency_text(result);
  EXPECT_THAT(text, ::testing::HasSubstr("\ncompute lane idle  "));
  EXPECT_THAT(text, ::testing::HasSubstr("\nloading: 1.50 s, 0.000 GB of weights, 50 % in huge pages\nmemory: "));
}

TEST(Latency, WhatDoesNotFitIsASentence) {
  const Model model = tiny_model();  // of 4096 positions
  const auto device = tandem::testing::sim();
  ThreadPool pool(1);
  LatencyOptions options = small_options();
  options.context = 4094;
  EXPECT_THROW(measure_decode(options, model, *device, pool), InputError);
  options = small_options();
  options.engine.kv.device_bytes = 4096;
  EXPECT_THROW(measure_prefill(options, model, *device, pool), InputError);
  options = small_options();
  options.batch = 1000;
  EXPECT_THROW(measure_decode(options, model, *device, pool), InputError);
  options = small_options();
  options.methods = {"full", "full"};
  EXPECT_THROW(measure_decode(options, model, *device, pool), InputError);
  options = small_options();
  options.rounds = 0;
  EXPECT_THROW(measure_prefill(options, model, *device, pool), InputError);
}

}  // namespace
}  // namespace tandem::eval
