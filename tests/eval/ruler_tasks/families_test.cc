// The tasks beyond one needle: each prompt is solved by a program that reads nothing but its text.
#include <gtest/gtest.h>
#include <set>
#include <sstream>

#include "eval/ruler_tasks/wording.h"
#include "tests/eval/ruler_tasks/prompts.h"

namespace tandem::eval {
namespace {

std::set<std::string> as_set(const std::vector<std::string>& values) {
  return {values.begin(), values.end()};
}

std::string question_of(const std::string& prompt) {
  return prompt.substr(prompt.rfind('\n') + 1);
}

class Samples : public ::testing::TestWithParam<std::uint32_t> {  // by length
 protected:
  static std::vector<RulerSample> of(const char* task) {
    return make_ruler_samples(task, GetParam(), 8, 21, count_thirds);
  }
};
INSTANTIATE_TEST_SUITE_P(Lengths, Samples, ::testing::Values(900u, 2000u, 4096u, 9000u));

TEST_P(Samples, MultivalueAsksForAllValuesOfItsKey) {
  for (const RulerSample& sample : of("niah_multivalue")) {
    std::size_t at = 0;
    const std::string key = between(question_of(sample.prompt), "secret numbers for ", "? Answer:", at);
    std::set<std::string> values;
    for (const Found& needle : needles_in(sample.prompt)) {
      EXPECT_EQ(needle.key, key);
      EXPECT_TRUE(is_number(needle.value));
      values.insert(needle.value);
    }
    EXPECT_EQ(values.size(), 4u);
    EXPECT_EQ(values, as_set(sample.answers));
    EXPECT_TRUE(sample.prompt.ends_with("The secret numbers for " + key + " are"));
  }
}

TEST_P(Samples, MultiqueryAsksForFourKeysInItsOrder) {
  for (const RulerSample& sample : of("niah_multiquery")) {
    std::map<std::string, std::string> value_of;
    for (const Found& needle : needles_in(sample.prompt)) value_of[needle.key] = needle.value;
    EXPECT_EQ(value_of.size(), 4u);
    std::size_t at = 0;
    std::stringstream keys(between(question_of(sample.prompt), "secret numbers for ", "? Answer:", at));
    std::vector<std::string> expected;
    for (std::string key; std::getline(keys, key, ',');)
      expected.push_back(value_of.at(key.substr(key.find_first_not_of(' '))));
    EXPECT_EQ(sample.answers, expected);
  }
}

TEST_P(Samples, ChainsAreFollowedToTheirValue) {
  for (const RulerSample& sample : of("vt")) {
    std::size_t at = 0;
    const std::string wanted = between(question_of(sample.prompt), "hold the value ", "? Answer:", at);
    std::map<std::string, std::string> value_of;
    for (at = 0; (at = sample.prompt.find("VAR ", at)) != std::string::npos;) {
      std::size_t here = at;
      const std::string name = between(sample.prompt, "VAR ", " = ", here);
      here = at + 4;
      std::string value = between(sample.prompt, " = ", ".", here);
      if (value.starts_with("VAR ")) {
        ASSERT_TRUE(value_of.contains(value.substr(4))) << "used before it is set: " << value;
        value = value_of[value.substr(4)];
      }
      value_of[name] = value;
      at = here;
    }
    std::set<std::string> holders;
    for (const auto& [name, value] : value_of) {
      if (value == wanted) holders.insert(name);
    }
    EXPECT_EQ(holders.size(), 5u);
    EXPECT_EQ(holders, as_set(sample.answers));
  }
}

std::map<std::string, int> word_counts(const std::string& prompt, const std::string& separator) {
  const std::size_t begin = prompt.find('\n') + 1, end = prompt.rfind('\n');
  std::map<std::string, int> counts;
  for (std::size_t at = begin; at < end;) {
    const std::size_t next = std::min(prompt.find(separator, at), end);
    ++counts[prompt.substr(at, next - at)];
    at = next + separator.size();
  }
  return counts;
}

TEST_P(Samples, CommonWordsAreTheOnesThatOccurMost) {
  for (const RulerSample& sample : of("cwe")) {
    ASSERT_EQ(sample.answers.size(), 10u);
    int least_common = 1 << 30, most_other = 0;
    for (const auto& [word, count] : word_counts(sample.prompt, ", ")) {
      if (as_set(sample.answers).contains(word)) {
        least_common = std::min(least_common, count);
      } else {
        most_other = std::max(most_other, count);
      }
    }
    EXPECT_EQ(least_common, GetParam() < 4096 ? 10 : 30);
    EXPECT_LT(most_other, least_common);
  }
}

TEST(CommonWords, RareOnesStayRareBeyondTheDictionary) {
  const TokenCounter words = [](std::string_view text) {
    return static_cast<std::uint32_t>(std::count(text.begin(), text.end(), ' '));
  };
  // A 128K prompt of a small vocabulary has some 25,000 rare words, the dictionary some 2,000.
  const RulerSample sample = make_ruler_sample_with("cwe", 131072, 0, 1, words, 25000);
  const auto counts = word_counts(sample.prompt.substr(sample.prompt.find('\n')), ", ");
  EXPECT_GT(counts.size(), 25000u);
  for (const auto& [word, count] : counts) {
    if (as_set(sample.answers).contains(word)) {
      EXPECT_GE(count, 29) << word;  // the text's first and last word carry more than themselves
    } else {
      EXPECT_LE(count, 3) << word;
    }
  }
}

TEST_P(Samples, FrequentWordsAreRanksTwoToFour) {
  for (const RulerSample& sample : of("fwe")) {
    std::vector<std::pair<int, std::string>> ranks;
    for (const auto& [word, count] : word_counts(sample.prompt, " ")) ranks.emplace_back(-count, word);
    std::sort(ranks.begin(), ranks.end());
    ASSERT_GT(ranks.size(), 5u);
    EXPECT_EQ(ranks[0].second, "...");
    EXPECT_LT(ranks[3].first, ranks[4].first) << "ranks 4 and 5 are equally frequent";
    EXPECT_EQ(as_set(sample.answers), (std::set<std::string>{ranks[1].second, ranks[2].second, ranks[3].second}));
  }
}

/// {a} of `text` by the pattern "{a} verb {b}." and its kind, from the wording.
struct Fact {
  std::string a, b;
};

std::vector<Fact> facts_by(const std::string& prompt, const std::string& pattern, const char* left, const char* right) {
  const std::size_t a = pattern.find(left) + std::string(left).size(), b = pattern.find(right);
  const std::string middle = pattern.substr(a, b - a);
  std::vector<Fact> facts;
  for (std::size_t at = 0; (at = prompt.find(middle, at)) != std::string::npos; at += middle.size()) {
    std::size_t start = prompt.rfind("he ", at);  // "The" or "the"
    const std::size_t end = prompt.find('.', at);
    facts.push_back(
        {"t" + prompt.substr(start, at - start), prompt.substr(at + middle.size(), end - at - middle.size())});
  }
  return facts;
}

std::vector<std::string> followed(const std::vector<Fact>& facts, const std::string& from) {
  std::vector<std::string> out;
  for (const Fact& fact : facts) {
    if (fact.a == from) out.push_back(fact.b);
  }
  return out;
}

TEST_P(Samples, QuestionsOnOneFactHaveOneAnswer) {
  for (const RulerSample& sample : of("qa_1")) {
    int solved = 0;
    for (const auto& relation : ruler_wording().relations) {
      const std::size_t place = relation.question.find("{a}");
      const std::string question = question_of(sample.prompt);
      const std::string before = "Question: " + relation.question.substr(0, place),
                        after = relation.question.substr(place + 3);
      if (!question.starts_with(before) || question.find(after + " Answer:") == std::string::npos) continue;
      const std::string asked = question.substr(before.size(), question.rfind(after + " Answer:") - before.size());
      EXPECT_EQ(followed(facts_by(sample.prompt, relation.facts[0], "{a}", "{b}"), asked), sample.answers) << question;
      ++solved;
    }
    EXPECT_EQ(solved, 1) << question_of(sample.prompt);
  }
}

TEST_P(Samples, QuestionsOnTwoFactsNeedBoth) {
  for (const RulerSample& sample : of("qa_2")) {
    int solved = 0;
    for (const auto& hops : ruler_wording().two_hops) {
      const std::size_t place = hops.question.find("{a}");
      const std::string question = question_of(sample.prompt);
      const std::string before = "Question: " + hops.question.substr(0, place), after = hops.question.substr(place + 3);
      if (!question.starts_with(before) || question.find(after + " Answer:") == std::string::npos) continue;
      const std::string asked = question.substr(before.size(), question.rfind(after + " Answer:") - before.size());
      const std::vector<std::string> middle = followed(facts_by(sample.prompt, hops.facts[0], "{a}", "{b}"), asked);
      ASSERT_EQ(middle.size(), 1u) << question;
      EXPECT_EQ(followed(facts_by(sample.prompt, hops.facts[1], "{b}", "{c}"), middle[0]), sample.answers) << question;
      ++solved;
    }
    EXPECT_EQ(solved, 1) << question_of(sample.prompt);
  }
}

TEST(RulerScore, IsUpstreams) {
  const std::vector<std::string> answers = {"alpha", "beta", "gamma", "delta"};
  EXPECT_EQ(ruler_score(find_ruler_task("vt"), "beta then ALPHA", answers), 0.5);
  EXPECT_EQ(ruler_score(find_ruler_task("qa_1"), "beta then ALPHA", answers), 1.0);
  EXPECT_EQ(ruler_score(find_ruler_task("qa_2"), "epsilon", answers), 0.0);
}

TEST(RulerMaxNew, IsUpstreams) {
  const auto tokens = [](const char* task, std::uint32_t length) {
    return ruler_max_new_tokens(find_ruler_task(task), length);
  };
  EXPECT_EQ(tokens("niah_multivalue", 4096), 128u);
  EXPECT_EQ(tokens("niah_multivalue", 1023), 48u);
  EXPECT_EQ(tokens("vt", 4096), 30u);
  EXPECT_EQ(tokens("cwe", 4096), 120u);
  EXPECT_EQ(tokens("fwe", 4096), 50u);
  EXPECT_EQ(tokens("qa_2", 4096), 32u);
}

}  // namespace
}  // namespace tandem::eval
