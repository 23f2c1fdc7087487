#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "engine/common/json.h"
#include "eval/reasoning/reasoning.h"
#include "eval/report/manifest_difference.h"
#include "eval/report/table.h"
#include "tests/eval/reasoning/reasoning_folder.h"
#include "tests/eval/report/fixtures.h"

namespace tandem::eval {
namespace {

SampleResult answer_of(const std::string& method, std::uint32_t index, std::size_t tokens, double score,
                       const std::string& said) {
  SampleResult answer;
  answer.benchmark = "reasoning";
  answer.task = "aime24";
  answer.index = index;
  answer.method = method;
  answer.prompt_tokens = 10;
  answer.tokens.assign(tokens, 1);
  answer.prediction = said;
  answer.answers = {"2"};
  answer.score = score;
  if (!said.empty()) answer.rule = "math-verify boxed";
  answer.by_rule = {{"math-verify", said == "\\boxed{2}" ? 1 : 0}};
  return answer;
}

TEST(ReasoningReport, FiguresByHand) {
  const std::vector<SampleResult> answers = {answer_of("full", 0, 4, 0, "\\boxed{2}"),  // cut
                                             answer_of("full", 1, 2, 1, "\\boxed{2}"), answer_of("full", 2, 0, 0, "")};
  const ReasoningFigures figures = reasoning_figures(answers, 4);
  EXPECT_EQ(figures.answers, 3u);
  EXPECT_EQ(figures.tokens, 6u);
  EXPECT_EQ(figures.cut, 1u);
  EXPECT_EQ(figures.without_answer, 1u);
  EXPECT_EQ(figures.decided.at("math-verify boxed"), 2u);
  EXPECT_DOUBLE_EQ(figures.by_rule.at("math-verify"), 2.0 / 3) << "the one that was cut, too";
  // Contexts of the steps: 10 11 12 13; 10 11 12 (the end token's step is the third); 10.
  EXPECT_DOUBLE_EQ(figures.context.value(), (46.0 + 33.0 + 10.0) / 8);
}

/// Where some contexts are within the budget and others beyond it, the formula at the mean context is too much.
TEST(ReasoningReport, FlopsAreTheMeanOverSteps) {
  const testing::ReasoningFolder data;
  data.add("aime24", 1);
  const Model model = load_model("tiny");
  ReasoningOptions options;
  options.data = data.path();
  options.max_new_tokens = 40;
  const Reasoning benchmark(options, model);
  Manifest manifest;
  manifest.command = "tandem eval reasoning";
  manifest.started_utc = utc_now();
  benchmark.fill_manifest({"full", "tova:budget=20"}, manifest);
  const testing::TemporaryFolder root;
  RunFolder folder = begun_run(root.path() / "run", manifest);
  for (const char* method : {"full", "tova:budget=20"}) folder.append(answer_of(method, 0, 40, 0, ""));
  const nlohmann::json points = parse_json(benchmark.own_json(folder, summarise(folder)), "json").at("points");
  double attended = 0, all = 0;
  for (int context = 10; context < 50; ++context) {
    attended += std::min(context, 20) / 40.0;
    all += context / 40.0;
  }
  const ModelConfig& c = model.config;
  const double heads = double(c.layers) * c.q_heads * c.head_dim;
  EXPECT_DOUBLE_EQ(points.at(0).at("attention_flops"), heads * 4 * all);
  EXPECT_NEAR(points.at(1).at("attention_flops"), heads * (4 * attended + 2 * all), 1e-6 * heads);
}

TEST(ReasoningReport, AProblemIsOneUnitHoweverManyAnswersItHas) {
  const testing::ReasoningFolder data;
  data.add("aime24", 4);
  const Model model = load_model("tiny");
  ReasoningOptions options;
  options.data = data.path();
  options.repeats = 3;
  options.max_new_tokens = 8;
  options.sampling.temperature = 1;
  const Reasoning benchmark(options, model);
  Manifest manifest;
  manifest.command = "tandem eval reasoning --repeats 3";
  manifest.started_utc = utc_now();
  manifest.model = "tiny";
  benchmark.fill_manifest({"full", "tova:budget=4", "hgca"}, manifest);
  const testing::TemporaryFolder root;
  RunFolder folder = begun_run(root.path() / "run", manifest);
  // Of four problems full solves 3, 1, 0, 0 of three answers; tova 1, 1, 0, 0; hgca what full does.
  const std::vector<std::vector<int>> right = {{3, 1, 0, 0}, {1, 1, 0, 0}, {3, 1, 0, 0}};
  const std::vector<std::string> labels = {"full", "tova:budget=4", "hgca"};
  for (std::size_t m = 0; m < 3; ++m) {
    for (std::uint32_t i = 0; i < 12; ++i) {
      const bool ok = static_cast<int>(i % 3) < right[m][i / 3];
      folder.append(answer_of(labels[m], i, 5, ok ? 1 : 0, ok ? "\\boxed{2}" : "\\boxed{3}"));
    }
  }
  EXPECT_EQ(repeats_of(folder.manifest()), 3u);
  const Summary summary = summarise(folder);
  const AccuracyCell& full = summary.methods[0].overall;
  EXPECT_EQ(full.accuracy.n, 12u);
  EXPECT_EQ(full.units, 4u);
  EXPECT_DOUBLE_EQ(full.accuracy.value, 4.0 / 12);
  const std::vector<double> means = {1, 1.0 / 3, 0, 0}, tova = {1.0 / 3, 1.0 / 3, 0, 0};
  EXPECT_EQ(full.accuracy.interval, share_interval(means));
  const PairedEstimate& difference = summary.methods[1].overall.difference;
  EXPECT_DOUBLE_EQ(difference.difference.value, -2.0 / 12);
  EXPECT_EQ(difference.difference.interval, paired_share_interval(means, tova));
  EXPECT_FALSE(difference.has_p);

  const std::string text = benchmark.own_section(folder, summary, /*markdown=*/true);
  EXPECT_NE(text.find("| aime24 | tova:budget=4 | 4 | 16.7 ["), std::string::npos) << text;
  EXPECT_NE(text.find("-16.7 ["), std::string::npos) << text;
  EXPECT_NE(text.find("| aime24 | hgca | 5.0 | 0.0 | 0.0 | 12 | - | - |"), std::string::npos) << text;
  EXPECT_NE(text.find("| aime24 | full | math-verify | 0.0 | 33.3 |"), std::string::npos) << text;
  EXPECT_NE(text.find("| aime24 | full | math-verify boxed | 100.0 | - |"), std::string::npos) << text;
  EXPECT_NE(report_text(summary, true).find("Each question has 3 answers"), std::string::npos);
  const std::string on_terminal = benchmark.own_section(folder, summary, /*markdown=*/false);
  for (std::size_t at = 0; at < on_terminal.size();) {
    const std::size_t end = std::min(on_terminal.find('\n', at), on_terminal.size());
    EXPECT_LE(text_columns(on_terminal.substr(at, end - at)), kTerminalWidth);
    at = end + 1;
  }

  const nlohmann::json json = parse_json(benchmark.own_json(folder, summary), "json");
  EXPECT_EQ(json.at("schema"), "tandem-accuracy-flops-1");
  ASSERT_EQ(json.at("points").size(), 3u);
  const nlohmann::json& point = json.at("points").at(1);
  EXPECT_EQ(point.at("task"), "aime24");
  EXPECT_EQ(point.at("problems"), 4);
  EXPECT_EQ(point.at("n"), 12);
  EXPECT_DOUBLE_EQ(point.at("rules").at("math-verify").at("accuracy"), 2.0 / 12);
  EXPECT_DOUBLE_EQ(point.at("rules").at("math-verify boxed").at("decided"), 1);
  EXPECT_DOUBLE_EQ(point.at("tokens"), 5);
  EXPECT_DOUBLE_EQ(point.at("context"), 12.5);
  const ModelConfig& c = model.config;  // at 10 to 15 tokens of context, 4 of which are attended and all scored
  EXPECT_DOUBLE_EQ(point.at("attention_flops"), double(c.layers) * c.q_heads * c.head_dim * (4 * 4 + 2 * 12.5));
  EXPECT_FALSE(json.at("points").at(2).contains("flops"));
}

}  // namespace
}  // namespace tandem::eval
