// What a run says that the methods of a sweep lose: matched by options, judged by intervals, kept in the file, shown.
#include "eval/predict/answers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "eval/run/decoded.h"
#include "tests/eval/predict/sweeps.h"
#include "tests/eval/report/fixtures.h"

namespace tandem::eval {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr std::uint32_t kSamples = 400;

/// A finished run with these methods; `wrong`: of a hundred samples of each how many are wrong, always the first ones,
/// at 1K; at 2K twice as many.
std::filesystem::path entries_run(const TemporaryFolder& root, std::vector<MethodEntry> methods,
                                  const std::vector<std::uint32_t>& wrong, std::uint32_t samples = kSamples,
                                  bool finished = true, const std::vector<std::uint32_t>& lengths = {1024, 2048}) {
  Manifest manifest = example_manifest();
  manifest.methods = std::move(methods);
  manifest.lengths = lengths;
  manifest.samples = samples;
  manifest.clock = manifest.hardware_profile = manifest.hardware_hash = "";
  RunFolder folder = RunFolder::create(root / "run", manifest);
  for (const std::uint32_t length : manifest.lengths)
    for (std::uint32_t index = 0; index < samples; ++index)
      for (std::size_t m = 0; m < manifest.methods.size(); ++m) {
        if (!finished && length == 2048 && index == 0 && m == 1) continue;
        SampleResult sample = example_sample(index, manifest.methods[m].label);
        sample.length = length;
        sample.prompt_tokens = 500 + index;
        sample.score = index % 100 < wrong[m] * (length == 2048 ? 2 : 1) ? 0 : 1;
        folder.append(sample);
      }
  return root / "run";
}

std::filesystem::path run_of(const TemporaryFolder& root, const std::vector<std::string>& methods,
                             const std::vector<std::uint32_t>& wrong, std::uint32_t samples = kSamples,
                             bool finished = true) {
  return entries_run(root, method_entries(methods), wrong, samples, finished);
}

std::string refusal_of(const std::filesystem::path& run, const std::vector<std::string>& methods) {
  return sentence_of([&] { read_answers(run, methods, load_shape(kShape), 0.01); });
}

TEST(Answers, AreJudgedByTheWholeIntervalOfTheirLength) {
  const TemporaryFolder root;
  const auto run = run_of(root, {"full", "quest:budget=256", "streaming", "tova", "h2o"}, {5, 5, 40, 6, 7}, 800);
  const Answers a = read_answers(run, {"full", "full-offload", "quest:budget=256", "streaming", "tova", "h2o", "hgca"},
                                 load_shape(kShape), 0.02);
  EXPECT_EQ(a.baseline, "full");
  EXPECT_EQ(a.of, "ruler, 1 task");
  EXPECT_EQ(a.model, "tiny");
  EXPECT_EQ(a.lengths, (std::vector<std::uint32_t>{1024, 2048}));
  ASSERT_EQ(a.methods.size(), 7u);
  for (const std::uint32_t context : {1024u, 2048u}) {
    EXPECT_EQ(a.standing("full", context), Standing::within);
    EXPECT_EQ(a.standing("full-offload", context), Standing::within) << "it computes what full attention does";
    EXPECT_EQ(a.standing("quest:budget=256", context), Standing::within);
    EXPECT_EQ(a.standing("streaming", context), Standing::beyond);
    EXPECT_EQ(a.standing("hgca", context), Standing::not_measured);
    EXPECT_EQ(a.standing("never asked for", context), Standing::not_measured);
  }
  EXPECT_EQ(a.standing("tova", 1024), Standing::within) << "8 of 800 lost: 1 point, its interval ends below 2";
  EXPECT_EQ(a.standing("tova", 2048), Standing::cannot_tell) << "16 of 800: 2 points";
  EXPECT_EQ(a.standing("h2o", 1024), Standing::cannot_tell);
  EXPECT_EQ(a.standing("h2o", 2048), Standing::beyond) << "32 of 800: 4 points";
  const AnswersAt* at = a.find("streaming", 1024);
  ASSERT_NE(at, nullptr);
  EXPECT_NEAR(at->score.value, 0.6, 1e-9);
  EXPECT_NEAR(at->loss.value, 0.35, 1e-9) << "above 0 is worse";
  EXPECT_LT(at->loss.interval.low, 0.35);
  EXPECT_GT(at->loss.interval.high, 0.35);
  EXPECT_EQ(at->loss.n, 800u);
  EXPECT_NEAR(a.find("streaming", 2048)->loss.value, 0.7, 1e-9);
  EXPECT_EQ(a.find("full", 1024)->loss.n, 0u);
}

TEST(Answers, OfOtherLengthsSayNothingOfAContext) {
  const TemporaryFolder root, as_they_are;
  const std::vector<std::string> methods = {"full", "quest:budget=256"};
  const Answers a = read_answers(run_of(root, methods, {5, 5}), methods, load_shape(kShape), 0.02);
  for (const std::uint32_t context : {512u, 1536u, 32768u}) {
    EXPECT_EQ(a.standing("quest:budget=256", context), Standing::elsewhere) << context;
    EXPECT_EQ(a.find("quest:budget=256", context), nullptr) << context;
    EXPECT_EQ(a.standing("full", context), Standing::within) << context;
  }
  const Answers free = read_answers(entries_run(as_they_are, method_entries(methods), {5, 5}, kSamples, true, {0}),
                                    methods, load_shape(kShape), 0.02);
  EXPECT_TRUE(free.lengths.empty());
  EXPECT_EQ(free.shortest, 500u);
  EXPECT_EQ(free.longest, 500 + kSamples - 1);
  EXPECT_EQ(free.standing("quest:budget=256", 512), Standing::within);
  EXPECT_EQ(free.standing("quest:budget=256", 499), Standing::elsewhere);
  EXPECT_EQ(free.standing("quest:budget=256", 1024), Standing::elsewhere);
  const auto json = written(free, [](ObjectWriter& out, const Answers& answers) { visit_answers(out, answers); });
  ObjectReader reader(json, "x");
  Answers again;
  visit_answers(reader, again);
  EXPECT_EQ(again.longest, free.longest);
}

TEST(Answers, FewSamplesCannotTell) {
  const TemporaryFolder root;
  const auto run = run_of(root, {"full", "quest:budget=256"}, {5, 5}, 20);
  EXPECT_EQ(read_answers(run, {"quest:budget=256"}, load_shape(kShape), 0.01).standing("quest:budget=256", 1024),
            Standing::cannot_tell);
  EXPECT_EQ(read_answers(run, {"quest:budget=256"}, load_shape(kShape), 0.5).standing("quest:budget=256", 1024),
            Standing::within);
}

/// What the first note says that quest needs, 0 where it says nothing.
unsigned needed_by_quest(const Answers& answers) {
  const std::string note = answers_notes(answers, answers.model, std::vector<std::uint32_t>{1024}).front();
  const std::string before = "quest:budget=256 at 1K about ";
  const std::size_t at = note.find(before);
  return at == std::string::npos ? 0 : unsigned(std::stoul(note.substr(at + before.size())));
}

TEST(Answers, SayHowManySamplesWouldTell) {
  for (const double margin : {0.06, 0.07, 0.13, 0.16}) {
    SCOPED_TRACE(margin);
    const auto answers_with = [&](std::uint32_t samples) {
      const TemporaryFolder root;
      const auto run = entries_run(root, method_entries({"full", "quest:budget=256"}), {5, 15}, samples, true, {1024});
      return read_answers(run, {"quest:budget=256"}, load_shape(kShape), margin);
    };
    const Answers few = answers_with(100);
    ASSERT_EQ(few.standing("quest:budget=256", 1024), Standing::cannot_tell);
    const unsigned needed = needed_by_quest(few);
    ASSERT_GT(needed, 100u);
    // Every hundred of the run is like the first, so that as many must do, and a third less must not.
    const Answers enough = answers_with((needed + 99) / 100 * 100);
    EXPECT_EQ(enough.standing("quest:budget=256", 1024), margin > 0.1 ? Standing::within : Standing::beyond) << needed;
    EXPECT_EQ(needed_by_quest(enough), 0u);
    const unsigned fewer = needed * 2 / 3 / 100 * 100;
    if (fewer > 100) {
      EXPECT_EQ(answers_with(fewer).standing("quest:budget=256", 1024), Standing::cannot_tell) << needed;
    }
  }
}

TEST(Answers, AMethodIsTheRunsOneWithTheSameOptions) {
  const TemporaryFolder root;
  std::vector<MethodEntry> entries =
      method_entries({"full", "quest:budget=256", "quest:page=16,budget=512", "tova:budget=128", "streaming"});
  std::erase_if(entries[1].options, [](const auto& option) { return option.first == "dense_layers"; });  // an older run
  entries[4].content = "0123456789abcdef";  // as if it had read a file
  const Answers a = read_answers(entries_run(root, entries, {0, 0, 40, 0, 0}),
                                 {"quest:budget=256,page=16", "quest:budget=512", "quest:budget=128", "tova:budget=256",
                                  "quest:budget=256,dense_layers=2", "streaming"},
                                 load_shape(kShape), 0.02);
  EXPECT_EQ(a.methods[0].measured_as, "quest:budget=256") << "the defaults, spelled out";
  EXPECT_EQ(a.methods[1].measured_as, "quest:page=16,budget=512");
  EXPECT_EQ(a.standing("quest:budget=512", 1024), Standing::beyond);
  for (const std::size_t other : {2u, 3u, 4u, 5u})
    EXPECT_EQ(a.methods[other].measured_as, "") << a.methods[other].method;
}

TEST(Answers, WhatStandsInForAFileIsWhatReadOne) {
  const TemporaryFolder one, two;
  const std::vector<std::string> asked = {"fluxion:heads=published", "fluxion:heads=embedded", "fluxion:heads=fixed"};
  std::vector<MethodEntry> entries = method_entries(
      {"full", "fluxion:heads=fixed", "fluxion:heads=oracle", "fluxion:heads=seed", "fluxion:heads=embedded"});
  Answers a = read_answers(entries_run(one, entries, {0, 0, 0, 0, 0}, 8), asked, load_shape(kShape), 0.5);
  EXPECT_EQ(a.methods[0].measured_as, "fluxion:heads=seed") << "the first that reads a predictor";
  EXPECT_EQ(a.methods[1].measured_as, "fluxion:heads=embedded");
  EXPECT_EQ(a.methods[2].measured_as, "fluxion:heads=fixed");
  entries[4].label = "fluxion:heads=elsewhere";  // the same file has moved
  for (auto& option : entries[4].options)
    if (option.first == "heads") option.second = "elsewhere";
  entries.erase(entries.begin() + 2, entries.begin() + 4);
  a = read_answers(entries_run(two, entries, {0, 0, 0}, 8), {"fluxion:heads=embedded", "fluxion:heads=seed"},
                   load_shape(kShape), 0.5);
  EXPECT_EQ(a.methods[0].measured_as, "fluxion:heads=elsewhere");
  EXPECT_EQ(a.methods[1].measured_as, "") << "another file";
}

TEST(Answers, RunsThatSayNothingAreRefused) {
  const std::vector<std::string> methods = {"full", "quest:budget=256"};
  const TemporaryFolder lossy, dense, half, others, empty, perplexity, whole;
  EXPECT_THAT(refusal_of(run_of(lossy, {"streaming", "full", "quest:budget=256"}, {0, 0, 0}, 8), methods),
              HasSubstr("its first method is streaming, which losses are measured against"));
  EXPECT_THAT(refusal_of(run_of(dense, {"quest:dense_layers=16", "quest:budget=256"}, {0, 0}, 8), methods),
              HasSubstr("its first method is quest:dense_layers=16"))
      << "lossless at this shape, not at the run's";
  EXPECT_THAT(refusal_of(run_of(half, methods, {0, 0}, 8, /*finished=*/false), methods), HasSubstr("is not finished"));
  EXPECT_THAT(refusal_of(run_of(others, {"full", "tova"}, {0, 0}, 8), methods),
              AllOf(HasSubstr("has none of the methods full, quest:budget=256: it has full, tova.")));
  EXPECT_THAT(refusal_of(run_of(whole, methods, {0, 0}, 8), {"full", "full-offload"}),
              HasSubstr("None of the methods full, full-offload loses anything"));
  EXPECT_THAT(refusal_of(empty / "none", methods), HasSubstr("none"));
  Manifest manifest = example_manifest();
  manifest.benchmark = kPerplexity;
  begun_run(perplexity / "run", manifest);
  EXPECT_THAT(refusal_of(perplexity / "run", methods), HasSubstr("is a perplexity"));
}

/// 4 ms for full, 2 for quest, 1 for streaming.
Sweep sweep_with(const Answers& answers) {
  SweepOptions options;
  options.methods = {"full", "quest:budget=256", "streaming"};
  options.hardware = {load_profile("h200")};
  options.contexts = {1024, 2048, 4096};
  options.batches = {4};
  Sweep sweep{"a model", 10, 4096, "a shape", options, a_workload(), {}};
  for (const std::uint32_t context : options.contexts)
    for (std::size_t m = 0; m < 3; ++m) {
      SweepPoint& point = sweep.points.emplace_back();
      point = {"h200", options.methods[m], context, 4, 4, m == 0, {}};
      point.row.method = point.method;
      point.row.step_ms = point.row.busy_ms = m == 0 ? 4 : m == 1 ? 2 : 1;
    }
  sweep.options.answers = answers;
  return sweep;
}

TEST(Answers, ChooseTheFastestThatLosesLittle) {
  const TemporaryFolder root;
  const std::vector<std::string> methods = {"full", "quest:budget=256", "streaming"};
  const auto run = run_of(root, methods, {5, 7, 40});
  const auto text = [&](double margin, bool markdown = true) {
    return sweep_text(sweep_with(read_answers(run, methods, load_shape(kShape), margin)), markdown);
  };
  EXPECT_THAT(text(0.05), AllOf(HasSubstr("| quest:budget=256 | 93.0 | 2.0\u00a0[0.5,\u00a0"
                                          "3.8]: yes | 86.0 | 4.0\u00a0["),
                                HasSubstr("]: cannot tell |\n| streaming | 60.0 | 35.0\u00a0["), HasSubstr("]: no |"),
                                HasSubstr("| full | 95.0 | loses nothing | 90.0 | loses nothing |"),
                                HasSubstr("ruler, 1 task with tiny; yes: loses at most 5 points")));
  EXPECT_THAT(text(0.05),
              AllOf(HasSubstr("| h200 | 4 | 1K | streaming 4000 | quest:budget=256 2000 | - | full 1000 |"),
                    HasSubstr("| h200 | 4 | 2K | streaming 4000 | full 1000 | quest:budget=256 2000 (cannot tell) |"),
                    HasSubstr("| h200 | 4 | 4K | streaming 4000 | full 1000 | streaming 4000 (measured elsewhere) |")));
  EXPECT_THAT(text(0.004), HasSubstr("| h200 | 4 | 1K | streaming 4000 | full 1000 | - | full 1000 |"));
  EXPECT_THAT(text(0.4), HasSubstr("| h200 | 4 | 1K | streaming 4000 | streaming 4000 | - |"));
  EXPECT_THAT(text(0.05), AllOf(HasSubstr("no answer was at contexts of 4K, but of prompts of 1K, 2K."),
                                HasSubstr("The answers are of tiny: what those of a model lose may be another thing."),
                                Not(HasSubstr("Speed alone"))));
  Sweep tie = sweep_with(read_answers(run, methods, load_shape(kShape), 0.02));
  for (SweepPoint& p : tie.points) p.row.step_ms = 4;
  EXPECT_THAT(sweep_text(tie, true), HasSubstr("| h200 | 4 | 1K | full 1000 | full 1000 | - | full 1000 |"))
      << "what is not known is as fast, not faster";
  std::istringstream lines(text(0.02, /*markdown=*/false));
  for (std::string line; std::getline(lines, line);) {
    if (line.find((root / "run").string()) != std::string::npos) continue;  // a path has its own length
    std::size_t columns = 0;
    for (const char c : line) columns += (static_cast<unsigned char>(c) & 0xC0) != 0x80;
    EXPECT_LE(columns, 100u) << line;
  }
}

TEST(Answers, AreKeptInTheSweepsFile) {
  const TemporaryFolder root;
  const std::vector<std::string> methods = {"full", "quest:budget=256", "streaming"};
  const auto run = run_of(root, {"full", "quest:budget=256"}, {5, 7});
  const Sweep sweep = sweep_with(read_answers(run, methods, load_shape(kShape), 0.05));
  const std::string text = json_of(sweep);
  const SweepFile file = parse_sweep(text, "sweep.json");
  EXPECT_EQ(sweep_json(file.sweep, file.command, file.program), text);
  EXPECT_EQ(sweep_text(file.sweep, true), sweep_text(sweep, true));
  EXPECT_THAT(sweep_csv(sweep),
              AllOf(HasSubstr(",score,loss,loss_low,loss_high,loss_standing\n"), HasSubstr(",0.930000,0.020000,0.00"),
                    HasSubstr(",,,,,not measured\n"), HasSubstr(",,,,,measured elsewhere\n")));
  const auto broken = [&](const std::string& part, const std::string& by) {
    std::string changed = text;
    changed.replace(changed.find(part), part.size(), by);
    return sentence_of([&] { parse_sweep(changed, "sweep.json"); });
  };
  EXPECT_THAT(broken("\"margin\": 0.05", "\"margin\": 5"), HasSubstr("'margin'"));
  EXPECT_THAT(broken("\"interval_kind\": \"W", "\"interval_kind\": \"w"), HasSubstr("'interval_kind'"));
  EXPECT_THAT(broken("\"baseline\"", "\"base\""), HasSubstr("'baseline' is missing"));
  EXPECT_THAT(
      broken("\"value\": 0.95", "\"value\": 0.5"),
      AllOf(HasSubstr("answers, method 1, at 1, score"), HasSubstr("'interval' must be two numbers from 0 to 1")));
  EXPECT_THAT(broken("\"value\": 0.95", "\"value\": 1.5"), HasSubstr("'value' must be between 0 and 1"));
  EXPECT_THAT(broken("\"length\": 1024", "\"length\": 512"), HasSubstr("'at' must be figures of each length"));
  EXPECT_THAT(broken("\"loss\": {", "\"los\": {"), HasSubstr("'loss' is missing"));
  EXPECT_THAT(
      broken("\"method\": \"quest:budget=256\",\n    \"measured_as", "\"method\": \"full\",\n    \"measured_as"),
      HasSubstr("'method' must be another one"));
  EXPECT_THAT(broken("\"method\": \"streaming\",\n    \"measured_as", "\"method\": \"tova\",\n    \"measured_as"),
              HasSubstr("'answers' has the method 'tova', which no point is of"));
}

}  // namespace
}  // namespace tandem::eval
