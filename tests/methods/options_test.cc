#include "methods/options.h"

#include <algorithm>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/common/error.h"
#include "methods/registry.h"

namespace tandem {
namespace {

std::string error_of(const std::string& spec) {
  try {
    make_method(spec);
  } catch (const InputError& e) {
    return e.what();
  }
  return "";
}

TEST(MethodSpec, AListSplitsAtTheRightCommas) {
  EXPECT_EQ(split_method_list("full,hybrid-fixed:budget=0.05,block=32,streaming:window=64,full"),
            (std::vector<std::string>{"full", "hybrid-fixed:budget=0.05,block=32", "streaming:window=64", "full"}));
}

TEST(MethodSpec, TheSpelledOutNameMakesTheSameMethod) {
  for (const MethodInfo& info : method_registry()) {
    // With all KV on the device a budget's other options do nothing, and are not spelled out.
    const bool has_budget =
        std::ranges::any_of(info.options, [](const OptionInfo& option) { return option.name == "device"; });
    const std::string spelled = make_method(info.name + (has_budget ? ":device=0.5" : ""))->spelled_out();
    EXPECT_EQ(make_method(spelled)->spelled_out(), spelled);
    for (const OptionInfo& option : info.options) {
      if (option.name == "device") continue;
      EXPECT_THAT(spelled, ::testing::HasSubstr(option.name + "=" + option.default_value));
      EXPECT_FALSE(option.help.empty());
    }
  }
  EXPECT_EQ(make_method("full:block=16")->spelled_out(), "full");
  EXPECT_EQ(make_method("tova:look_ahead=3")->spelled_out(), "tova:budget=2048,evict=no");
  EXPECT_EQ(make_method("hybrid-fixed:block=64,budget=0.25")->spelled_out(),
            "hybrid-fixed:budget=0.25,block=64,sinks=64,window=256,union=masked,digest=bounds");
}

TEST(MethodSpec, ValuesThatNoContextReachesAreRefused) {
  EXPECT_NE(error_of("quest:budget=4294967295"), "");
  EXPECT_NE(error_of("scoutattention:sinks=2097152K"), "");
  EXPECT_EQ(error_of("quest:budget=1048576K"), "");
  EXPECT_THAT(error_of("infinigen:budget=16"), ::testing::HasSubstr("less than the 32"));
  EXPECT_EQ(error_of("infinigen:budget=16,fetch=token"), "");
}

TEST(MethodSpec, EveryMethodWithABudgetSaysInAWordWhatItCounts) {
  for (const MethodInfo& info : method_registry()) {
    const bool lossless = make_method(info.name)->needs({2, 64, 4, 2, 16}).lossless;
    EXPECT_TRUE(lossless || !info.budget.empty()) << info.name << " says no MethodInfo::budget";
    EXPECT_EQ(info.budget.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-"), std::string::npos) << info.budget;
  }
}

TEST(MethodSpec, MistakesAreSentences) {
  EXPECT_THAT(error_of("hybrid-fxed"), ::testing::HasSubstr("Did you mean 'hybrid-fixed'?"));
  EXPECT_THAT(error_of("hybrid-fixed:bugdet=0.1"), ::testing::HasSubstr("Did you mean 'budget'?"));
  EXPECT_THAT(error_of("full:budget=0.1"), ::testing::HasSubstr("has no option 'budget'"));
  for (const char* budget : {"0", "-0.1", "1.01", "nan", "inf", "x", "0.1x", "5%"}) {
    EXPECT_THAT(error_of(std::string("hybrid-fixed:budget=") + budget), ::testing::HasSubstr("above 0, at most 1"))
        << budget;
  }
  EXPECT_THAT(error_of("hybrid-fixed:block=24"), ::testing::HasSubstr("16|32|64|128"));
  EXPECT_THAT(error_of("hybrid-fixed:block=16,block=32"), ::testing::HasSubstr("given twice"));
  EXPECT_THAT(error_of("hybrid-fixed:block"), ::testing::HasSubstr("is not option=value"));
  EXPECT_THAT(error_of("streaming:window=99999999999999999999"), ::testing::HasSubstr("not allowed"));
  for (const char* layers : {"-1", "1.5", "x"})
    EXPECT_THAT(error_of(std::string("hgca:dense_layers=") + layers), ::testing::HasSubstr("it takes layers"))
        << layers;
  EXPECT_THAT(error_of(""), ::testing::HasSubstr("name is missing"));
}

}  // namespace
}  // namespace tandem
