// Predicted steps of two runs: stored by compare, or by this program.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/common/error.h"
#include "eval/gate/gate.h"
#include "tests/eval/gate/fixtures.h"

namespace tandem::eval {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::ThrowsMessage;

const GateShape kSmall{"llama-3.2-1b", "h100", 1, 1024};

Changes with_methods(std::vector<std::string> labels) {
  Changes changes;
  changes.manifest = [labels = std::move(labels)](Manifest& m) {
    m.methods.clear();
    for (const std::string& label : labels) {
      const std::size_t colon = label.find(':');
      MethodEntry& method = m.methods.emplace_back();
      method.label = label;
      method.name = label.substr(0, colon);
      if (colon != std::string::npos) method.options.emplace_back("budget", label.substr(label.find('=') + 1));
    }
  };
  return changes;
}

GatePrediction predicted(const GateShape& shape, const Changes& changes) {
  Manifest manifest;
  changes.manifest(manifest);
  std::vector<PredictedMethod> methods;
  for (const MethodEntry& method : manifest.methods) methods.push_back(as_typed(method));
  return predict_steps(shape, methods, {});
}

class GateOfPredictions : public TwoRuns {
 protected:
  void store(const char* run, const GatePrediction& prediction, const char* name = kPredictionFile) {
    std::filesystem::create_directories(root_ / run);
    write_bytes(root_ / run / name,
                name == kPredictionFile ? gate_prediction_json(prediction) : prediction_json(prediction.target));
  }
  static GateOptions at(const GateShape& shape) {
    GateOptions options;
    options.shape = shape;
    return options;
  }
  /// Runs of full at the small shape, the run's prediction changed.
  Gate judge_changed(const std::function<void(GatePrediction&)>& change) {
    const Changes full = with_methods({"full"});
    GatePrediction prediction = predicted(kSmall, full);
    store("baseline", prediction);
    change(prediction);
    store("run", prediction);
    return gate(full, full, at(kSmall));
  }
};

TEST_F(GateOfPredictions, ABudgetShowsInStepsAtALargeShape) {
  const Changes large = with_methods({"quest:budget=512"}), small = with_methods({"quest:budget=128"});
  const GatePrediction of_large = predicted({}, large), of_small = predicted({}, small);
  for (const bool stored : {false, true}) {
    const auto store_both = [&](const GatePrediction& before, const GatePrediction& now) {
      if (!stored) return;
      store("baseline", before);
      store("run", now);
    };
    store_both(of_large, of_small);
    const Gate faster = gate(small, large, at({}));
    EXPECT_EQ(faster.verdict, Verdict::passed);
    ASSERT_EQ(faster.predictions.size(), 1u);
    EXPECT_EQ(faster.predictions[0].stored, stored);
    EXPECT_LT(faster.methods[0].times.back().change, -kExactMargin);
    store_both(of_small, of_large);
    const Gate slower = gate(large, small, at({}));
    EXPECT_EQ(slower.verdict, Verdict::failed);
    EXPECT_THAT(failures_of(slower),
                ElementsAre(AllOf(HasSubstr("quest:budget=128: predicted step at llama-3.1-8b, 12 x 32K, h100 rose by"),
                                  HasSubstr("the margin is 1 %"))));
    EXPECT_THAT(gate_text(slower, true), HasSubstr("step ms, predicted: llama-3.1-8b, 12 x 32K, h100"));
    EXPECT_THAT(gate_json(slower), HasSubstr("\"shape\": \"llama-3.1-8b, 12 x 32K, h100\""));
    EXPECT_EQ(::testing::Value(slower.notes, Contains(HasSubstr("Neither run has a predicted.json"))), !stored);
  }
  GateOptions wide = at({});
  wide.latency_margin = 0.1;
  EXPECT_EQ(gate(large, small, wide).verdict, Verdict::passed);
  EXPECT_EQ(gate(large, small).verdict, Verdict::passed) << "predicted nowhere";
}

TEST_F(GateOfPredictions, AScheduleThatBecameSlowerFails) {
  const Gate slower = judge_changed([](GatePrediction& p) { p.target.rows[0].step_ms *= 1.02; });
  EXPECT_THAT(failures_of(slower), ElementsAre(HasSubstr("full: predicted step at llama-3.2-1b, 1 x 1K, h100 rose")));
  EXPECT_THAT(failures_of(judge_changed([](GatePrediction& p) { p.target.rows[0].step_ms *= 1.005; })), IsEmpty());
  const Gate refused = judge_changed([](GatePrediction& p) { p.target.rows[0].refused = "It does not fit."; });
  EXPECT_THAT(failures_of(refused), ElementsAre("full: the run has no predicted step at llama-3.2-1b, 1 x 1K, h100, "
                                                "and the baseline has one: It does not fit."));
}

TEST_F(GateOfPredictions, AnotherShapeMachineOrWorkloadIsSaidAndNotCompared) {
  const auto note_of = [&](const std::function<void(GatePrediction&)>& change) {
    const Gate result = judge_changed(change);
    EXPECT_EQ(result.verdict, Verdict::passed);
    EXPECT_THAT(result.predictions, IsEmpty());
    return result.notes.empty() ? "" : result.notes.front();
  };
  const auto slower = [](GatePrediction& p) { p.target.rows[0].step_ms *= 2; };
  EXPECT_THAT(note_of([&](GatePrediction& p) { slower(p), p.target.batch = 2; }),
              HasSubstr("not compared, since the batch is 1 in the baseline and 2 in the run"));
  EXPECT_THAT(note_of([&](GatePrediction& p) { slower(p), p.target.hardware = "h200"; }),
              HasSubstr("the machine is h100 in the baseline and h200 in the run"));
  EXPECT_THAT(note_of([&](GatePrediction& p) { slower(p), p.hardware_hash = "0"; }),
              HasSubstr("the hash of the machine's profile"));
  EXPECT_THAT(note_of([&](GatePrediction& p) { slower(p), p.target.workload.layers[0][0].concentration += 1; }),
              AllOf(HasSubstr("the workload, "), HasSubstr("has other figures")));
  const Changes full = with_methods({"full"});
  std::filesystem::remove(root_ / "run" / kPredictionFile);
  EXPECT_THAT(gate(full, full, at(kSmall)).notes, ElementsAre(HasSubstr("The run has no predicted.json.")));
  store("run", predicted(kSmall, full));
  EXPECT_THAT(gate(full, full, at({})).notes, ElementsAre(HasSubstr("stored steps at llama-3.2-1b, 1 x 1K, h100.")));
}

TEST_F(GateOfPredictions, AMethodThatIsRefusedThereIsSaid) {
  const Changes both = with_methods({"full", "quest:budget=512"});
  GatePrediction prediction = predicted(kSmall, both);
  prediction.target.rows[1].refused = "It does not fit.";
  store("baseline", prediction);
  store("run", prediction);
  const Gate result = gate(both, both, at(kSmall));
  EXPECT_EQ(result.verdict, Verdict::passed);
  EXPECT_THAT(result.notes, ElementsAre("quest:budget=512 has no predicted step at llama-3.2-1b, 1 x 1K, h100: It does "
                                        "not fit."));
  EXPECT_THAT(gate(with_methods({"full", "quest:budget=x"}), both, at({"llama-3.2-1b", "h200", 1, 1024})).notes,
              Contains(HasSubstr("stored steps at")));
}

TEST_F(GateOfPredictions, StepsOfCompareAsAreComparedToo) {
  const Changes full = with_methods({"full"});
  GatePrediction prediction = predicted(kSmall, full);
  store("baseline", prediction, "target.json");
  EXPECT_THAT(gate(full, full).notes, ElementsAre(HasSubstr("Only the baseline has a target.json")));
  prediction.target.rows[0].step_ms *= 2;
  store("run", prediction, "target.json");
  EXPECT_THAT(failures_of(gate(full, full)), ElementsAre(HasSubstr("rose by +100.0 %")));
  prediction.target.context = 2048;
  store("run", prediction, "target.json");
  EXPECT_THAT(gate(full, full).notes, ElementsAre(HasSubstr("target.json (--as) were not compared: the context is")));
}

TEST_F(GateOfPredictions, WhatWasTrainedForTheEmbeddedModelGivesWay) {
  MethodEntry fluxion{"fluxion:heads=embedded", "fluxion", {{"heads", "embedded"}, {"line", "cover"}}, ""};
  EXPECT_EQ(as_typed(fluxion).spec, "fluxion:heads=published");
  EXPECT_EQ(spelled_out(fluxion).spec, "fluxion:heads=published,line=cover");
  const MethodEntry unknown{"mine:x=1", "mine", {{"x", "1"}}, ""};
  EXPECT_EQ(as_typed(unknown).spec, "mine:x=1");
  const GatePrediction prediction = predict_steps(kSmall, {as_typed(unknown), as_typed(fluxion)}, {});
  EXPECT_THAT(prediction.row_of("mine:x=1")->refused, HasSubstr("There is no method 'mine'"));
  EXPECT_THAT(prediction.row_of("fluxion:heads=embedded")->refused, IsEmpty());
  EXPECT_EQ(prediction.row_of("full"), nullptr);
}

TEST_F(GateOfPredictions, ADamagedFileIsNamed) {
  write_bytes(root_ / kPredictionFile, "{\"schema_version\": 2}");
  EXPECT_THAT([&] { stored_prediction(root_.path()); },
              ThrowsMessage<InputError>(AllOf(HasSubstr("predicted.json"), HasSubstr("schema_version"))));
  const Changes full = with_methods({"full"});
  store(".", predicted(kSmall, full));
  EXPECT_EQ(gate_prediction_json(*stored_prediction(root_.path())), gate_prediction_json(predicted(kSmall, full)));
}

}  // namespace
}  // namespace tandem::eval
