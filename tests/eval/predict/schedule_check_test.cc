// A sweep looks for races in every method's schedule, at a small shape.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/device/hazard.h"
#include "eval/predict/prediction.h"
#include "eval/predict/sweep.h"
#include "methods/registry.h"
#include "tests/eval/predict/sweeps.h"

namespace tandem::eval {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string race_of(const SweepOptions& options) {
  try {
    simulate_sweep(load_shape(kShape), a_workload(), options);
  } catch (const HazardError& error) {
    return error.what();
  }
  return "none";
}

TEST(ScheduleCheck, ASweepFindsAMethodsRace) {
  SweepOptions options = a_sweep();
  options.methods = {"full", "racing:waits=yes"};
  EXPECT_EQ(race_of(options), "none");
  options.methods = {"full", "racing"};
  EXPECT_THAT(race_of(options), AllOf(HasSubstr("racing"), HasSubstr("fetch kv"), HasSubstr("device attention")));
  options.batches = {kAsManyAsFit};
  options.most_sequences = 3;
  EXPECT_THAT(race_of(options), HasSubstr("fetch kv"));
}

TEST(ScheduleCheck, APredictionFindsItToo) {
  PredictionOptions options;
  options.methods = {"racing"};
  options.context = 512;
  options.steps = 2;
  EXPECT_THROW(predict(load_shape(kShape), load_profile("h200"), a_workload(), options), HazardError);
  options.checked = false;
  EXPECT_EQ(predict(load_shape(kShape), load_profile("h200"), a_workload(), options).rows[0].refused, "");
}

}  // namespace
}  // namespace tandem::eval
