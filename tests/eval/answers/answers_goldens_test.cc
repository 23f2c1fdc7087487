// Answers that published extractors find, and which of them they call equal: answers_goldens.json, made by
// answers_goldens.py. TANDEM_ANSWER_GOLDENS names another file of that form, of any corpus: differences are listed
// then.
#include <cstdlib>
#include <fstream>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "engine/common/paths.h"
#include "eval/answers/math_answer.h"
#include "eval/answers/text_rules.h"

namespace tandem::eval {
namespace {

using Json = nlohmann::json;

class AnswerGoldens : public ::testing::Test {
 protected:
  AnswerGoldens() {
    if (const char* file = std::getenv("TANDEM_ANSWER_GOLDENS")) other_ = file;
    std::ifstream file(other_.empty() ? source_folder() / "tests/eval/answers/answers_goldens.json" : other_);
    goldens_ = Json::parse(file);
  }

  void compare(const Json& of, const Json& expected, const Json& found) {
    ++all_;
    if (expected == found) return;
    ++different_;
    if (other_.empty()) {
      ADD_FAILURE() << of << "\n upstream " << expected << "\n here " << found;
    } else {
      std::cout << "of " << of << "\n  upstream " << expected << "\n  here     " << found << "\n";
    }
  }

  void expect_share(double least) const {
    if (other_.empty()) {
      EXPECT_GT(all_, 20);
    } else if (all_ > 0) {
      const double share = 100.0 * (all_ - different_) / all_;
      std::cout << all_ << " compared, " << different_ << " different: " << share << " % agree\n";
      EXPECT_GE(share, least);
    }
  }

  static Json json_of(const FoundText& found) { return found ? Json(*found) : Json(); }
  static Json json_of(const std::string& found) { return found.empty() ? Json() : Json(found); }

  std::filesystem::path other_;
  Json goldens_;
  int all_ = 0, different_ = 0;
};

TEST_F(AnswerGoldens, NumbersAreThoseOfTheHarness) {
  for (const Json& one : goldens_.at("gsm8k")) {
    const auto text = one.at(0).get<std::string>();
    compare(text, Json({one.at(1), one.at(2), one.at(3)}),
            Json({json_of(strict_match(text)), json_of(cot_strict_match(text)), json_of(flexible_extract(text))}));
  }
  for (const Json& one : goldens_.at("numbers")) {
    compare(one, one.at(2), same_number_text(one.at(0).get<std::string>(), one.at(1).get<std::string>()));
  }
  expect_share(99.5);
}

TEST_F(AnswerGoldens, LettersAreThoseOfSimpleEvals) {
  for (const Json& one : goldens_.at("gpqa")) {
    const auto text = one.at(0).get<std::string>();
    compare(text, Json({one.at(1), one.at(2)}), Json({json_of(answer_line(text)), json_of(answer_sentence(text))}));
  }
  expect_share(99.5);
}

TEST_F(AnswerGoldens, FormulasAreThoseOfMathVerify) {
  for (const Json& one : goldens_.at("math")) {
    const MathAnswer found = find_math_answer(one.at(0).get<std::string>());
    compare(one.at(0), Json({one.at(1), one.at(2), one.at(3)}),
            Json({found.place ? static_cast<int>(*found.place) : -1, json_of(found.text), json_of(found.first)}));
  }
  expect_share(99.5);
}

TEST_F(AnswerGoldens, VerdictsAreThoseOfMathVerify) {
  const auto verdict = [](const Json& pair) {
    return math_answers_equal(math_reference(pair.at(0).get<std::string>()),
                              find_math_answer("\\boxed{" + pair.at(1).get<std::string>() + "}"));
  };
  int equal = 0;
  for (const Json& one : goldens_.at("pairs")) {
    compare(Json({one.at(0), one.at(1)}), one.at(2), verdict(one));
    equal += one.at(2).get<bool>() ? 1 : 0;
  }
  for (const Json& one : goldens_.at("different")) EXPECT_NE(verdict(one), one.at(2).get<bool>()) << one;
  EXPECT_TRUE(equal > 50 || !other_.empty());
  expect_share(99);
}

}  // namespace
}  // namespace tandem::eval
