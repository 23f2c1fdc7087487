#include "eval/report/summary.h"

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "engine/common/error.h"
#include "engine/common/json.h"
#include "eval/report/table.h"
#include "tests/eval/report/example_run.h"

namespace tandem::eval {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::ThrowsMessage;

TEST(Summary, AccuracyAndPairedDifference) {
  TemporaryFolder root;
  const Summary s = summarise(RunFolder::open(write_run(root)));
  EXPECT_TRUE(s.complete);
  ASSERT_EQ(s.methods.size(), 2u);
  EXPECT_EQ(s.methods[0].overall.accuracy.value, 1.0);
  EXPECT_EQ(s.methods[0].overall.accuracy.n, 16u);
  EXPECT_FALSE(s.methods[0].overall.has_difference);
  const AccuracyCell& hybrid = s.methods[1].overall;
  EXPECT_EQ(hybrid.accuracy.value, 0.75);
  EXPECT_EQ(hybrid.accuracy.interval, wilson_interval(12, 16));
  ASSERT_TRUE(hybrid.has_difference);
  EXPECT_EQ(hybrid.difference.difference.value, -0.25);
  EXPECT_EQ(hybrid.difference.counts.first_only, 4u);
  EXPECT_NEAR(hybrid.difference.p, 0.0625, 1e-12);  // half of 2 / 2^4
  ASSERT_EQ(s.methods[1].cells.size(), 4u);
  EXPECT_EQ(s.methods[1].cells[2].task, "niah_single_2");
  EXPECT_EQ(s.methods[1].cells[2].length, 1024u);
  EXPECT_EQ(s.methods[1].cells[2].accuracy.n, 4u);
}

/// qa_1 with 10 questions of a file at three lengths, and `needles` samples of a needle task at each. Both methods
/// answer a question alike at every length: full all but one, hybrid half of them. Needles are all found.
fs::path write_questions(const TemporaryFolder& root, std::uint32_t needles, const std::string& protocol) {
  Manifest manifest = example_manifest();
  manifest.tasks = {"qa_1"};
  if (needles > 0) manifest.tasks.emplace_back("niah_single_1");
  manifest.lengths = {1024, 2048, 4096};
  manifest.samples = std::max(10u, needles);
  manifest.protocol_id = protocol;
  RunFolder folder = begun_run(root / "questions", manifest);
  for (const std::uint32_t length : manifest.lengths) {
    for (const std::string& task : manifest.tasks) {
      for (std::uint32_t index = 0; index < (task == "qa_1" ? 10 : needles); ++index) {
        for (const MethodEntry& method : manifest.methods) {
          SampleResult sample = example_sample(index, method.label);
          sample.task = task;
          sample.length = length;
          sample.score = task != "qa_1" || index >= (method.name == "hybrid" ? 5u : 1u) ? 1 : 0;
          folder.append(sample);
        }
      }
    }
  }
  return root / "questions";
}

constexpr const char* kMadeUp = "ruler/embedded-v4+essay:prose+qa_1:made-up+qa_2:made-up+wording:a+words:b+tok:c";
constexpr const char* kOfFile = "ruler/embedded-v4+essay:prose+qa_1:squad-0123+qa_2:made-up+wording:a+words:b+tok:c";
constexpr const char* kOfficial = "ruler/official-v2+data:0123+tok:c+template:none";

TEST(Summary, AQuestionThatEveryLengthAsksCountsOnce) {
  for (const char* protocol : {kOfFile, kOfficial}) {
    TemporaryFolder root;
    const Summary s = summarise(RunFolder::open(write_questions(root, 0, protocol)));
    const AccuracyCell& hybrid = s.methods[1].overall;
    EXPECT_EQ(hybrid.accuracy.n, 30u);
    EXPECT_EQ(hybrid.units, 10u);
    EXPECT_EQ(hybrid.accuracy.value, 0.5);
    EXPECT_EQ(hybrid.accuracy.interval, wilson_interval(5, 10)) << "30 would make it narrower";
    ASSERT_TRUE(hybrid.difference.has_p);
    EXPECT_EQ(hybrid.difference.counts.first_only, 4u);
    EXPECT_NEAR(hybrid.difference.p, 0.0625, 1e-12);  // 12 of 30 would give 0.0001
    EXPECT_EQ(hybrid.difference.difference.n, 30u);
    EXPECT_EQ(s.methods[1].cells[0].accuracy.interval, wilson_interval(5, 10)) << "at one length each is asked once";
    EXPECT_EQ(s.methods[1].lengths[2].units, 10u);
    EXPECT_THAT(report_text(s, true), HasSubstr("qa_1 asks the same questions at every length: over all lengths, "
                                                "intervals and p take a question with its mean score as one sample, "
                                                "so that there are 10, not 30."));
    EXPECT_EQ(parse_json(to_json_text(s), "JSON")["methods"][1]["overall"]["units"], 10);
  }
  TemporaryFolder root;
  const Summary s = summarise(RunFolder::open(write_questions(root, 0, kMadeUp)));
  EXPECT_EQ(s.methods[1].overall.accuracy.interval, wilson_interval(15, 30)) << "every length has its own";
  EXPECT_THAT(report_text(s, true), Not(HasSubstr("the same questions")));
  EXPECT_FALSE(parse_json(to_json_text(s), "JSON")["methods"][1]["overall"].contains("units"));
}

TEST(Summary, QuestionsBesideOtherTasksKeepTheirWeight) {
  TemporaryFolder root;
  const Summary s = summarise(RunFolder::open(write_questions(root, 20, kOfFile)));
  const AccuracyCell& hybrid = s.methods[1].overall;
  EXPECT_EQ(hybrid.accuracy.n, 90u);
  EXPECT_EQ(hybrid.units, 70u);
  EXPECT_NEAR(hybrid.accuracy.value, 75.0 / 90, 1e-12) << "the mean of the samples, as ever";
  EXPECT_EQ(hybrid.accuracy.kind, IntervalKind::shares);
  const Interval as_if_independent = wilson_interval(75, 90);
  EXPECT_LT(hybrid.accuracy.interval.low, as_if_independent.low);
  EXPECT_GT(hybrid.accuracy.interval.high, as_if_independent.high);
  EXPECT_FALSE(hybrid.difference.has_p);
  EXPECT_NEAR(hybrid.difference.difference.value, -12.0 / 90, 1e-12);
  EXPECT_EQ(hybrid.difference.difference.kind, IntervalKind::paired_shares);
  EXPECT_THAT(report_text(s, true), HasSubstr("so that there are 70, not 90; beside"));
}

/// 15 documents of 8 questions each, all of them answered by full; hybrid has those about the fourth wrong.
fs::path write_documents(const TemporaryFolder& root, bool known) {
  Manifest manifest = example_manifest();
  manifest.benchmark = "leval";
  manifest.tasks = {"quality"};
  manifest.lengths = {0};
  manifest.samples = 120;
  manifest.protocol_id = "leval/v1+data:0";
  RunFolder folder = begun_run(root / (known ? "known" : "unknown"), manifest);
  for (std::uint32_t index = 0; index < manifest.samples; ++index) {
    for (const MethodEntry& method : manifest.methods) {
      SampleResult sample = example_sample(index, method.label);
      sample.benchmark = "leval";
      sample.task = "quality";
      sample.length = 0;
      sample.score = method.name == "hybrid" && index / 8 == 3 ? 0 : 1;
      if (known) sample.document = index / 8;
      folder.append(sample);
    }
  }
  return folder.path();
}

TEST(Summary, QuestionsAboutOneDocumentCountOnce) {
  TemporaryFolder root;
  const Summary s = summarise(RunFolder::open(write_documents(root, true)));
  const AccuracyCell& hybrid = s.methods[1].overall;
  EXPECT_EQ(hybrid.accuracy.n, 120u);
  EXPECT_EQ(hybrid.units, 15u);
  EXPECT_EQ(hybrid.accuracy.interval, wilson_interval(14, 15));
  EXPECT_NEAR(hybrid.difference.difference.value, -1.0 / 15, 1e-12);
  EXPECT_LT(hybrid.difference.difference.interval.low, -1.0 / 15);
  EXPECT_GT(hybrid.difference.difference.interval.high, 0) << "one document of 15 may be chance";
  EXPECT_EQ(s.methods[1].cells[0].units, 15u);
  EXPECT_THAT(report_text(s, true),
              HasSubstr("quality asks several questions about a document: intervals take a document with its mean "
                        "score as one sample, so that there are 15, not 120"));
  // As if they were independent: what a run says that does not know its documents, as those of older programs.
  const Summary older = summarise(RunFolder::open(write_documents(root, false)));
  EXPECT_EQ(older.methods[1].overall.units, 120u);
  EXPECT_LT(older.methods[1].overall.difference.p, 0.01);
  EXPECT_THAT(report_text(older, true), Not(HasSubstr("about a document")));
}

TEST(Summary, ADocumentIsNoQuestionOfTheSameNumber) {
  Scores scores;
  Repeated repeated;
  for (std::uint32_t index = 0; index < 6; ++index) scores[{"quality", 0, index}] = 1;
  for (std::uint32_t index = 0; index < 2; ++index) repeated.documents[{"quality", 0, index}] = 3;
  EXPECT_EQ(paired_scores(scores, scores, repeated).weights, (std::vector<double>{1, 1, 1, 1, 2}));
}

TEST(Summary, TheReportNamesTheIntervalOfSharesThatAreAllAlike) {
  TemporaryFolder root;
  Manifest manifest = example_manifest();
  RunFolder folder = begun_run(root / "a", manifest);
  for (std::uint32_t index = 0; index < 3; ++index)
    for (const MethodEntry& method : manifest.methods) folder.append(example_sample(index, method.label));
  const std::string text = report_text(summarise(folder), true);
  EXPECT_THAT(text, HasSubstr("+0.0 [-51.2, +51.2]"));
  EXPECT_THAT(text, HasSubstr("Newcombe paired score with the spread of the shares"));
  EXPECT_THAT(text, Not(HasSubstr("ootstrap")));
}

TEST(Summary, LatencyByLength) {
  TemporaryFolder root;
  const Summary s = summarise(RunFolder::open(write_run(root)));
  ASSERT_EQ(s.methods[1].by_length.size(), 2u);
  const LatencySummary& l = s.methods[1].by_length[1].latency;
  EXPECT_EQ(s.methods[1].by_length[1].length, 2048u);
  EXPECT_EQ(l.samples, 8u);
  EXPECT_EQ(l.steps, 24u);
  EXPECT_NEAR(l.ttft_ms, 6.0, 1e-12);              // 4 + 0.5 + 1.5
  EXPECT_NEAR(l.tpot_ms.value(), 4.0, 1e-12);      // steps of 2 and 6 ms
  EXPECT_NEAR(l.tpot_p50_ms.value(), 4.0, 1e-12);  // half of the steps each
  EXPECT_NEAR(l.tpot_p90_ms.value(), 6.0, 1e-12);
  EXPECT_NEAR(l.tpot_p99_ms.value(), 6.0, 1e-12);
  EXPECT_NEAR(l.step_ms, 9.5 / 3, 1e-12);
  EXPECT_NEAR(l.busy_ms + l.idle_ms, l.step_ms, 1e-12);
  EXPECT_NEAR(l.idle_ms_by_cause.at("recall"), 4.0 / 3, 1e-12);
  EXPECT_NEAR(l.hbm, 1e6, 1e-6);
  EXPECT_NEAR(l.attended_host, 790, 1e-9);
  EXPECT_NEAR(l.host_share().value(), 790.0 / 890, 1e-12);
  EXPECT_EQ(l.peak_host_kv, 2000000u);
  EXPECT_NEAR(s.methods[1].by_length[0].latency.tpot_ms.value(), 2.0, 1e-12);
  EXPECT_NEAR(s.methods[1].latency->tpot_ms.value(), 3.0, 1e-12);
}

// Three steps of 1.5 to 3 ms at 1024 tokens, and one of 9 ms at 2048: over steps the short answer hardly counts.
TEST(Summary, MeanOfLengthsGivesEachTheSameWeight) {
  TemporaryFolder root;
  Manifest manifest = example_manifest();
  manifest.lengths = {1024, 2048};
  RunFolder folder = RunFolder::create(root / "run", manifest);
  for (const std::uint32_t length : manifest.lengths) {
    SampleResult sample = example_sample();
    SampleTiming timing = example_timing();
    sample.length = timing.length = length;
    if (length == 2048) {
      timing.step_ns = {9000000};
      timing.window_ns = 10500000;
      timing.idle_ns = 7200000;
      timing.idle_by_cause = {{"recall", 7200000}};
      timing.steps = 2;
      timing.bytes.dram = 2000000;
      timing.device_kv_bytes = 4000000;
      timing.tokens_attended_host = 4000;
    }
    folder.append(sample);
    folder.append(timing);
  }
  const MethodSummary method = summarise(folder).methods[0];
  EXPECT_NEAR(method.latency->tpot_ms.value(), 13.0 / 3, 1e-12) << "every step alike";
  const LatencySummary l = mean_of_lengths(method).value();
  EXPECT_NEAR(l.tpot_ms.value(), (2.0 + 9.0) / 2, 1e-12);
  EXPECT_FALSE(l.tpot_p50_ms || l.tpot_p90_ms || l.tpot_p99_ms);
  EXPECT_NEAR(l.ttft_ms, 6.0, 1e-12);
  EXPECT_NEAR(l.step_ms, (5.5 / 3 + 10.5 / 2) / 2, 1e-12);
  EXPECT_NEAR(l.idle_ms, (2.2 / 3 + 7.2 / 2) / 2, 1e-12);
  EXPECT_NEAR(l.busy_ms + l.idle_ms, l.step_ms, 1e-12);
  EXPECT_NEAR(l.idle_ms_by_cause.at("recall"), 7.2 / 2 / 2, 1e-12) << "none at 1024";
  EXPECT_NEAR(l.dram, (6e5 / 3 + 2e6 / 2) / 2, 1e-6);
  EXPECT_NEAR(l.attended_host, (790.0 + 2000.0) / 2, 1e-9);
  EXPECT_EQ(l.samples, 2u);
  EXPECT_EQ(l.steps, 5u);
  EXPECT_EQ(l.peak_device_kv, 4000000u);
  // Of one length nothing changes.
  MethodSummary one = method;
  one.by_length.pop_back();
  one.latency = one.by_length[0].latency;
  EXPECT_EQ(mean_of_lengths(one)->tpot_p99_ms, one.latency->tpot_p99_ms);
  EXPECT_NEAR(mean_of_lengths(one)->tpot_ms.value(), 2.0, 1e-12);
}

/// A run of one sample per length and method, of which `change` changes the times.
Summary summary_of(const TemporaryFolder& root, const std::function<void(SampleTiming&)>& change) {
  Manifest manifest = example_manifest();
  manifest.lengths = {1024, 2048};
  manifest.samples = 1;
  RunFolder folder = RunFolder::create(root / "run", manifest);
  for (const SampleKey& key : keys_in_order(manifest, 1)) {
    SampleResult sample = example_sample();
    SampleTiming timing = example_timing();
    static_cast<SampleKey&>(sample) = static_cast<SampleKey&>(timing) = key;
    change(timing);
    folder.append(sample);
    folder.append(timing);
  }
  return summarise(folder);
}

void end_with_first_token(SampleTiming& t) {
  t.steps = 1;
  t.step_ns.clear();
}

TEST(Summary, WithoutALaterStepThereIsNoTimePerToken) {
  const TemporaryFolder root;
  const Summary s = summary_of(root, end_with_first_token);
  const LatencySummary& l = s.methods[0].latency.value();
  EXPECT_FALSE(l.tpot_ms || l.tpot_p50_ms || l.tpot_p90_ms || l.tpot_p99_ms);
  EXPECT_FALSE(mean_of_lengths(s.methods[0])->tpot_ms);
  EXPECT_NEAR(l.ttft_ms, 6.0, 1e-12);
  const auto json = parse_json(to_json_text(s), "JSON");
  for (const auto& latency : {json["methods"][0]["latency"], json["methods"][0]["latency_by_length"][1]}) {
    for (const char* name : {"tpot_ms", "tpot_p50_ms", "tpot_p90_ms", "tpot_p99_ms"})
      EXPECT_TRUE(latency.at(name).is_null()) << name;
    EXPECT_GT(latency.at("step_ms"), 0);
  }
  EXPECT_THAT(report_text(s, true),
              HasSubstr("| full | 1K | 6.00 | 4.00 | 0.5000 | 1.50 | - | - | - | - | 2.20 | 40.0 |"));
}

TEST(Summary, TheMeanOfLengthsIsOfThoseWithALaterStep) {
  const TemporaryFolder root;
  const Summary s = summary_of(root, [](SampleTiming& t) {
    if (t.length == 1024) end_with_first_token(t);
  });
  EXPECT_FALSE(s.methods[0].by_length[0].latency.tpot_ms);
  EXPECT_EQ(s.methods[0].by_length[1].latency.tpot_ms, 2.0);
  EXPECT_EQ(mean_of_lengths(s.methods[0])->tpot_ms, 2.0);
}

TEST(Summary, SamplesThatDecodedNothingHaveNoTimes) {
  const TemporaryFolder root;
  const auto decode_nothing = [](SampleTiming& t) {
    t.steps = 0;
    t.step_ns.clear();
    t.idle_by_cause.clear();
    t.first_step_ns = t.window_ns = t.busy_ns = t.idle_ns = t.layer0_idle_ns = 0;
    t.tokens_attended_device = t.tokens_attended_host = 0;
  };
  const Summary s = summary_of(root, [&](SampleTiming& t) {
    if (t.method != "full" || t.length == 1024) decode_nothing(t);
  });
  EXPECT_TRUE(s.complete);
  EXPECT_EQ(s.methods[0].latency->samples, 1u);
  EXPECT_NEAR(s.methods[0].latency->ttft_ms, 6.0, 1e-12) << "not a mean with what has no first token";
  ASSERT_EQ(s.methods[0].by_length.size(), 1u);
  EXPECT_FALSE(s.methods[1].latency);
  EXPECT_FALSE(mean_of_lengths(s.methods[1]));
  const auto json = parse_json(to_json_text(s), "JSON");
  EXPECT_TRUE(json["methods"][1]["latency"].is_null());
  EXPECT_TRUE(json["methods"][1]["latency_by_length"].empty());
  EXPECT_THAT(report_text(s, true), HasSubstr("| full | 2K |"));
}

TEST(Summary, SharesOfNothingAreAbsent) {
  const TemporaryFolder root;
  const Summary s = summary_of(root, [](SampleTiming& t) {
    t.window_ns = t.busy_ns = t.idle_ns = t.layer0_idle_ns = 0;
    t.idle_by_cause.clear();
    t.tokens_attended_device = t.tokens_attended_host = 0;
  });
  EXPECT_FALSE(s.methods[0].latency->host_share());
  EXPECT_FALSE(s.methods[0].latency->idle_share());
  const auto json = parse_json(to_json_text(s), "JSON");
  EXPECT_TRUE(json["methods"][0]["latency"]["attended_per_step"]["host_share"].is_null());
  EXPECT_THAT(report_text(s, true), AllOf(HasSubstr("| 0 | - |"), Not(HasSubstr("nan")), Not(HasSubstr("inf"))));
}

TEST(Summary, TimesAreOfWholeBatches) {
  TemporaryFolder root;
  Manifest manifest = example_manifest();
  manifest.samples = 5;
  const auto tpot = [&](const char* name, const std::string& batch) {
    Manifest own = manifest;
    own.command += batch;
    RunFolder folder = RunFolder::create(root / name, own);
    for (std::uint32_t index = 0; index < 5; ++index) {
      folder.append(example_sample(index, own.methods[0].label));
      SampleTiming timing = example_timing(index, own.methods[0].label);
      for (std::int64_t& ns : timing.step_ns) ns = index < 4 ? 2000000 : 1000000;
      folder.append(timing);
    }
    return summarise(folder);
  };
  const Summary four = tpot("four", " --batch 4"), alone = tpot("alone", ""), eight = tpot("eight", " --batch 8");
  EXPECT_NEAR(four.methods[0].latency->tpot_ms.value(), 2.0, 1e-12);
  EXPECT_EQ(four.methods[0].latency->samples, 4u);
  EXPECT_EQ(four.methods[0].latency->left_out, 1u);
  EXPECT_EQ(four.methods[0].overall.accuracy.n, 5u);
  EXPECT_THAT(report_text(four, true), HasSubstr("A step is one of 4 sequences, or of those that have not ended yet. "
                                                 "Times of a sample in smaller batches are left out"));
  EXPECT_THAT(to_json_text(four), HasSubstr("\"samples_of_smaller_batches\": 1"));
  EXPECT_NEAR(alone.methods[0].latency->tpot_ms.value(), 1.8, 1e-12);
  EXPECT_NEAR(eight.methods[0].latency->tpot_ms.value(), 1.8, 1e-12) << "no batch is whole";
  EXPECT_EQ(eight.methods[0].latency->left_out, 0u);
}

TEST(Summary, UnfinishedRunsSaySo) {
  TemporaryFolder root;
  const Summary s = summarise(RunFolder::open(write_run(root, false)));
  EXPECT_FALSE(s.complete);
  EXPECT_EQ(s.methods[1].overall.difference.difference.n, 8u);  // pairs, not all samples of the baseline
  EXPECT_THAT(report_text(s, false), HasSubstr("NOT COMPLETE"));
}

TEST(Summary, ARunWithoutTheBaselineHasNoDifferences) {
  TemporaryFolder root;
  RunFolder folder = begun_run(root / "a", example_manifest());
  folder.append(example_sample(0, "hybrid:budget=0.2"));
  const Summary s = summarise(folder);
  ASSERT_EQ(s.methods.size(), 1u);
  EXPECT_FALSE(s.methods[0].overall.has_difference);
  const std::string text = report_text(s, false);
  EXPECT_THAT(text, HasSubstr("difference"));
  EXPECT_THAT(text, Not(HasSubstr("TPOT")));  // no timings, no latency
}

TEST(Summary, ABudgetForTheWholeContextIsMarked) {
  const auto attend = [](SampleTiming& t, std::uint64_t less) {  // 890 tokens of context, three steps
    t.tokens_attended_device = 300;
    t.tokens_attended_host = 890 + 891 + 892 - 300 - less;
  };
  const TemporaryFolder root, other;
  const Summary s = summary_of(root, [&](SampleTiming& t) { attend(t, t.length == 2048 ? 0 : 1); });
  EXPECT_THAT(s.methods[0].attends_everything_at, IsEmpty()) << "full has no budget";
  EXPECT_THAT(s.methods[1].attends_everything_at, ElementsAre(2048)) << "at 1024 one token is left out once";
  EXPECT_THAT(report_text(s, true),
              AllOf(HasSubstr("| attends everything at 2K |"), HasSubstr("a longer context shows")));
  EXPECT_THAT(report_text(s, false), HasSubstr("attends everything at 2K"));
  EXPECT_EQ(parse_json(to_json_text(s), "JSON")["methods"][1]["attends_everything_at"], nlohmann::json({2048}));
  const Summary less = summary_of(other, [&](SampleTiming& t) { attend(t, 1); });
  EXPECT_THAT(report_text(less, true), Not(HasSubstr("attends everything")));
  EXPECT_FALSE(parse_json(to_json_text(less), "JSON")["methods"][1].contains("attends_everything_at"));
  EXPECT_EQ(budget_text({}), "-");
  EXPECT_EQ(budget_text({1024, 2048}), "attends everything at 1K, 2K");
  EXPECT_EQ(budget_text({0}), "attends everything");
}

TEST(Summary, LinesThatAreNotOfTheRunAreRefused) {
  const auto expect = [](auto&& change, const char* message) {
    TemporaryFolder root;
    RunFolder folder = begun_run(root / "a", example_manifest());
    SampleResult sample = example_sample(1);
    SampleTiming timing = example_timing(1);
    change(sample, timing);
    folder.append(example_sample(0));
    folder.append(sample);
    folder.append(example_timing(0));
    folder.append(timing);
    EXPECT_THAT([&] { summarise(folder); }, ThrowsMessage<InputError>(HasSubstr(message)));
  };
  expect([](auto& s, auto&) { s.method = "other"; }, "samples.jsonl:2: the method 'other'");
  expect([](auto& s, auto&) { s.task = "vt"; }, "samples.jsonl:2: the task 'vt'");
  expect([](auto& s, auto&) { s.length = 77; }, "samples.jsonl:2: the length '77'");
  expect([](auto&, auto& t) { t.clock = "simulated for a100"; }, "timings.jsonl:2: the clock 'simulated for a100'");
  TemporaryFolder root;
  begun_run(root / "empty", example_manifest());
  EXPECT_THAT([&] { summarise(RunFolder::open(root / "empty")); },
              ThrowsMessage<InputError>(HasSubstr("holds no finished sample")));
}

TEST(Summary, JsonHoldsWhatThePlotReads) {
  TemporaryFolder root;
  const auto json = parse_json(to_json_text(summarise(RunFolder::open(write_run(root)))), "JSON");
  EXPECT_EQ(json["clock"], "simulated for h200");
  const auto& hybrid = json["methods"][1];
  EXPECT_EQ(hybrid["method"], "hybrid:budget=0.2");
  EXPECT_EQ(hybrid["cells"].size(), 4u);
  EXPECT_EQ(hybrid["cells"][0]["accuracy"], 0.75);
  ASSERT_EQ(hybrid["lengths"].size(), 2u);
  EXPECT_EQ(hybrid["lengths"][1]["length"], 2048);
  EXPECT_EQ(hybrid["lengths"][1]["n"], 8);
  EXPECT_EQ(hybrid["lengths"][1]["difference"]["value"], -0.25);
  EXPECT_EQ(hybrid["overall"]["difference"]["value"], -0.25);
  EXPECT_EQ(hybrid["latency_by_length"][1]["length"], 2048);
  EXPECT_EQ(hybrid["latency_by_length"][1]["tpot_p90_ms"], 6.0);
  EXPECT_NEAR(hybrid["latency_by_length"][1]["idle_ms_by_cause"]["recall"].get<double>(), 4.0 / 3, 1e-12);
}

TEST(Summary, JsonSaysWhatItIsOf) {
  Summary s;
  s.manifest = example_manifest();
  s.manifest.command += " --batch 4";
  auto json = parse_json(to_json_text(s), "JSON");
  EXPECT_EQ(json["command"], "tandem compare --samples 4 --batch 4");
  EXPECT_EQ(json["tandem_version"], "0.1.0");
  EXPECT_EQ(json["git_commit"], "abc");
  EXPECT_FALSE(json.contains("later_programs"));
  EXPECT_EQ(json["weights_hash"], "w1");
  EXPECT_EQ(json["seed"], 42);
  EXPECT_EQ(json["batch"], 4);
  EXPECT_EQ(json["precision"], "bf16");
  EXPECT_EQ(json["hardware_hash"], "h1");
  EXPECT_EQ(json["machine"]["cpu_model"], "A CPU");
  EXPECT_EQ(json["isa"], "avx2");
  EXPECT_FALSE(json.contains("threads")) << "virtual time is the same with any number of them";
  s.manifest.programs.push_back({"0.1.0", "def"});
  s.manifest.clock = "measured on NVIDIA H200, host A CPU, 2 threads";
  s.manifest.machine.device = "NVIDIA H200";
  json = parse_json(to_json_text(s), "JSON");
  EXPECT_EQ(json["later_programs"][0]["git_commit"], "def");
  EXPECT_EQ(json["machine"]["device"], "NVIDIA H200");
  EXPECT_EQ(json["threads"], 2);
}

/// Whether some Python that draw_plot() tries has matplotlib.
bool has_matplotlib() {
  return std::system(
             "/usr/bin/python3 -c 'import matplotlib' 2>/dev/null || "
             "{ ! test -x /usr/bin/python3 && python3 -c 'import matplotlib' 2>/dev/null; }") == 0;
}

TEST(Plot, IsDrawnOrSaysWhyNot) {
  TemporaryFolder root;
  const fs::path path = write_run(root);
  write_file(path / "summary.json", to_json_text(summarise(RunFolder::open(path))));
  const std::optional<std::string> why_not = draw_plot(kPlot, path);
  if (!has_matplotlib()) {
    EXPECT_TRUE(why_not.has_value());
    return;
  }
  EXPECT_EQ(why_not, std::nullopt);
  EXPECT_EQ(read_bytes(path / "plot.png").substr(1, 3), "PNG");
  EXPECT_THAT(read_bytes(path / "plot.svg"), HasSubstr("<svg"));
  EXPECT_THAT(read_bytes(path / "pareto.svg"), AllOf(HasSubstr(">Pareto front<"), HasSubstr("ms per step")));
  fs::remove(path / "summary.json");
  EXPECT_THAT(draw_plot(kPlot, path).value_or(""), HasSubstr("plot.py failed"));
}

}  // namespace
}  // namespace tandem::eval
