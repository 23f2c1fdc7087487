// Verdicts on pairs of answers against those of Hendrycks' Python: math_goldens.json, made by math_goldens.py.
#include <cstdlib>
#include <fstream>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "engine/common/paths.h"
#include "eval/scoring/math_answer.h"

namespace tandem::eval {
namespace {

TEST(MathGoldens, VerdictsAreUpstreams) {
  const char* other = std::getenv("TANDEM_MATH_GOLDENS");
  std::ifstream file(other != nullptr ? other : source_folder() / "tests/eval/scoring/math_goldens.json");
  const nlohmann::json cases = nlohmann::json::parse(file).at("cases");
  int equal = 0, beyond = 0;
  for (const nlohmann::json& one : cases) {
    const auto first = one.at(0).get<std::string>(), second = one.at(1).get<std::string>();
    const bool upstream = one.at(2).get<bool>();
    EXPECT_EQ(hendrycks_equal(first, second), upstream) << one;
    equal += upstream ? 1 : 0;
    // Where the whole rule says otherwise: equal numbers, or nothing left of two texts.
    const bool ours = math_equal(first, second);
    EXPECT_EQ(ours, math_equal(second, first)) << one;
    beyond += ours != upstream ? 1 : 0;
    if (ours && !upstream) {
      EXPECT_NE(first.find_first_of("0123456789"), std::string::npos) << one;
    } else if (!ours && upstream) {
      EXPECT_NE(first, second) << one;
    }
  }
  EXPECT_GT(equal, 50);
  EXPECT_LT(equal, static_cast<int>(cases.size()));
  RecordProperty("other_verdicts", beyond);
}

}  // namespace
}  // namespace tandem::eval
