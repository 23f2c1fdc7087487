#include "eval/ruler_tasks/ruler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <set>

#include "engine/common/error.h"
#include "tests/eval/ruler_tasks/prompts.h"

namespace tandem::eval {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

class EveryTask : public ::testing::TestWithParam<std::string> {};
std::vector<std::string> all_names() {
  std::vector<std::string> names;
  for (const RulerTask& task : ruler_tasks()) names.push_back(task.name);
  return names;
}
INSTANTIATE_TEST_SUITE_P(Ruler, EveryTask, ::testing::ValuesIn(all_names()),
                         [](const auto& name) { return name.param; });

class OneNeedle : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Ruler, OneNeedle,
                         ::testing::Values("niah_single_1", "niah_single_2", "niah_single_3", "niah_multikey_1",
                                           "niah_multikey_2", "niah_multikey_3"),
                         [](const auto& name) { return name.param; });

TEST_P(EveryTask, NeverExceedsAndOneMoreSentenceWould) {
  for (const auto& [name, count] : counters()) {
    for (const std::uint32_t length : {450u, 1023u, 1024u, 1500u, 4095u, 8192u}) {
      for (std::uint32_t index = 0; index < 4; ++index) {
        if (name == "characters" && length < 4095) continue;  // checked by TooShort
        const RulerSample sample = make_ruler_sample(GetParam(), length, index, 7, count);
        EXPECT_EQ(sample.prompt_tokens, count(sample.prompt));
        EXPECT_LE(sample.prompt_tokens + sample.max_new_tokens, length) << name;
        const RulerSample more = make_ruler_sample_with(GetParam(), length, index, 7, count, sample.haystack_units + 1);
        EXPECT_GT(more.prompt_tokens + more.max_new_tokens, length) << name << " " << length << " " << index;
      }
    }
  }
}

TEST_P(EveryTask, SampleDependsOnNothingButItsName) {
  const std::vector<RulerSample> all = make_ruler_samples(GetParam(), 1500, 6, 42, count_words);
  ASSERT_EQ(all.size(), 6u);
  for (std::uint32_t i = 6; i-- > 0;) {
    const RulerSample alone = make_ruler_sample(GetParam(), 1500, i, 42, count_words);
    EXPECT_EQ(alone.prompt, all[i].prompt);
    EXPECT_EQ(alone.answers, all[i].answers);
    EXPECT_EQ(alone.depth, all[i].depth);
    EXPECT_EQ(alone.index, i);
  }
  std::set<std::string> prompts;
  for (const RulerSample& sample : all) prompts.insert(sample.prompt);
  EXPECT_EQ(prompts.size(), 6u);
  EXPECT_NE(make_ruler_sample(GetParam(), 1500, 0, 43, count_words).answers, all[0].answers);
  EXPECT_NE(make_ruler_sample(GetParam(), 1501, 0, 42, count_words).answers, all[0].answers);
}

TEST_P(OneNeedle, AnswerStandsOnceInTheNeedleThatIsAskedFor) {
  const RulerTask& task = find_ruler_task(GetParam());
  for (std::uint32_t index = 0; index < 20; ++index) {
    const RulerSample sample = make_ruler_sample(GetParam(), 2048, index, 1, count_thirds);
    ASSERT_EQ(sample.answers.size(), 1u);
    const std::string& answer = sample.answers[0];
    EXPECT_TRUE(task.value == RulerTask::Kind::uuids ? is_uuid(answer) : is_number(answer)) << answer;
    EXPECT_EQ(occurrences(sample.prompt, answer), 1u);
    const std::string key = asked_key(sample.prompt);
    EXPECT_EQ(is_uuid(key), task.key == RulerTask::Kind::uuids) << key;
    const std::vector<Found> found = needles_in(sample.prompt);
    EXPECT_EQ(found.size(), task.haystack == RulerTask::Haystack::needles ? sample.haystack_units + 1 : task.keys);
    std::set<std::string> keys;
    for (const Found& needle : found) {
      EXPECT_TRUE(keys.insert(needle.key).second) << needle.key;
      EXPECT_EQ(needle.key == key, needle.value == answer);
    }
    EXPECT_TRUE(keys.contains(key));
  }
}

TEST_P(EveryTask, PromptIsContextNewlineQuestion) {
  const RulerSample sample = make_ruler_sample(GetParam(), 1024, 0, 5, count_words);
  const bool documents = find_ruler_task(GetParam()).family == RulerTask::Family::facts;
  if (!documents) {
    EXPECT_EQ(occurrences(sample.prompt, "\n"), 2u);
  }
  EXPECT_EQ(occurrences(sample.prompt, "  "), 0u);
  EXPECT_EQ(occurrences(sample.prompt, "{"), 0u);
  EXPECT_EQ(occurrences(sample.prompt, " \n") + occurrences(sample.prompt, "\n "), 0u);
  EXPECT_TRUE(sample.prompt.ends_with(" is") || sample.prompt.ends_with(" are") || documents);
  EXPECT_FALSE(sample.prompt.ends_with(" "));
}

TEST_P(EveryTask, TooShortNamesALengthThatWorks) {
  for (const auto& [name, count] : counters()) {
    for (const std::uint32_t length : {0u, 1u, 48u, 60u}) {
      try {
        make_ruler_samples(GetParam(), length, 3, 11, count);
        FAIL() << name << " " << length;
      } catch (const InputError& error) {
        const std::string text = error.what();
        std::size_t at = 0;
        const std::string number = between(text, "With this tokenizer ", " tokens", at);
        ASSERT_NE(at, std::string::npos) << text;
        const auto enough = static_cast<std::uint32_t>(std::stoul(number));
        EXPECT_GT(enough, length);
        EXPECT_NO_THROW(make_ruler_samples(GetParam(), enough, 3, 11, count)) << name << " " << enough;
      }
    }
  }
}

TEST_P(EveryTask, TheCheckRefusesWhatMakingRefuses) {
  for (std::uint32_t length = 40; length < 700; length += 3) {
    const auto refused = [](const auto& call) {
      try {
        call();
      } catch (const InputError& error) {
        return std::string(error.what());
      }
      return std::string();
    };
    EXPECT_EQ(refused([&] { check_ruler_samples(GetParam(), length, 6, 3, count_words); }),
              refused([&] { make_ruler_samples(GetParam(), length, 6, 3, count_words); }))
        << length;
  }
}

TEST_P(EveryTask, EveryLengthEndsWithASampleOrASentence) {
  for (std::uint32_t length = 0; length < 700; ++length) {
    try {
      const RulerSample sample = make_ruler_sample(GetParam(), length, length % 8, 3, count_words);
      EXPECT_LE(sample.prompt_tokens + sample.max_new_tokens, length);
    } catch (const InputError&) {
      EXPECT_LT(length, 270u);
    }
  }
}

class PlacedTask : public ::testing::TestWithParam<std::string> {};  // word counts are everywhere in the text
INSTANTIATE_TEST_SUITE_P(Ruler, PlacedTask,
                         ::testing::Values("niah_single_1", "niah_single_2", "niah_single_3", "niah_multikey_1",
                                           "niah_multikey_2", "niah_multikey_3", "niah_multivalue", "niah_multiquery",
                                           "qa_1", "qa_2"),
                         [](const auto& name) { return name.param; });

TEST_P(PlacedTask, DepthsReachBothEnds) {
  std::vector<double> depths;
  for (std::uint32_t i = 0; i < 300; ++i)
    depths.push_back(make_ruler_sample_with(GetParam(), 4096, i, 9, count_words, 400).depth.value());
  std::vector<int> tenths(10);
  for (const double depth : depths) {
    ASSERT_GE(depth, 0.0);
    ASSERT_LE(depth, 1.0);
    ++tenths[std::min<std::size_t>(9, static_cast<std::size_t>(depth * 10))];
  }
  for (const int n : tenths) EXPECT_GE(n, 10);  // 30 expected; 10 is four standard deviations below
}

TEST(Ruler, WordCountsHaveNoDepth) {
  for (const char* task : {"cwe", "fwe"}) EXPECT_FALSE(make_ruler_sample(task, 1024, 0, 1, count_words).depth) << task;
}

TEST(Ruler, EssayDepthsAreUpstreamsForty) {
  // round(linspace(0, 100, 40)) written out in research of upstream's niah.py; here computed in integers: 100 i / 39.
  std::set<std::uint32_t> upstream, seen;
  for (std::uint32_t i = 0; i < 40; ++i) upstream.insert((200 * i + 39) / 78);
  for (std::uint32_t i = 0; i < 600; ++i) {
    const RulerSample sample = make_ruler_sample_with("niah_single_2", 4096, i, 3, count_words, 100);
    const std::string hay = sample.prompt.substr(0, sample.prompt.find("The secret number for"));
    // 100 sentences, so the sentences before the needle are the depth in per cent. The intro ends its own sentences.
    seen.insert(static_cast<std::uint32_t>(occurrences(hay.substr(hay.find('\n')), ".")));
  }
  EXPECT_EQ(seen, upstream);
}

TEST(Ruler, HaystackGrowsAtItsEnd) {
  // The fit searches over one fixed text: with the needle at depth 0, a longer haystack begins with the shorter one.
  for (std::uint32_t i = 0; i < 200; ++i) {
    const RulerSample a = make_ruler_sample_with("niah_single_2", 4096, i, 3, count_words, 10);
    if (a.depth != 0) continue;
    const RulerSample b = make_ruler_sample_with("niah_single_2", 4096, i, 3, count_words, 20);
    const std::size_t end = a.prompt.rfind('\n');
    EXPECT_EQ(a.prompt.substr(0, end), b.prompt.substr(0, end));
    return;
  }
  FAIL() << "no needle at depth 0 in 200 samples";
}

TEST(Ruler, FixedSampleNeverChanges) {
  // Golden: results are compared over versions, so the generator's stream is part of the protocol.
  const RulerSample sample = make_ruler_sample("niah_multikey_1", 512, 3, 42, count_words);
  EXPECT_EQ(sample.answers[0], "6590494");
  EXPECT_EQ(sample.prompt.substr(0, 160),
            "Some secret numbers are written in the text below. Keep them in mind.\nThey said that a heritage would "
            "stink only in the yielding larder. It took the brewer a lo");
}

TEST(Ruler, FewProbesForALongContext) {
  // Each probe tokenizes the whole prompt; at 128K that is most of a run's preparation.
  int probes = 0;
  const TokenCounter count = [&](std::string_view text) {
    ++probes;
    return count_thirds(text);
  };
  for (const RulerTask& task : ruler_tasks()) {
    probes = 0;
    make_ruler_sample(task.name, 131072, 0, 1, count);
    EXPECT_LE(probes, 13) << task.name;  // bisection alone: 1 + log2(131072) = 18 with prompts up to 25 times too long
  }
}

TEST(Ruler, HostileLengthsAndCounters) {
  EXPECT_THAT([] { make_ruler_sample("niah_single_1", 0xffffffffu, 0, 1, count_words); },
              ThrowsMessage<InputError>(HasSubstr("larger than 4194304")));
  EXPECT_THAT([] { make_ruler_samples("niah_single_1", 1024, 0, 1, count_words); },
              ThrowsMessage<InputError>(HasSubstr("is 0")));
  // Never fits, whatever the length: ends with a sentence.
  EXPECT_THROW(make_ruler_sample("niah_single_1", 4096, 0, 1, [](std::string_view) { return 0xffffffffu; }),
               InputError);
  // Counts nothing: ends with an error, not with an endless haystack.
  EXPECT_THROW(make_ruler_sample("niah_single_1", 4096, 0, 1, [](std::string_view) { return 0u; }), LogicError);
  // Tokens that fall again as the text grows: still a boundary.
  const TokenCounter saw = [](std::string_view text) {
    return static_cast<std::uint32_t>(text.size() / 4 + (text.size() % 512) / 2);
  };
  const RulerSample sample = make_ruler_sample("niah_single_2", 4096, 0, 1, saw);
  EXPECT_LE(sample.prompt_tokens + 128, 4096u);
  EXPECT_GT(saw(make_ruler_sample_with("niah_single_2", 4096, 0, 1, saw, sample.haystack_units + 1).prompt) + 128,
            4096u);
}

TEST(Ruler, NamesAndGroups) {
  EXPECT_EQ(expand_ruler_tasks("all").size(), 13u);
  EXPECT_EQ(expand_ruler_tasks("niah").size(), 8u);
  EXPECT_THAT(expand_ruler_tasks("qa , vt"), ::testing::ElementsAre("qa_1", "qa_2", "vt"));
  EXPECT_THAT(expand_ruler_tasks("single"), ::testing::ElementsAre("niah_single_1", "niah_single_2", "niah_single_3"));
  EXPECT_THAT(expand_ruler_tasks("niah_multikey_2,multikey"),
              ::testing::ElementsAre("niah_multikey_2", "niah_multikey_1", "niah_multikey_3"));
  EXPECT_THAT([] { expand_ruler_tasks("niah_single_4"); },
              ThrowsMessage<InputError>(AllOf(HasSubstr("'niah_single_4'"), HasSubstr("Did you mean"))));
  for (const char* bad : {"", ",", "niah,", " ", "NIAH"}) EXPECT_THROW(expand_ruler_tasks(bad), InputError) << bad;
}

}  // namespace
}  // namespace tandem::eval
