#include "eval/scoring/longbench.h"

#include <algorithm>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/common/error.h"

namespace tandem::eval {
namespace {

using Strings = std::vector<std::string>;

double score(std::string_view dataset, std::string_view prediction, const Strings& answers,
             const Strings& classes = {}) {
  return longbench_score(longbench_dataset(dataset), prediction, answers, classes);
}

TEST(LongBench, HasUpstreamsDataSets) {
  const auto all = longbench_datasets();
  ASSERT_EQ(all.size(), 21u);
  const auto count = [&](auto has) { return std::count_if(all.begin(), all.end(), has); };
  EXPECT_EQ(count([](const auto& d) { return d.in_e; }), 13);
  EXPECT_EQ(count([](const auto& d) { return d.first_line_only; }), 4);
  EXPECT_EQ(count([](const auto& d) { return d.language == LongBenchLanguage::chinese; }), 5);
  EXPECT_EQ(count([](const auto& d) { return d.language == LongBenchLanguage::code; }), 2);
  EXPECT_EQ(count([](const auto& d) { return needs_segmenter(d.metric); }), 3);
  EXPECT_EQ(to_string(longbench_dataset("lsht").metric), "classification_score");
  EXPECT_EQ(to_string(longbench_dataset("2wikimqa").metric), "qa_f1_score");
}

TEST(LongBench, AnUnknownDataSetIsAnInputError) {
  try {
    longbench_dataset("hotpot");
    FAIL();
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(), ::testing::StartsWith("LongBench has no data set 'hotpot'. Did you mean 'hotpotqa'? It"));
    EXPECT_THAT(error.what(), ::testing::HasSubstr("lcc and repobench-p."));
  }
}

TEST(LongBench, TheBestAnswerCounts) {
  EXPECT_EQ(score("hotpotqa", "red green", {"blue", "red green", "red"}), 1.0);
  EXPECT_EQ(score("hotpotqa", "red", {}), 0.0);
}

TEST(LongBench, OnlyTheFirstLineCountsWhereUpstreamCutsIt) {
  EXPECT_EQ(score("triviaqa", "\n\nred\nPassage: more", {"red"}), 1.0);
  EXPECT_EQ(score("triviaqa", " \nred", {"red"}), 0.0);  // newlines are left out at the beginning, spaces are not
  EXPECT_EQ(score("hotpotqa", "red\nmore", {"red"}), 2.0 / 3);
  EXPECT_EQ(score("trec", "City\nFood", {"City"}, {"City", "Food"}), 1.0);
  EXPECT_EQ(score("lsht", "\n体育\n赛事", {"体育"}, {"体育", "赛事"}), 1.0);
  EXPECT_EQ(score("samsum", "a b\nc", {"a b"}), 0.999999995);
  EXPECT_EQ(score("triviaqa", "\n\n", {"red"}), 0.0);
}

TEST(LongBench, BrokenBytesAreReplacementCharacters) {
  EXPECT_EQ(score("multi_news", "a \xff", {"a \xef\xbf\xbd"}), 0.999999995);
}

TEST(LongBench, TheFigureIsRoundedAsPythonDoes) {
  EXPECT_EQ(longbench_dataset_score({}), 0.0);
  EXPECT_EQ(longbench_dataset_score(std::vector{1.0, 0.0, 1.0}), 66.67);
  EXPECT_EQ(longbench_dataset_score(std::vector{0.00025}), 0.03);
}

TEST(LongBench, BucketsOfLongBenchE) {
  EXPECT_EQ(longbench_bucket(3999), 0u);
  EXPECT_EQ(longbench_bucket(4000), 1u);
  EXPECT_EQ(longbench_bucket(7999), 1u);
  EXPECT_EQ(longbench_bucket(8000), 2u);
  const auto figures = longbench_e_scores(std::vector{0.00025, 1.0, 0.0}, std::vector<std::int64_t>{1, 9000, 8000});
  EXPECT_EQ(figures[0], 0.02);  // NumPy's rounding
  EXPECT_EQ(figures[1], std::nullopt);
  EXPECT_EQ(figures[2], 50.0);
}

}  // namespace
}  // namespace tandem::eval
