// What is compared when nothing is asked for.
#include "methods/registry.h"

#include <gtest/gtest.h>
#include <set>

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

// A method that attends everything there would be `full` under another name: give its MethodInfo::at_short_contexts.
TEST(DefaultComparison, WhatIsNotLosslessLeavesSomethingOutAtAThousandTokens) {
  Bench bench(tiny_model());
  const std::vector<std::int32_t> prompt = random_prompt(960, 3);
  for (const std::string& spec : default_comparison(false)) {
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

}  // namespace
}  // namespace tandem::testing
