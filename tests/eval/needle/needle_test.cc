// A needle's depth is what was asked for, whatever else a run has; lossless methods' maps are full attention's.
#include "eval/needle/needle.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <map>

#include "engine/common/error.h"
#include "eval/report/summary.h"
#include "eval/ruler_tasks/texts.h"
#include "eval/run/run_dataset.h"
#include "tests/engine/runtime/tiny.h"
#include "tests/eval/report/fixtures.h"

namespace tandem::eval {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

NeedleOptions some_options() {
  NeedleOptions o;
  o.depths = {0, 35, 100};
  o.lengths = {256, 512};
  o.samples = 2;
  o.seed = 3;
  return o;
}

class NeedleTest : public ::testing::Test {
 protected:
  std::string text_of(const DatasetSample& sample) const { return model_.tokenizer->decode(sample.prompt); }
  std::string refusal(const NeedleOptions& options) const {
    try {
      const Needle made(options, model_);
    } catch (const InputError& error) {
      return error.what();
    }
    return "no InputError";
  }
  /// A whole run in the folder `name`.
  RunFolder run(const char* name, const NeedleOptions& what, const std::vector<std::string>& methods,
                std::uint32_t batch = 1) const {
    const Needle benchmark(what, model_);
    const auto device = tandem::testing::sim();
    Manifest manifest = example_manifest();
    manifest.tokenizer_hash = model_.tokenizer->hash();
    manifest.clock = device->clock_name();
    manifest.tasks.clear();
    benchmark.fill_manifest(methods, manifest);
    RunFolder folder = RunFolder::create(root_ / name, manifest);
    DatasetRunOptions options;
    options.methods = methods;
    options.batch = batch;
    ThreadPool pool(2);
    run_dataset(benchmark, options, model_, *device, pool, folder);
    return folder;
  }

  TemporaryFolder root_;
  Model model_ = load_model("tiny");
};

TEST_F(NeedleTest, StandsBehindTheShareOfSentencesThatIsAskedFor) {
  // Sentences are counted by their full stops, in the text that the model is given.
  for (const char* task : {"niah_single_1", "niah_single_2", "niah_multikey_1", "niah_multikey_2"}) {
    for (const std::uint32_t depth : {0u, 10u, 50u, 73u, 100u}) {
      NeedleOptions options = some_options();
      options.task = task;
      options.depths = {depth};
      options.lengths = {1024};
      const Needle benchmark(options, model_);
      for (std::uint32_t index = 0; index < 3; ++index) {
        const DatasetSample sample = benchmark.sample(depth_task(depth), 1024, index);
        const std::string text = text_of(sample);
        const std::size_t begin = text.find('\n') + 1, end = text.rfind('\n'), at = text.find(sample.answers.front());
        ASSERT_LT(at, end);
        EXPECT_EQ(text.find(sample.answers.front(), at + 1), std::string::npos) << "it is there once";
        const auto stops = [&](std::size_t from, std::size_t to) {
          return std::count(text.begin() + static_cast<std::ptrdiff_t>(from),
                            text.begin() + static_cast<std::ptrdiff_t>(to), '.');
        };
        // Of multikey_1 three other needles may stand before it.
        const double others = std::string(task) == "niah_multikey_1" ? 3 : 0;
        const double all = double(stops(begin, end)) - 1 - others, before = double(stops(begin, at));
        EXPECT_GE(before, std::floor(depth / 100.0 * all) - 1e-9) << task << " " << depth;
        EXPECT_LE(before, std::floor(depth / 100.0 * all) + others + 1e-9) << task << " " << depth;
        ASSERT_TRUE(sample.depth.has_value());
        EXPECT_NEAR(*sample.depth, depth / 100.0, 0.12) << task;
      }
    }
  }
}

TEST_F(NeedleTest, PromptsFillTheirLengthAndNoMore) {
  const Needle benchmark(some_options(), model_);
  for (const std::uint32_t length : {256u, 512u}) {
    for (const std::uint32_t depth : {0u, 35u, 100u}) {
      const DatasetSample sample = benchmark.sample(depth_task(depth), length, 1);
      EXPECT_LE(sample.prompt.size() + sample.max_new_tokens, length);
      EXPECT_GT(sample.prompt.size() + sample.max_new_tokens, length - 48) << "a sentence more would not fit";
    }
  }
  EXPECT_LE(benchmark.sample("depth_0", 512, 0).prompt.size(), benchmark.longest_prompt());
}

TEST_F(NeedleTest, CellsDoNotDependOnEachOther) {
  const Needle all(some_options(), model_);
  NeedleOptions alone = some_options();
  alone.depths = {35};
  alone.lengths = {512};
  alone.samples = 1;
  const Needle one(alone, model_);
  EXPECT_EQ(one.sample("depth_35", 512, 1).prompt, all.sample("depth_35", 512, 1).prompt);
  EXPECT_NE(all.sample("depth_35", 512, 0).answers, all.sample("depth_100", 512, 0).answers) << "independent samples";
  EXPECT_NE(all.sample("depth_35", 512, 0).answers, all.sample("depth_35", 512, 1).answers);
  alone.seed = 4;
  EXPECT_NE(Needle(alone, model_).sample("depth_35", 512, 1).prompt, all.sample("depth_35", 512, 1).prompt);
}

TEST_F(NeedleTest, NeighbouringSeedsShareNoSamples) {
  NeedleOptions ten = some_options(), none = some_options();
  ten.seed = 42;
  ten.depths = {10};
  none.seed = 52;
  none.depths = {0};
  EXPECT_NE(Needle(ten, model_).sample("depth_10", 512, 0).answers,
            Needle(none, model_).sample("depth_0", 512, 0).answers);
}

// Keys differ in their tokens from depth to depth: whatever length is taken, all samples can be made.
TEST_F(NeedleTest, RoomIsAskedForAtEveryDepth) {
  NeedleOptions o = some_options();
  o.task = "niah_single_1";
  o.depths = {0, 10, 20, 30, 40, 50, 60, 70, 80, 90, 100};
  o.samples = 3;
  int taken = 0;
  for (std::uint32_t length = 110; length < 140; ++length) {
    o.lengths = {length};
    if (refusal(o) != "no InputError") continue;
    ++taken;
    const Needle benchmark(o, model_);
    for (const std::uint32_t depth : o.depths)
      for (std::uint32_t i = 0; i < o.samples; ++i)
        EXPECT_NO_THROW(benchmark.sample(depth_task(depth), length, i)) << length << " " << depth << " " << i;
  }
  EXPECT_GT(taken, 0);
}

TEST_F(NeedleTest, RulersOwnDepthsAreDrawn) {
  const TokenCounter counter = [&](std::string_view text) {
    return static_cast<std::uint32_t>(model_.tokenizer->encode(text, true).size());
  };
  std::map<double, int> depths;
  for (std::uint32_t i = 0; i < 12; ++i) ++depths[*make_ruler_sample("niah_single_2", 1024, i, 42, counter).depth];
  EXPECT_GT(depths.size(), 6u);
}

TEST_F(NeedleTest, SaysWhatCannotBe) {
  NeedleOptions o = some_options();
  o.task = "niah_multivalue";
  EXPECT_THAT(refusal(o), AllOf(HasSubstr("no task with one needle"), HasSubstr("niah_single_1, niah_single_2")));
  o = some_options();
  o.depths = {101};
  EXPECT_THAT(refusal(o), HasSubstr("101 is more than 100 %"));
  o.depths = {5, 5};
  EXPECT_THAT(refusal(o), HasSubstr("5 is given twice"));
  o = some_options();
  o.lengths = {20};
  EXPECT_THAT(refusal(o), HasSubstr("too short"));
  o.lengths = {model_.config.max_positions + 1};
  EXPECT_THAT(refusal(o), HasSubstr("positions of model"));
  o = some_options();
  o.task = "niah_single_1";
  o.texts.essays = std::make_shared<const Essays>();
  EXPECT_THAT(refusal(o), HasSubstr("--ruler-essays has no place in niah_single_1"));
  for (const char* name : {"depth_", "depth_101", "depth_1x", "depth_-1", "niah_single_1"})
    EXPECT_THROW(depth_of_task(name), InputError) << name;
  EXPECT_EQ(depth_of_task(depth_task(100)), 100u);
}

// Offloading all KV changes where it lies, not what is attended: every cell has the same tokens.
TEST_F(NeedleTest, LosslessOffloadEqualsTheResidentRun) {
  const RunFolder folder = run("lossless", some_options(), {"full", "full-offload", "full-host"}, 2);
  std::map<std::tuple<std::string, std::uint32_t, std::uint32_t>, std::vector<std::vector<std::int32_t>>> tokens;
  for (const SampleResult& sample : folder.samples())
    tokens[{sample.task, sample.length, sample.index}].push_back(sample.tokens);
  ASSERT_EQ(tokens.size(), 3u * 2 * 2);
  for (const auto& [cell, of] : tokens) {
    ASSERT_EQ(of.size(), 3u);
    EXPECT_EQ(of[1], of[0]) << std::get<0>(cell);
    EXPECT_EQ(of[2], of[0]) << std::get<0>(cell);
  }
}

TEST_F(NeedleTest, TheProtocolSaysWhatIsHiddenInWhat) {
  NeedleOptions options = some_options();
  options.samples = 1;
  const Manifest manifest = run("protocol", options, {"full", "quest:budget=64"}).manifest();
  EXPECT_EQ(manifest.benchmark, "needle");
  EXPECT_EQ(manifest.tasks, (std::vector<std::string>{"depth_0", "depth_35", "depth_100"}));
  EXPECT_THAT(manifest.protocol_id,
              AllOf(HasSubstr("needle/v2+task:niah_single_2+source:embedded-v"), HasSubstr("+essay:prose"),
                    HasSubstr("+tok:" + model_.tokenizer->hash()), HasSubstr("+budget:quest=")));
}

/// Scores that are put in: the second method finds nothing between the ends at 2K.
TEST(NeedleReport, ShowsRecallWhereItBelongs) {
  const TemporaryFolder root;
  Manifest manifest = example_manifest();
  manifest.benchmark = "needle";
  manifest.tasks = {"depth_0", "depth_50", "depth_100"};
  manifest.lengths = {1024, 2048};
  manifest.samples = 8;
  manifest.clock.clear();
  RunFolder folder = begun_run(root / "run", manifest);
  for (const std::string& task : manifest.tasks) {
    for (const std::uint32_t length : manifest.lengths) {
      for (const MethodEntry& method : manifest.methods) {
        for (std::uint32_t i = 0; i < manifest.samples; ++i) {
          SampleResult sample = example_sample(i, method.label);
          sample.benchmark = "needle";
          sample.task = task;
          sample.length = length;
          const bool lost = method.name == "hybrid" && (task == "depth_50" && (length == 2048 || i < 2));
          sample.score = lost ? 0 : 1;
          folder.append(sample);
        }
      }
    }
  }
  const Summary summary = summarise(folder);
  const std::string markdown = needle_report(summary, true);
  EXPECT_THAT(markdown, HasSubstr("| 50\u00a0% | 100 | 100 | 100 |"));
  EXPECT_THAT(markdown, HasSubstr("| 50\u00a0% | 75 | 0 | 38 |"));
  EXPECT_THAT(markdown, HasSubstr("| all | 92 | 67 | 79 |"));
  EXPECT_THAT(markdown, HasSubstr("* hybrid:budget=0.2: 1 of 6 cells: 50\u00a0% at 2K (-100 points)\n"));
  EXPECT_THAT(markdown, Not(HasSubstr("* full")));
  EXPECT_THAT(markdown, HasSubstr("With 8 samples a cell, losses of fewer than 4 are not seen."));
  const std::string terminal = needle_report(summary, false);
  EXPECT_THAT(terminal, AllOf(HasSubstr("100 █"), HasSubstr("75 ▓"), HasSubstr("0 ·"), HasSubstr("38 ░")));
}

/// Of the first method's hits the second loses the first `lost`.
std::string report_of_losses(std::uint32_t samples, std::uint32_t lost) {
  const TemporaryFolder root;
  Manifest manifest = example_manifest();
  manifest.benchmark = "needle";
  manifest.tasks = {"depth_50"};
  manifest.lengths = {1024};
  manifest.samples = samples;
  RunFolder folder = begun_run(root / "run", manifest);
  for (const MethodEntry& method : manifest.methods) {
    for (std::uint32_t i = 0; i < samples; ++i) {
      SampleResult sample = example_sample(i, method.label);
      sample.benchmark = "needle";
      sample.task = "depth_50";
      sample.length = 1024;
      sample.score = method.label == manifest.methods.front().label || i >= lost ? 1 : 0;
      folder.append(sample);
    }
  }
  return needle_report(summarise(folder), true);
}

TEST(NeedleReport, SaysWhichLossesItCannotSee) {
  for (const auto& [samples, least] : {std::pair{2u, 2u}, {3u, 3u}, {5u, 3u}, {10u, 4u}, {50u, 5u}}) {  // by hand
    const std::string says =
        fmt::format("With {} samples a cell, losses of fewer than {} are not seen.", samples, least);
    EXPECT_THAT(report_of_losses(samples, least), HasSubstr(says));
    EXPECT_THAT(report_of_losses(samples, least - 1), HasSubstr("0 of 1 cells\n")) << samples;
  }
  EXPECT_THAT(report_of_losses(1, 1), AllOf(HasSubstr("With 1 sample a cell there can be none."), HasSubstr("0 of 1")));
}

}  // namespace
}  // namespace tandem::eval
