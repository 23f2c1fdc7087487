// Budgets set to equal bytes: the search on invented bytes, what is kept of it, and its table.
#include "eval/match_bytes/match_bytes.h"

#include <algorithm>
#include <cmath>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <map>
#include <sstream>

#include "engine/common/error.h"
#include "eval/report/table.h"
#include "tests/eval/report/example_run.h"

namespace tandem::eval {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

double option_of(const std::string& spec, const std::string& name) {
  for (const auto& [option, value] : parse_method_spec(spec).options)
    if (option == name) return std::stod(value);
  return std::nan("");
}

/// 1,000 bytes; quest a byte for each token in whole hundreds, hybrid-fixed 200 and half of the share of the rest.
Bytes invented(const std::string& spec) {
  const std::string name = parse_method_spec(spec).name;
  if (name == "quest") return {100 * std::ceil(option_of(spec, "budget") / 100)};
  if (name == "hybrid-fixed") return {200 + 400 * option_of(spec, "budget")};
  if (name == "scoutattention") return {option_of(spec, "budget")};
  if (name == "asyncspade") return {0, "there is no peer."};
  return {name == "full" ? 1000.0 : 1100.0};
}

TEST(EqualBytes, AreReadAndWritten) {
  EXPECT_EQ(parse_equal_bytes("touched-bytes=0.05,10%", "--equal"), (EqualBytes{Measure::touched, {0.05, 0.1}}));
  EXPECT_EQ(parse_equal_bytes("device-bytes=1", "--equal"), (EqualBytes{Measure::device, {1}}));
  EXPECT_EQ(to_text({Measure::touched, {0.05, 0.1}}), "touched-bytes=0.05,0.1");
  for (const char* wrong : {"", "bytes=0.1", "touched-bytes", "device-bytes", "touched-bytes=", "touched-bytes=0",
                            "touched-bytes=1.5", "touched-bytes=0.1,", "touched-bytes=0.1,10%", "touched-bytes=nan",
                            "touched-bytes=-0.1", "touched-bytes=120%", "touched-bytes=0.1x"}) {
    try {
      parse_equal_bytes(wrong, "--equal");
      ADD_FAILURE() << wrong;
    } catch (const InputError& error) {
      EXPECT_THAT(error.what(), ::testing::StartsWith("--equal is '" + std::string(wrong) + "'"));
    }
  }
}

TEST(WithOption, ReplacesTheValueAndKeepsTheOthers) {
  EXPECT_EQ(with_option("quest", "budget", "64"), "quest:budget=64");
  EXPECT_EQ(with_option("quest:budget=512,page=32", "budget", "64"), "quest:page=32,budget=64");
  EXPECT_EQ(with_option("quest:budget=512,page=32", "budget", ""), "quest:page=32");
  EXPECT_EQ(with_option("quest:budget=512", "budget", ""), "quest");
}

TEST(BudgetOptions, EveryMethodWithABudgetHasOne) {
  for (const MethodInfo& info : method_registry()) {
    const auto option = budget_option(info.name, Measure::touched);
    EXPECT_EQ(option.has_value(), !info.budget.empty()) << info.name;
    for (const BudgetOption& each : info.budget_options) {
      for (const std::string& name : {each.option, each.where}) {
        const bool known =
            std::any_of(info.options.begin(), info.options.end(), [&](const OptionInfo& o) { return o.name == name; });
        EXPECT_TRUE(known || (name.empty() && name == each.where)) << info.name << ": " << name;
      }
    }
  }
}

TEST(BudgetOptions, FollowFromTheOthers) {
  EXPECT_EQ(budget_option("fluxion", Measure::touched)->option, "bgt");
  EXPECT_EQ(budget_option("fluxion:heads=oracle", Measure::touched)->option, "tau");
  EXPECT_FALSE(budget_option("fluxion:heads=embedded", Measure::touched));
  EXPECT_EQ(budget_option("fluxion:heads=embedded", Measure::device)->option, "window");
  EXPECT_FALSE(budget_option("tova", Measure::device));
  EXPECT_EQ(budget_option("tova:evict=yes", Measure::device)->option, "budget");
  EXPECT_FALSE(budget_option("asyncspade", Measure::device));
  EXPECT_TRUE(budget_option("asyncspade:place=host", Measure::device));
  EXPECT_THROW(budget_option("quest:budget=no", Measure::touched), InputError);
}

TEST(FindEqual, TakesTheClosestValueThatThereIs) {
  std::map<std::string, int> asked;
  const std::vector<std::string> methods = {"full", "full-host", "quest:page=32", "hybrid-fixed:budget=0.5"};
  const EqualBytes question{Measure::touched, {0.33, 0.28}};
  const Equal equal = find_equal(question, methods, 2000, [&](const std::string& spec) {
    ++asked[spec];
    return invented(spec);
  });
  EXPECT_EQ(equal.reference_bytes, 1000);
  ASSERT_EQ(equal.as_given.size(), 2u);
  EXPECT_EQ(equal.as_given[1], (EqualMethod{"full-host", "full-host", "", "", 1100, Fit::as_given}));
  ASSERT_EQ(equal.shares.size(), 2u);
  // 300 is closer to 330 than 400, and from 208 tokens on it is 300.
  const EqualMethod quest = equal.shares[0].methods.at(0);
  EXPECT_EQ(quest.bytes, 300);
  EXPECT_EQ(quest.fit, Fit::set);
  EXPECT_EQ(quest.spec, "quest:page=32,budget=" + quest.value);
  EXPECT_EQ(equal.shares[0].methods.at(1),
            (EqualMethod{"hybrid-fixed:budget=0.5", "hybrid-fixed:budget=0.325", "budget", "0.325", 330, Fit::set}));
  EXPECT_EQ(equal.shares[1].methods.at(1).value, "0.2");
  for (const auto& [spec, times] : asked) EXPECT_EQ(times, 1) << spec;
  EXPECT_LE(asked.size(), most_questions(question, methods, 2000));
  // Both shares come to 300 of quest, once as the largest of the 300 and once as the least.
  EXPECT_EQ(equal.shares[1].methods.at(0).bytes, 300);
}

TEST(FindEqual, IsAsCloseAsTryingEverything) {
  for (int percent = 1; percent <= 100; ++percent) {
    const double target = 10.0 * percent;
    const Equal equal =
        find_equal({Measure::touched, {percent / 100.0}}, {"full", "quest", "hybrid-fixed"}, 1500, invented);
    const auto off = [&](double bytes) { return std::abs(bytes - target); };
    double quest = 1e9, hybrid = 1e9;
    for (int tokens = 32; tokens <= 1504; tokens += 16)
      quest = std::min(quest, off(invented("quest:budget=" + std::to_string(tokens)).bytes));
    for (int share = 1; share <= 1000; ++share) hybrid = std::min(hybrid, off(200 + 400 * (share / 1000.0)));
    EXPECT_EQ(off(equal.shares[0].methods.at(0).bytes.value()), quest) << percent;
    EXPECT_NEAR(off(equal.shares[0].methods.at(1).bytes.value()), hybrid, 1e-9) << percent;
  }
}

TEST(FindEqual, SaysWhereABudgetEnds) {
  const EqualBytes asked{Measure::touched, {0.1, 0.9}};
  const Equal equal = find_equal(asked, {"full", "hybrid-fixed", "scoutattention"}, 400, invented);
  EXPECT_EQ(equal.shares[0].methods.at(0).fit, Fit::least);
  EXPECT_EQ(equal.shares[0].methods.at(0).value, "0.001");
  EXPECT_EQ(equal.shares[1].methods.at(0).fit, Fit::most);
  EXPECT_EQ(equal.shares[1].methods.at(0).value, "1");
  // scoutattention refuses budgets without room for sinks, a block that is chosen and the newest one.
  const std::string least = equal.shares[0].methods.at(1).value;
  EXPECT_THROW(make_method("scoutattention:budget=" + std::to_string(std::stoi(least) - 16)), InputError);
  EXPECT_EQ(equal.shares[0].methods.at(1).fit, Fit::least);
  EXPECT_EQ(equal.shares[1].methods.at(1).value, "400");
}

TEST(FindEqual, WhatAnOptionDoesNotChangeIsAsGiven) {
  const Equal equal = find_equal({Measure::touched, {0.5}}, {"quest", "full"}, 100, [](const std::string& spec) {
    return Bytes{spec.starts_with("quest") ? 700.0 : 1000.0};
  });
  ASSERT_EQ(equal.as_given.size(), 2u);
  EXPECT_EQ(equal.as_given[0].spec, "quest");
  EXPECT_THAT(equal.specs(), ElementsAre("quest", "full"));
  EXPECT_TRUE(equal.shares[0].methods.empty());
}

TEST(FindEqual, ErrorsTurnTheOtherWay) {
  const auto bytes = [](const std::string& spec) {
    return Bytes{spec == "full" ? 1000.0 : -200 * std::log10(option_of(spec, "tau"))};
  };
  const Equal equal = find_equal({Measure::touched, {0.2, 0.4}}, {"fluxion:heads=oracle"}, 100, bytes);
  EXPECT_EQ(equal.shares[0].methods.at(0).spec, "fluxion:heads=oracle,tau=0.1");
  EXPECT_EQ(equal.shares[1].methods.at(0).spec, "fluxion:heads=oracle,tau=0.01");
}

TEST(FindEqual, WhereThereAreFewValuesItTakesOneOfThem) {
  const auto bytes = [](const std::string& spec) {
    if (spec != "full") make_method(spec);  // throws for other errors than there are heads of
    return Bytes{spec == "full" ? 1000.0 : -200 * std::log10(option_of(spec, "tau"))};
  };
  const Equal equal = find_equal({Measure::touched, {0.01, 0.19, 0.9}}, {"fluxion:heads=published"}, 100, bytes);
  EXPECT_EQ(equal.shares[0].methods.at(0).value, "0.2");
  EXPECT_EQ(equal.shares[0].methods.at(0).fit, Fit::least);
  EXPECT_EQ(equal.shares[1].methods.at(0).value, "0.1");
  EXPECT_EQ(equal.shares[1].methods.at(0).fit, Fit::set);
  EXPECT_EQ(equal.shares[2].methods.at(0).value, "0.02");
}

TEST(FindEqual, WhatCannotRunSaysWhy) {
  const Equal equal = find_equal({Measure::touched, {0.3}}, {"full", "asyncspade", "quest"}, 1000, invented);
  ASSERT_EQ(equal.as_given.size(), 2u);
  EXPECT_EQ(equal.as_given[1],
            (EqualMethod{"asyncspade", "asyncspade", "", "there is no peer.", std::nullopt, Fit::refused}));
  EXPECT_THAT(equal_found_text(equal, "", true), AllOf(HasSubstr("| refused | asyncspade | - | - |"),
                                                       HasSubstr("asyncspade is refused: there is no peer.")));
  EXPECT_THROW(find_equal({Measure::touched, {0.3}}, {"quest"}, 1000,
                          [](const std::string&) {
                            return Bytes{0, "no room."};
                          }),
               InputError);
}

TEST(FindEqual, AMethodIsListedOnce) {
  EXPECT_THROW(find_equal({Measure::touched, {0.5}}, {"full", "quest", "full"}, 100, invented), InputError);
  EXPECT_THROW(find_equal({Measure::touched, {0.5}}, {"quest", "quest:budget=128"}, 100, invented), InputError)
      << "they would be one";
  EXPECT_NO_THROW(find_equal({Measure::touched, {0.5}}, {"quest", "quest:page=32"}, 100, invented));
}

TEST(Specs, BeginWithTheBaselineAndHaveNothingTwice) {
  const EqualBytes asked{Measure::touched, {0.33, 0.34, 0.6}};
  Equal equal = find_equal(asked, {"full", "quest", "full-host"}, 2000, invented);
  const auto set = [&](std::size_t share) { return equal.shares[share].methods.at(0).spec; };
  EXPECT_EQ(set(0), set(1)) << "both are closest to 300 bytes";
  EXPECT_THAT(equal.specs(), ElementsAre("full", "full-host", set(0), set(2)));
  equal = find_equal(asked, {"quest", "full-host", "full"}, 2000, invented);
  EXPECT_THAT(equal.specs(), ElementsAre(set(0), "full-host", "full", set(2)));
}

TEST(EqualFile, IsReadBackForTheSameQuestionOnly) {
  const EqualBytes asked{Measure::touched, {0.3, 0.4}};
  const std::vector<std::string> methods = {"quest", "full", "hybrid-fixed"};
  const Equal equal = find_equal(asked, methods, 2000, invented);
  const TemporaryFolder root;
  const auto read = [&](const std::string& text, const EqualBytes& question, const std::vector<std::string>& names) {
    write_bytes(root / kEqualFile, text);
    return read_equal(root / "", question, names);
  };
  EXPECT_FALSE(read_equal(root / "", asked, methods)) << "there is none";
  const std::string text = equal_json(equal);
  ASSERT_TRUE(read(text, asked, methods));
  EXPECT_EQ(*read(text, asked, methods), equal);
  EXPECT_FALSE(read(text, {Measure::device, {0.3, 0.4}}, methods));
  EXPECT_FALSE(read(text, {Measure::touched, {0.3}}, methods));
  EXPECT_FALSE(read(text, asked, {"quest", "full"}));
  EXPECT_FALSE(read(text, asked, {"quest", "full", "tova"}));
  EXPECT_FALSE(read(text, asked, {"hybrid-fixed", "full", "quest"}));
  std::string unknown = text;
  unknown.replace(unknown.find("\"method\": \"full\""), 16, "\"method\": \"fool\"");
  EXPECT_FALSE(read(unknown, asked, methods));
  for (const char* damaged : {"", "{}", "[]", "{\"schema_version\": 1}"}) EXPECT_FALSE(read(damaged, asked, methods));
  for (std::size_t cut = 0; cut < text.size(); cut += 7) EXPECT_FALSE(read(text.substr(0, cut), asked, methods)) << cut;
}

TEST(EqualText, PutsWhatCameOfItBesideAccuracy) {
  const TemporaryFolder root;
  Summary summary = summarise(RunFolder::open(write_run(root)));
  ASSERT_EQ(summary.methods.size(), 2u);
  summary.methods[0].latency->touched = 2e6;
  summary.methods[1].latency->touched = 0.43e6;
  const EqualMethod hybrid{"hybrid", "hybrid:budget=0.2", "budget", "0.2", 4e5, Fit::set};
  const Equal equal{
      {Measure::touched, {0.2}}, {"full", "hybrid"}, 1.9e6, {{"full", "full", "", "", 1.9e6}}, {{0.2, {hybrid}}}};
  std::string text = equal_text(equal, summary, /*markdown=*/true);
  EXPECT_THAT(text, AllOf(HasSubstr("At equal bytes touched"), HasSubstr("| 20.0 | hybrid:budget=0.2 | 21.5 | 75.0"),
                          HasSubstr("| - | full | 100.0 | 100.0"), HasSubstr("2 MB"),
                          HasSubstr("Off by more than 5 % of the share")));
  EXPECT_THAT(text, HasSubstr("difference to full, points"));
  Summary unfinished = summary;
  unfinished.methods.erase(unfinished.methods.begin());
  EXPECT_THAT(equal_text(equal, unfinished, true), HasSubstr("difference to full, points"));
  summary.methods[1].latency->touched = 0.41e6;
  text = equal_text(equal, summary, /*markdown=*/true);
  EXPECT_THAT(text, ::testing::Not(HasSubstr("Off by")));
  Equal least = equal;
  least.shares[0].methods[0].fit = Fit::least;
  EXPECT_THAT(equal_text(least, summary, true),
              AllOf(HasSubstr("| least | hybrid:budget=0.2 | 20.5 |"), HasSubstr("comes to more than the share")));
  // At two shares it is the same one, and stands there once.
  least.shares.push_back({0.1, least.shares[0].methods});
  const std::string twice = equal_text(least, summary, true);
  EXPECT_EQ(twice.find("hybrid:budget=0.2"), twice.rfind("hybrid:budget=0.2"));
  summary.methods.erase(summary.methods.begin());  // shares are then of what full came to where budgets were set
  EXPECT_THAT(equal_text(equal, summary, true), HasSubstr("| 21.6 |"));
  // On a terminal no line is too long.
  std::istringstream lines(equal_text(equal, summary, false));
  for (std::string line; std::getline(lines, line);) EXPECT_LE(text_columns(line), kTerminalWidth) << line;
}

}  // namespace
}  // namespace tandem::eval
