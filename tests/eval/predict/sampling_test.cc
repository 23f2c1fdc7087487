// Choices drawn for some sequences of a batch: times close to those of all, the same in every run, and their error
// told.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "eval/predict/prediction.h"
#include "eval/predict/row.h"
#include "eval/predict/sweep.h"
#include "methods/registry.h"
#include "tests/eval/predict/sweeps.h"

namespace tandem::eval {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

const std::vector<std::string> kChoosing = {"quest:budget=256",
                                            "gpu-fetch:budget=0.1",
                                            "hybrid-fixed:budget=0.1",
                                            "hgca",
                                            "infinigen",
                                            "scoutattention:budget=512,recall=4",
                                            "fluxion:heads=published"};

PredictionOptions of_batch(std::uint32_t batch) {
  PredictionOptions options;
  options.methods = kChoosing;
  options.batch = batch;
  options.context = 2048;
  options.steps = 16;
  options.checked = false;
  return options;
}

Prediction simulated(const PredictionOptions& options) {
  return predict(load_shape(kShape), load_profile("fluxion-a100"), a_workload(), options);
}

TEST(Sampling, IsWithinTwoPercentOfDrawingAll) {
  PredictionOptions options = of_batch(12);
  const Prediction some = simulated(options);
  options.drawn_sequences = 0;
  const Prediction all = simulated(options);
  for (std::size_t i = 0; i < kChoosing.size(); ++i) {
    const PredictedRow &a = some.rows[i], &b = all.rows[i];
    ASSERT_EQ(b.refused, "") << b.method;
    EXPECT_NEAR(a.step_ms, b.step_ms, 0.02 * b.step_ms) << b.method;
    EXPECT_NEAR(a.idle_ms, b.idle_ms, 0.02 * b.step_ms) << b.method;
    const bool as_one = b.method.starts_with("scout") || b.method == "infinigen";  // a layer's heads together
    EXPECT_EQ(a.drawn_sequences, (as_one ? 4 : 1) * kDrawnSequences) << b.method;
    EXPECT_LT(a.sampling_error, 0.02) << b.method;
    EXPECT_EQ(b.drawn_sequences, 0u) << b.method;
    EXPECT_EQ(b.sampling_error, 0) << b.method;
  }
  EXPECT_GT(some.rows[1].sampling_error, 0);
}

TEST(Sampling, ASmallBatchIsDrawnWhole) {
  PredictionOptions options = of_batch(kDrawnSequences);
  options.steps = 4;
  const std::string some = prediction_json(simulated(options));
  options.drawn_sequences = 0;
  EXPECT_EQ(some, prediction_json(simulated(options)));
}

TEST(Sampling, SequencesOfOneLengthShareDraws) {
  PredictionOptions options = of_batch(11);
  options.methods = {"quest:budget=256"};
  options.steps = 2;
  options.contexts.assign(6, 2048);
  options.contexts.resize(11, 1024);
  EXPECT_EQ(simulated(options).rows[0].drawn_sequences, 2 * kDrawnSequences);
  options.contexts = {2048, 2000, 1900, 1800, 1700, 1600, 1500, 1400, 1300, 1200, 1100};
  EXPECT_EQ(simulated(options).rows[0].drawn_sequences, 0u);
}

TEST(Sampling, DoesNotDependOnThreads) {
  PredictionOptions options = of_batch(6);
  options.steps = 4;
  options.threads = 1;
  const std::string one = prediction_json(simulated(options));
  options.threads = 3;
  EXPECT_EQ(one, prediction_json(simulated(options)));
}

TEST(Sampling, ItsErrorIsToldAndKept) {
  PredictionOptions options = of_batch(6);
  options.methods = {"quest:budget=256"};
  options.steps = 4;
  const Prediction target = simulated(options);
  EXPECT_THAT(prediction_notes(target), Contains(HasSubstr("Choices are drawn for some sequences")));
  EXPECT_THAT(prediction_json(target), HasSubstr("\"sampling_error\": "));
  EXPECT_EQ(prediction_json(parse_prediction(prediction_json(target), "target.json")), prediction_json(target));
  SweepOptions sweep = a_sweep();
  sweep.batches = {6};
  sweep.hardware.resize(1);
  const Sweep some = simulate_sweep(load_shape(kShape), a_workload(), sweep);
  EXPECT_THAT(sweep_text(some, false), HasSubstr("Choices are drawn for some sequences"));
  const SweepFile file = parse_sweep(json_of(some), "sweep.json");
  EXPECT_EQ(sweep_json(file.sweep, file.command, file.program), json_of(some));
  SweepOptions all = sweep;
  all.drawn_sequences = 0;
  EXPECT_THAT(refusal(json_of(some), settings_of(all)), HasSubstr("its drawn_sequences is 2"));
  EXPECT_THAT(sweep_notes(simulate_sweep(load_shape(kShape), a_workload(), all)),
              ::testing::Not(Contains(HasSubstr("Choices are drawn for"))));
}

/// Where nobody looks at accesses, bodies count blocks instead of pages: to the same figures.
TEST(Sampling, CountsAreThoseOfACheckedRun) {
  PredictionOptions options = of_batch(2);
  options.steps = 20;
  for (const std::string& method : default_prediction(kShortContext))
    if (std::find(options.methods.begin(), options.methods.end(), method) == options.methods.end())
      options.methods.push_back(method);
  options.methods.emplace_back("quest:budget=256,block=32");
  options.methods.emplace_back("hybrid-fixed:block=64,budget=0.1");
  options.methods.emplace_back("gpu-fetch:block=64,budget=0.1");
  options.contexts = {2048, 1531};
  for (const char* shape : {kShape, "llama-2-7b"}) {
    const Model model = load_shape(shape);
    const HardwareProfile hardware = load_profile("fluxion-a100");
    PredictionOptions checked = options;
    checked.all_checked = true;
    EXPECT_EQ(prediction_json(predict(model, hardware, a_workload(), options)),
              prediction_json(predict(model, hardware, a_workload(), checked)));
    options.methods.resize(kChoosing.size());
    options.steps = 4;
  }
}

}  // namespace
}  // namespace tandem::eval
