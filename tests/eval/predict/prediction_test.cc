// Predictions at a shape: where costs do not depend on data, simulating shapes gives the real run's nanoseconds.
#include "eval/predict/prediction.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <numeric>

#include "engine/common/error.h"
#include "eval/predict/record.h"
#include "methods/registry.h"
#include "tests/engine/runtime/tiny.h"

namespace tandem::eval {
namespace {

using tandem::testing::Bench;
using tandem::testing::random_prompt;
using tandem::testing::tiny_model;
using tandem::testing::tiny_model_for;

Workload some_workload() {
  return {"test", "made up", {{{2, 0.5, 0.9}}}};
}

Model tiny_shape(const std::string& method = "") {
  Model model = tiny_model_for(method);
  model.weights = shape_weights(model.config, DType::f32);
  return model;
}

TEST(Shapes, TakeTheRealRunsTimeWhereDataDoesNotMatter) {
  const std::vector<std::vector<std::int32_t>> prompts = {random_prompt(401, 1), random_prompt(133, 2)};
  for (const char* spec :
       {"full", "streaming:sinks=16,window=64", "quest:budget=64", "h2o:budget=64",
        "gpu-fetch:budget=1,window=32,sinks=16", "full-offload", "full-host",
        "full:device=0.6,evict=lru,block=16,look_ahead=0", "hybrid-fixed:budget=1,window=32,sinks=16",
        "hgca:beta=0,device_kv=64,block=16", "scoutattention", "infinigen:budget=1,alpha=1e9,dense_layers=0",
        "infinigen:budget=1,alpha=1e9,dense_layers=1", "infinigen", "hisparse"}) {
    Bench real(tiny_model_for(spec));
    const auto method = make_method(spec);
    std::vector<std::vector<std::int32_t>> forced;
    for (const DecodedSequence& s : real.decode(*method, prompts, 40).sequences) forced.push_back(s.tokens);
    const DecodeResult expected = real.decode(*method, prompts, 40, {.forced = forced});
    EngineOptions options;
    // Nearly even weights, as the tiny model has: infinigen fetches all that its budget allows.
    options.workload = std::make_shared<const Workload>(Workload{"test", "made up", {{{0.5, 0.5, 0.9}}}});
    Bench shapes(tiny_shape(spec), make_sim_device(load_profile("fluxion-a100"), {.shapes_only = true}), options);
    const DecodeResult actual = shapes.decode(*method, prompts, 40, {.forced = forced});
    ASSERT_EQ(actual.idle.steps.size(), expected.idle.steps.size());
    for (std::size_t i = 0; i < expected.idle.steps.size(); ++i) {
      const StepIdle &a = actual.idle.steps[i], &b = expected.idle.steps[i];
      EXPECT_EQ(a.window, b.window) << spec << " step " << i;
      EXPECT_EQ(a.by_cause, b.by_cause) << spec;
      EXPECT_EQ(a.cost, b.cost) << spec;
    }
    for (std::size_t i = 0; i < prompts.size(); ++i) {
      for (int side = 0; side < 2; ++side) {
        EXPECT_EQ(actual.sequences[i].attended[side], expected.sequences[i].attended[side]) << spec;
        EXPECT_EQ(actual.sequences[i].peak_kv_bytes[side], expected.sequences[i].peak_kv_bytes[side]) << spec;
      }
    }
  }
}

PredictionOptions small_options(std::vector<std::string> methods) {
  PredictionOptions options;
  options.methods = std::move(methods);
  options.batch = 2;
  options.context = 2048;
  options.steps = 40;
  return options;
}

TEST(Prediction, APublishedShapeInSeconds) {
  const Model shape = load_shape("llama-3.2-1b");
  const HardwareProfile hardware = load_profile("fluxion-a100");
  const PredictionOptions options =
      small_options({"full", "hybrid-fixed:window=64,sinks=16", "hgca", "scoutattention:budget=512,recall=4"});
  const Prediction target = predict(shape, hardware, some_workload(), options);
  ASSERT_EQ(target.rows.size(), 4u);
  for (const PredictedRow& row : target.rows) {
    EXPECT_EQ(row.refused, "");
    EXPECT_NEAR(row.busy_ms + row.idle_ms, row.step_ms, 1e-9);
    EXPECT_NEAR(std::accumulate(row.idle_ms_by_cause.begin(), row.idle_ms_by_cause.end(), 0.0), row.idle_ms, 1e-9);
  }
  // A roofline: weights and KV of two sequences read once per step.
  const double bytes = double(shape.weights.bytes()) + 2 * 2068.0 * 2 * 8 * 64 * 16 * 2;
  EXPECT_GT(target.rows[0].step_ms, 1e3 * bytes / 1.935e12);
  EXPECT_LT(target.rows[0].step_ms, 2e3 * bytes / 1.935e12);
  EXPECT_GT(target.rows[1].idle_ms, target.rows[0].idle_ms);
  EXPECT_EQ(target.rows[0].attended_host, 0);
  EXPECT_NEAR(target.rows[2].attended_device, 0.25 * 2088, 32);
  EXPECT_NEAR(target.rows[3].attended_device, 512, 32);
  EXPECT_GT(target.rows[3].attended_host, 16);
  EXPECT_LT(target.rows[3].attended_host, 256);
  EXPECT_EQ(prediction_json(target), prediction_json(predict(shape, hardware, some_workload(), options)));
  const Prediction again = parse_prediction(prediction_json(target), "target.json");
  EXPECT_EQ(prediction_json(again), prediction_json(target));
  EXPECT_EQ(prediction_table(again).markdown(), prediction_table(target).markdown());
  const std::string text = prediction_text(target, true);
  EXPECT_THAT(text, ::testing::HasSubstr("simulated: llama-3.2-1b, batch 2 x 2K, A100-80G PCIe 4"));
  EXPECT_THAT(text, ::testing::HasSubstr("workload test (made up)"));
}

// Half of the KV stays, the rest comes back while other layers compute: a step takes as long as the longer of the two.
TEST(Prediction, ADeviceBudgetOverlapsComputeAndTransfer) {
  for (const char* machine : {"fluxion-a100", "gh200"}) {
    PredictionOptions options = small_options({"full:device=0.5"});
    options.batch = 1;
    options.context = 16384;
    options.steps = 12;
    double transfer_ms = 0, windows = 0;
    options.look = [&](const DecodeResult& result) {
      std::int64_t first = 0;  // end of the first step
      for (const StepIdle& step : result.idle.steps) {
        if (step.step == 0) first = step.end;
        if (step.step > 0 && step.step != Device::kSetupStep) windows += 1;
      }
      for (const TraceRecord& record : result.trace.records)
        if (std::string_view(record.name) == "restore kv" && record.start >= first)
          transfer_ms += double(record.end - record.start) * 1e-6;
    };
    const Prediction target = predict(load_shape("llama-3.2-1b"), load_profile(machine), some_workload(), options);
    ASSERT_EQ(target.rows[0].refused, "");
    ASSERT_GT(windows, 0);
    transfer_ms /= windows;
    ASSERT_GT(transfer_ms, 0);
    EXPECT_LE(target.rows[0].step_ms, 1.02 * std::max(target.rows[0].busy_ms, transfer_ms))
        << machine << ": compute " << target.rows[0].busy_ms << ", transfer " << transfer_ms << " ms";
    // There is room for 8 of 16 layers; one of the 8 is kept for the layer on its way. The device waits for copies only
    // where the link takes longer than its own work.
    const PredictedRow& row = target.rows[0];
    const double all = 16384.0 * 16 * 2 * 8 * 64 * 2;  // tokens, layers, K and V, KV heads, D, bf16
    EXPECT_NEAR(row.looked_up_bytes / all, 1, 0.01);
    EXPECT_NEAR(row.missed_bytes / all, 9.0 / 16, 0.01);
    EXPECT_NEAR(row.bringing_ms, transfer_ms, 0.05 * transfer_ms);
    if (transfer_ms < row.busy_ms) {
      EXPECT_LT(row.late_bytes, 0.1 * row.missed_bytes) << machine;
    }
    EXPECT_LE(row.waited_ms, row.idle_ms);
  }
}

// Steps that choose alike: who keeps what was chosen last brings little; a scan's order is the wrong one for it.
TEST(Prediction, PoliciesUnderABudgetDiffer) {
  PredictionOptions options = small_options({"quest:budget=512,group_reduce=layer,device=0.25,evict=fixed",
                                             "quest:budget=512,group_reduce=layer,device=0.25,evict=lru",
                                             "quest:budget=512,group_reduce=layer,device=0.25,evict=lru-topk",
                                             "quest:budget=512,group_reduce=layer,device=0.25,evict=attention",
                                             "full:device=0.25,evict=lru", "full:device=0.25"});
  options.batch = 1;
  options.context = 4096;
  options.steps = 16;
  const Prediction all = predict(load_shape("llama-3.2-1b"), load_profile("fluxion-a100"), some_workload(), options);
  std::vector<double> missed;
  for (const PredictedRow& row : all.rows) {
    ASSERT_EQ(row.refused, "");
    ASSERT_GT(row.looked_up_bytes, 0);
    missed.push_back(row.missed_bytes / row.looked_up_bytes);
  }
  EXPECT_LT(missed[2], missed[0]);
  EXPECT_LE(missed[2], missed[1]);
  EXPECT_LT(missed[2], 0.5);
  EXPECT_GT(missed[4], 0.99);
  EXPECT_NEAR(missed[5], 13.0 / 16, 0.03);  // room for 4 of 16 layers, one of it for the layer on its way
}

TEST(Prediction, SaysWhichBudgetsAreNone) {
  const auto notes = [&](const char* method) {
    return prediction_notes(predict(load_shape("llama-3.2-1b"), load_profile("fluxion-a100"), some_workload(),
                                    small_options({"full", method})));
  };
  EXPECT_THAT(notes("quest:budget=2112"),
              ::testing::Contains(::testing::StartsWith("Attends everything at 2K: quest:budget=2112. ")));
  EXPECT_THAT(notes("quest:budget=1024"), ::testing::Not(::testing::Contains(::testing::StartsWith("Attends every"))));
}

TEST(Prediction, AMethodsFirstTokenDoesNotDependOnTheOthersOfTheList) {
  const Model shape = load_shape("llama-3.2-1b");
  const HardwareProfile hardware = load_profile("fluxion-a100");
  const Prediction alone = predict(shape, hardware, some_workload(), small_options({"full"}));
  const Prediction beside = predict(shape, hardware, some_workload(), small_options({"full", "h2o"}));
  const Prediction other = predict(shape, hardware, some_workload(), small_options({"h2o"}));
  EXPECT_EQ(beside.rows[0].prefill_ms, alone.rows[0].prefill_ms);
  EXPECT_EQ(beside.rows[0].setup_ms, alone.rows[0].setup_ms);
  EXPECT_EQ(beside.rows[0].first_step_ms, alone.rows[0].first_step_ms);
  EXPECT_EQ(beside.rows[1].prefill_ms, other.rows[0].prefill_ms);
  EXPECT_GT(beside.rows[1].prefill_ms, beside.rows[0].prefill_ms);
}

// A task of Fluxion's is one KV head's, an operation of hybrid-fixed all of them: with the same blocks and budget both
// have work for all threads, whatever the size of a block.
TEST(Prediction, FluxionsTasksKeepAllThreadsBusy) {
  const Model shape = load_shape("llama-3.2-1b");
  PredictionOptions options;
  options.batch = 1;
  options.context = 32768;
  options.steps = 2;
  options.methods = {"hybrid-fixed:block=128,budget=0.02", "fluxion:bgt=0.02,slope=0,stage=dynamic,policy=cpu-only",
                     "hybrid-fixed:block=16,budget=0.02", "fluxion:bgt=0.02,slope=0,stage=fixed16,policy=cpu-only"};
  HardwareProfile hardware = load_profile("fluxion-a100");
  hardware.link.h2d_curve = hardware.link.d2h_curve = {{512, 10.0}, {1048576, 25.0}};  // a task's messages cost little
  hardware.device.attention_ns = hardware.device.product_ns = 0;  // and the device less than the host
  const Prediction target = predict(shape, hardware, some_workload(), options);
  ASSERT_EQ(target.rows.size(), 4u);
  for (const std::size_t i : {0u, 2u}) {
    EXPECT_EQ(target.rows[i].refused, "");
    EXPECT_NEAR(target.rows[i].attended_host, target.rows[i + 1].attended_host, 1e-6);
    // Choosing the best is one thread's work per query head: four lists at a time in a task, 32 in hybrid-fixed's
    // operation, which shows where blocks are many.
    EXPECT_NEAR(target.rows[i + 1].step_ms, target.rows[i].step_ms, (i == 0 ? 0.08 : 0.2) * target.rows[i].step_ms);
  }
}

TEST(Prediction, WhatDoesNotFitSaysSo) {
  HardwareProfile hardware = load_profile("fluxion-a100");
  const Model shape = load_shape("llama-3.2-1b");
  PredictionOptions options = small_options({"full", "hgca:device_kv=0.05"});
  options.batch = 8;
  options.context = 8000;
  hardware.device.memory_gb = 3.2;
  const Prediction target = predict(shape, hardware, some_workload(), options);
  EXPECT_THAT(target.rows[0].refused, ::testing::HasSubstr("GB of device memory"));
  EXPECT_EQ(target.rows[0].step_ms, 0);
  EXPECT_EQ(target.rows[1].refused, "");  // a batch that was never on the device at once
  EXPECT_THAT(prediction_text(target, false), ::testing::HasSubstr("does not fit"));
  hardware.device.memory_gb = 2;
  EXPECT_THROW(predict(shape, hardware, some_workload(), options), InputError);
  hardware.device.memory_gb = 80;
  options.context = 131072;
  EXPECT_THROW(predict(shape, hardware, some_workload(), options), InputError);
  EXPECT_THROW(load_shape("llama-3.2-2b"), InputError);
}

// What a cache rank holds elsewhere is counted, by hand: pages, choice and W + 1 queries; and it has to fit there.
TEST(Prediction, ThePeersMemoryIsCountedAndLimited) {
  HardwareProfile hardware = load_profile("asyncspade-a100");
  const Model shape = load_shape("llama-3.2-1b");
  PredictionOptions options = small_options({"full", "asyncspade:budget=512,place=peer"});
  options.batch = 16;
  options.context = 8192;
  options.steps = 24;
  const Prediction fits = predict(shape, hardware, some_workload(), options);
  EXPECT_EQ(fits.rows[1].refused, "");
  EXPECT_EQ(fits.rows[0].peer_kv_bytes, 0u);
  const std::size_t bytes = std::size_t{16} * 16 * ((8192 + 16 + 512) * 2 * 8 * 64 * 2 + 17 * 32 * 64 * 4);
  EXPECT_EQ(fits.rows[1].peer_kv_bytes, bytes);
  EXPECT_THAT(prediction_text(fits, true), ::testing::HasSubstr("KV GB, peer"));
  EXPECT_THAT(prediction_json(fits), ::testing::HasSubstr("\"peer_kv_bytes\": " + std::to_string(bytes)));
  hardware.device.memory_gb = double(bytes) * 1e-9 / 0.95 - 0.001;
  options.methods = {"asyncspade:budget=512,place=peer"};
  const Prediction full = predict(shape, hardware, some_workload(), options);
  EXPECT_THAT(full.rows[0].refused, ::testing::HasSubstr("its cache rank holds 4.6 GB"));
  EXPECT_THAT(prediction_text(full, false), ::testing::HasSubstr("does not fit"));
  hardware.device.memory_gb += 0.002;
  EXPECT_EQ(predict(shape, hardware, some_workload(), options).rows[0].refused, "");
}

// Look-ups are known by hand: all that is chosen except the newest block.
TEST(Prediction, ABuffersHitRateIsThereWhereAMethodHasOne) {
  PredictionOptions options = small_options({"full", "hisparse:budget=512"});
  options.context = 4096;
  options.steps = 12;
  const Prediction both = predict(load_shape("llama-3.2-1b"), load_profile("fluxion-a100"), some_workload(), options);
  ASSERT_EQ(both.rows[1].refused, "");
  EXPECT_EQ(both.rows[0].looked_up_bytes, 0);
  const double chosen = 496.0 * 16 * 2 * 8 * 64 * 2;  // tokens, layers, K and V, KV heads, D, bf16
  EXPECT_EQ(both.rows[1].looked_up_bytes, chosen);
  EXPECT_GT(both.rows[1].missed_bytes, 0);
  EXPECT_LT(both.rows[1].missed_bytes, chosen);
  EXPECT_THAT(prediction_text(both, true), ::testing::HasSubstr("hit rate %"));
  EXPECT_EQ(parse_prediction(prediction_json(both), "target.json").rows[1].missed_bytes, both.rows[1].missed_bytes);
  options.methods = {"full"};
  const Prediction full = predict(load_shape("llama-3.2-1b"), load_profile("fluxion-a100"), some_workload(), options);
  EXPECT_THAT(prediction_text(full, true), ::testing::Not(::testing::HasSubstr("hit rate")));
  EXPECT_THAT(prediction_json(full), ::testing::Not(::testing::HasSubstr("missed_bytes")));
}

TEST(Prediction, AMethodThatRefusesTheShapeIsARow) {
  const Prediction target = predict(load_shape("llama-3.2-1b"), load_profile("fluxion-a100"), some_workload(),
                                    small_options({"full", "fluxion:heads=embedded", "fluxion"}));
  ASSERT_EQ(target.rows.size(), 3u);
  EXPECT_EQ(target.rows[0].refused, "");
  EXPECT_THAT(target.rows[1].refused, ::testing::HasSubstr("heads=fixed"));
  EXPECT_EQ(target.rows[1].step_ms, 0);
  EXPECT_EQ(target.rows[2].refused, "");
}

TEST(Record, GivesFiguresInRangeThatDoNotDependOnThreads) {
  std::vector<HeadPrompt> prompts(2);
  prompts[0].tokens = random_prompt(400, 3);
  prompts[1].tokens = random_prompt(300, 4);
  std::string first;
  for (const unsigned threads : {1u, 3u}) {
    Bench bench(tiny_model(), tandem::testing::sim(), {}, threads);
    const Workload workload = record_workload(bench.model, bench.engine, bench.pool, prompts);
    ASSERT_EQ(workload.layers.size(), 2u);
    ASSERT_EQ(workload.layers[0].size(), 4u);
    const std::string json = workload_to_json(workload);
    EXPECT_EQ(workload_to_json(parse_workload(json, "w")), json) << "in range";
    if (first.empty()) first = json;
    EXPECT_EQ(json, first);
  }
}

}  // namespace
}  // namespace tandem::eval
