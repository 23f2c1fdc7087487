#include "eval/reasoning/reasoning.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <set>

#include "engine/common/error.h"
#include "engine/device/sim_device.h"
#include "eval/ruler_tasks/ruler.h"
#include "eval/run/run_dataset.h"
#include "tests/eval/reasoning/reasoning_folder.h"

namespace tandem::eval {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class ReasoningTest : public ::testing::Test {
 protected:
  ReasoningTest() : model(load_model("tiny")) {
    options.data = folder.path();
    options.max_new_tokens = 16;
  }
  Reasoning read() const { return {options, model}; }
  std::string refused() const {
    try {
      read();
    } catch (const InputError& error) {
      return error.what();
    }
    return "nothing was refused";
  }
  std::string protocol(const std::vector<std::string>& methods = {"full", "hgca"}) const {
    Manifest manifest;
    manifest.tokenizer_hash = "abc";
    read().fill_manifest(methods, manifest);
    return manifest.protocol_id;
  }

  testing::ReasoningFolder folder;
  Model model;
  ReasoningOptions options;
};

TEST_F(ReasoningTest, SamplesAreTheAnswersOfOneProblemAfterAnother) {
  folder.add("aime24", 3);
  options.repeats = 2;
  options.sampling.temperature = 0.5f;
  const Reasoning benchmark = read();
  std::set<std::uint64_t> seeds;
  for (std::uint32_t i = 0; i < 6; ++i) {
    const DatasetSample sample = benchmark.sample("aime24", 0, i);
    const std::string number = std::to_string(i / 2 + 2);
    EXPECT_EQ(sample.prompt,
              model.tokenizer->encode("Tom had " + number + " apples and went to the park with his friend.", true));
    EXPECT_THAT(sample.answers, ElementsAre(number));
    EXPECT_EQ(sample.max_new_tokens, 16u);
    EXPECT_EQ(sample.sampling.temperature, 0.5f);
    EXPECT_TRUE(sample.cut_is_wrong);
    seeds.insert(sample.sampling.seed);
  }
  EXPECT_EQ(seeds.size(), 6u);
}

TEST_F(ReasoningTest, DrawsFollowFromSeedTaskProblemAndAnswerAlone) {
  folder.add("aime24", 4);
  folder.add("math500", 4);
  options.sampling.temperature = 0.5f;
  options.repeats = 3;
  const auto seed = [&](const char* task, std::uint32_t index) { return read().sample(task, 0, index).sampling.seed; };
  const std::uint64_t of_problem_2 = seed("aime24", 2 * 3 + 1);
  options.samples = 3;
  EXPECT_EQ(seed("aime24", 2 * 3 + 1), of_problem_2);
  options.repeats = 2;
  EXPECT_EQ(seed("aime24", 2 * 2 + 1), of_problem_2);
  EXPECT_NE(seed("math500", 2 * 2 + 1), of_problem_2);
  options.sampling.seed = 1;
  EXPECT_NE(seed("aime24", 2 * 2 + 1), of_problem_2);
}

TEST_F(ReasoningTest, ScoresAreOfEachKind) {
  folder.add("aime24", 2);
  folder.add("gpqa_diamond", 1);
  folder.add("gsm8k", 1);
  folder.add("math500", 1);
  const Reasoning benchmark = read();
  const auto score = [&](const char* task, const std::string& said) {
    const std::vector<DatasetSample> samples = {benchmark.sample(task, 0, 0)};
    const Score scored = benchmark.scores(samples, std::vector{said}).at(0);
    EXPECT_FALSE(scored.by_rule.empty());
    return scored.value;
  };
  EXPECT_EQ(score("aime24", "\\boxed{2}"), 1);
  EXPECT_EQ(score("aime24", "\\boxed{3}"), 0);
  EXPECT_EQ(score("aime24", "It is 2."), 1) << "Math-Verify takes any number where there is nothing better";
  EXPECT_EQ(score("gpqa_diamond", "\\boxed{(B)}"), 1);
  EXPECT_EQ(score("gpqa_diamond", "\\boxed{A}"), 0);
  EXPECT_EQ(score("gsm8k", "all in all 2 apples."), 1);
  EXPECT_EQ(score("gsm8k", "2, no, 3"), 0);
  EXPECT_EQ(score("math500", "\\boxed{\\dfrac12}"), 1);
  EXPECT_EQ(score("math500", ""), 0);
}

TEST_F(ReasoningTest, ATemplateComesAroundPromptsAndMayCloseTheReasoning) {
  folder.add("aime24", 1);
  options.template_of = ChatFormat::qwen3;
  const auto text = [&] { return model.tokenizer->decode(read().sample("aime24", 0, 0).prompt); };
  EXPECT_THAT(text(), AllOf(HasSubstr("<|im_start|>user\nTom had"), ::testing::Not(HasSubstr("</think>"))));
  options.thinking = false;
  EXPECT_THAT(text(), HasSubstr("</think>"));
}

TEST_F(ReasoningTest, TheProtocolNamesWhatScoresDependOn) {
  folder.add("aime24", 3);
  EXPECT_THAT(protocol(), AllOf(HasSubstr("reasoning/v1+data:"),
                                HasSubstr("+tok:abc+template:none+draw:greedy+answers:1+max-new:16+"),
                                HasSubstr("score:published-rules-3"), HasSubstr("budget:hgca=")));
  std::set<std::string> ids = {protocol()};
  options.samples = 2;
  ids.insert(protocol());
  EXPECT_EQ(ids.size(), 1u) << "fewer problems are the same ones";
  const auto is_another = [&] { return ids.insert(protocol()).second; };
  options.max_new_tokens = 17;
  EXPECT_TRUE(is_another());
  options.sampling.temperature = 0.6f;
  EXPECT_TRUE(is_another());
  options.sampling.top_p = 0.95f;
  EXPECT_TRUE(is_another());
  options.sampling.top_k = 20;
  EXPECT_TRUE(is_another());
  options.sampling.min_p = 0.1f;
  EXPECT_TRUE(is_another());
  options.repeats = 4;
  EXPECT_TRUE(is_another());
  options.template_of = ChatFormat::qwen3;
  EXPECT_TRUE(is_another());
  options.thinking = false;
  EXPECT_TRUE(is_another());
  folder.add("aime24", 4);
  EXPECT_TRUE(is_another());
}

TEST_F(ReasoningTest, TheManifestCountsAnswers) {
  folder.add("aime24", 3);
  folder.add("math500", 5);
  options.repeats = 4;
  options.sampling = {.temperature = 1, .seed = 7};
  Manifest manifest;
  read().fill_manifest({"full"}, manifest);
  EXPECT_THAT(manifest.tasks, ElementsAre("aime24", "math500"));
  EXPECT_THAT(manifest.task_samples, ElementsAre(12u, 20u));
  EXPECT_EQ(manifest.all_samples(), 32u);
  EXPECT_EQ(manifest.seed, 7u);
  options.samples = 2;
  read().fill_manifest({"full"}, manifest);
  EXPECT_THAT(manifest.task_samples, ElementsAre());
  EXPECT_EQ(manifest.samples, 8u);
  EXPECT_EQ(manifest.all_samples(), 16u);
}

TEST_F(ReasoningTest, WhatCannotWorkIsRefusedFirst) {
  folder.add("aime24", 2);
  options.repeats = 2;
  EXPECT_THAT(refused(), HasSubstr("greedy answers to a problem are all the same"));
  options.repeats = 0;
  EXPECT_THAT(refused(), HasSubstr("--repeats is 0"));
  options.repeats = 1;
  options.sampling.temperature = -1;
  EXPECT_THAT(refused(), HasSubstr("--temperature is -1"));
  options.sampling.temperature = 0;
  const auto prompt = static_cast<std::uint32_t>(read().sample("aime24", 0, 0).prompt.size());
  EXPECT_EQ(read().longest_prompt(), prompt);
  options.max_new_tokens = model.config.max_positions - prompt;
  read();
  ++options.max_new_tokens;
  EXPECT_THAT(refused(), AllOf(HasSubstr("leaves no room for problem 1 of aime24"),
                               HasSubstr("At most " + std::to_string(model.config.max_positions - prompt))));
}

/// The embedded model reasons about nothing, but it finds a needle and says so in words that end with the number.
TEST(ReasoningRun, AModelThatKnowsTheAnswerScores) {
  const Model model = load_model("embedded");
  const auto count = [&](std::string_view text) { return model.tokenizer->encode(std::string(text), false).size(); };
  const testing::ReasoningFolder folder;
  std::string text;
  for (std::uint32_t i = 0; i < 4; ++i) {
    const RulerSample asked = make_ruler_sample("niah_single_1", 256, i, 5, count);
    // The third problem's reference is another number than the one in the text.
    text += testing::ReasoningFolder::record(asked.prompt, i == 2 ? "#### 12" : "#### " + asked.answers.at(0));
  }
  folder.write("gsm8k.jsonl", text);
  ThreadPool pool(1);
  const auto device = make_sim_device(load_profile("fluxion-a100"));
  const auto scores_with = [&](std::uint32_t max_new_tokens) {
    ReasoningOptions asked;
    asked.data = folder.path();
    asked.max_new_tokens = max_new_tokens;
    const Reasoning benchmark(asked, model);
    DatasetRunOptions options;
    options.methods = {"full"};
    options.batch = 4;
    options.engine.kv = {std::size_t{64} << 20, std::size_t{64} << 20};
    options.engine.precision = DType::bf16;
    Manifest manifest;
    manifest.command = "tandem eval reasoning --batch 4";
    manifest.clock = device->clock_name();
    manifest.started_utc = utc_now();
    benchmark.fill_manifest(options.methods, manifest);
    const testing::TemporaryFolder root;
    RunFolder run = RunFolder::create(root.path() / "run", manifest);
    run_dataset(benchmark, options, model, *device, pool, run);
    std::vector<double> scores;
    for (const SampleResult& sample : run.samples()) scores.push_back(sample.score);
    return scores;
  };
  EXPECT_THAT(scores_with(64), ElementsAre(1, 1, 0, 1));
  EXPECT_THAT(scores_with(5), ElementsAre(0, 0, 0, 0)) << "cut off";
}

}  // namespace
}  // namespace tandem::eval
