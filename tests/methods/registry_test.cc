// What is compared when nothing is asked for.
#include "methods/registry.h"

#include <algorithm>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <set>

#include "engine/common/error.h"
#include "tests/engine/runtime/tiny.h"

namespace tandem::testing {
namespace {

TEST(DefaultComparison, HasEveryMethodOnceAndFullFirst) {
  for (const bool embedded : {false, true}) {
    const std::vector<std::string> specs = default_comparison(embedded);
    ASSERT_EQ(specs.size(), method_registry().size());
    EXPECT_EQ(specs.front(), "full");
    std::set<std::string> names;
    for (const std::string& spec : specs) {
      names.insert(parse_method_spec(spec).name);
      EXPECT_NO_THROW(make_method(spec)) << spec;
    }
    for (const MethodInfo& info : method_registry()) EXPECT_EQ(names.count(info.name), 1u) << info.name;
  }
}

TEST(CheckedMethod, WhatAFolderSaysIsAMethodThatCanBeMade) {
  const MethodInfo sound = find_method("streaming");
  EXPECT_EQ(checked_method("streaming", sound).name, "streaming");
  const auto refusal = [](const std::string& folder, const MethodInfo& info) {
    try {
      checked_method(folder, info);
    } catch (const InputError& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  EXPECT_THAT(refusal("tail", sound), ::testing::HasSubstr("the folder 'tail' is named 'streaming'"));
  MethodInfo other = sound;
  other.make = nullptr;
  EXPECT_THAT(refusal("streaming", other), ::testing::HasSubstr("MethodInfo::make of the method 'streaming'"));
  other = sound;
  other.summary = "";
  EXPECT_THAT(refusal("streaming", other), ::testing::HasSubstr("no summary"));
}

// A method that attends everything there would be `full` under another name: give its MethodInfo::at_short_contexts.
void expect_something_left_out(Bench& bench, const std::vector<std::string>& specs) {
  const std::vector<std::int32_t> prompt = random_prompt(960, 3);
  for (const std::string& spec : specs) {
    const auto method = make_method(spec);
    const DecodedSequence out = bench.decode(*method, {prompt}, 2).sequences.front();
    const std::uint64_t everything = 960 + 961, attended = out.attended[0] + out.attended[1];
    if (method->needs(bench.engine.shape()).lossless) {
      EXPECT_EQ(attended, everything) << spec;
    } else {
      EXPECT_LT(attended, everything) << spec;
    }
  }
}

TEST(DefaultPrediction, HasPublishedBudgetsAtLongContextsAndNoPredictorOfAnotherModel) {
  for (const bool at_short : {false, true}) {
    const std::vector<std::string> specs = default_prediction(at_short ? 2048 : 2049),
                                   compared = default_comparison(false);
    ASSERT_EQ(specs.size(), compared.size());
    for (std::size_t i = 0; i < specs.size(); ++i) {
      if (compared[i] == "fluxion") {
        EXPECT_EQ(specs[i], "fluxion:heads=published");
      } else {
        EXPECT_EQ(specs[i], at_short ? compared[i] : parse_method_spec(compared[i]).name);
      }
    }
  }
}

TEST(HintForEmbedded, NamesWhatWasTrainedForIt) {
  for (const std::string& spec : default_comparison(true)) EXPECT_EQ(hint_for_embedded(spec), "") << spec;
  EXPECT_THAT(hint_for_embedded("fluxion:tau=0.1"), ::testing::HasSubstr("'fluxion:heads=embedded'"));
  EXPECT_EQ(hint_for_embedded("fluxion:heads=fixed"), "");
  EXPECT_THROW(hint_for_embedded("fluxoin"), InputError);
}

TEST(DefaultComparison, WhatIsNotLosslessLeavesSomethingOutAtAThousandTokens) {
  Bench bench(tiny_model(true, 5));
  expect_something_left_out(bench, default_comparison(false));
}

/// What the embedded model has in place of the others' options.
TEST(DefaultComparison, AndSoItIsOnTheEmbeddedModel) {
  const std::vector<std::string> others = default_comparison(false);
  std::vector<std::string> own;
  for (const std::string& spec : default_comparison(true))
    if (std::find(others.begin(), others.end(), spec) == others.end()) own.push_back(spec);
  EXPECT_FALSE(own.empty());
  Bench bench(load_model("embedded"));
  expect_something_left_out(bench, own);
}

}  // namespace
}  // namespace tandem::testing
