// Verdicts on pairs of answers against those of Hendrycks' Python: math_goldens.json, made by math_goldens.py.
#include <cctype>
#include <cstdlib>
#include <fstream>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "engine/common/paths.h"
#include "eval/scoring/math_answer.h"

namespace tandem::eval {
namespace {

/// Letters that are no command's that only formats.
std::string said_in(std::string text) {
  for (const std::string dropped : {"\\text", "\\mbox", "\\left", "\\right"})
    for (std::size_t at = 0; (at = text.find(dropped)) != std::string::npos;) text.erase(at, dropped.size());
  std::erase_if(text, [](char c) { return std::isalpha(static_cast<unsigned char>(c)) == 0; });
  return text;
}

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
    // Where the whole rule says otherwise: equal numbers or what only looks differently, or nothing left of two texts.
    const bool ours = math_equal(first, second);
    EXPECT_EQ(ours, math_equal(second, first)) << one;
    beyond += ours != upstream ? 1 : 0;
    if (ours && !upstream) {
      const bool has_number = first.find_first_of("0123456789") != std::string::npos;
      EXPECT_TRUE(has_number || said_in(first) == said_in(second)) << one;
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
