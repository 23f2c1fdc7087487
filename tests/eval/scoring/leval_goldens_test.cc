// Scores against those of L-Eval's Python: leval_goldens.json, made by leval_goldens.py.
#include <cstdlib>
#include <fstream>
#include <gtest/gtest.h>
#include <map>
#include <nlohmann/json.hpp>

#include "engine/common/paths.h"
#include "eval/scoring/leval.h"
#include "eval/scoring/rouge.h"
#include "eval/scoring/token_f1.h"

namespace tandem::eval {
namespace {

TEST(LEvalGoldens, AllScoresAreUpstreams) {
  const char* other = std::getenv("TANDEM_LEVAL_GOLDENS");
  std::ifstream file(other != nullptr ? other : source_folder() / "tests/eval/scoring/leval_goldens.json");
  const nlohmann::json cases = nlohmann::json::parse(file).at("cases");
  const std::map<std::string, LEvalKind> exams = {{"choice", LEvalKind::choice},
                                                  {"choices", LEvalKind::choices},
                                                  {"number", LEvalKind::number},
                                                  {"contains", LEvalKind::contains},
                                                  {"code", LEvalKind::code}};
  std::map<std::string, int> seen;
  for (const nlohmann::json& one : cases) {
    const auto kind = one.at("kind").get<std::string>();
    const auto prediction = one.at("prediction").get<std::string>(), answer = one.at("answer").get<std::string>();
    const std::string what = one.dump();
    ++seen[kind];
    if (kind == "rouge") {
      const Rouge scores = rouge(answer, prediction);
      EXPECT_DOUBLE_EQ(scores.rouge1, one.at("score")[0].get<double>()) << what;
      EXPECT_DOUBLE_EQ(scores.rouge2, one.at("score")[1].get<double>()) << what;
      EXPECT_DOUBLE_EQ(scores.rouge_l, one.at("score")[2].get<double>()) << what;
    } else if (kind == "f1") {
      EXPECT_DOUBLE_EQ(qa_f1(prediction, answer), one.at("score").get<double>()) << what;
    } else {
      EXPECT_EQ(leval_exam(exams.at(kind), prediction, answer), one.at("score").get<double>()) << what;
    }
  }
  EXPECT_EQ(seen.size(), 7u);
}

}  // namespace
}  // namespace tandem::eval
