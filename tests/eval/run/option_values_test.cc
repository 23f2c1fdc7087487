#include "eval/run/option_values.h"

#include <functional>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <random>
#include <string>

#include "engine/common/error.h"

namespace tandem::eval {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string sentence(const std::function<void()>& call) {
  try {
    call();
  } catch (const InputError& error) {
    return error.what();
  }
  return "no error";
}

TEST(ParseLengths, TakesTokensAndSuffixesInTheGivenOrder) {
  EXPECT_THAT(parse_lengths("4K,32768", "--lengths"), ElementsAre(4096u, 32768u));
  EXPECT_THAT(parse_lengths(" 128k , 1 ", "--lengths"), ElementsAre(131072u, 1u));
  EXPECT_THAT(parse_lengths("1M,16M", "--lengths"), ElementsAre(1048576u, 16777216u));
}

TEST(ParseReal, TakesFiniteNumbersAlone) {
  EXPECT_EQ(parse_real("0.05", "--alpha"), 0.05);
  EXPECT_EQ(parse_real("-1e-3", "--alpha"), -1e-3);
  for (const char* bad : {"", " 1", "1 ", "+1", "5%", "1,5", "0x10", "nan", "inf", "1e999", "five"})
    EXPECT_EQ(sentence([&] { parse_real(bad, "--alpha"); }),
              "--alpha is '" + std::string(bad) + "': give a number, for example 0.05.");
}

TEST(ParseLengths, RefusesEverythingElseWithASentence) {
  for (const char* bad :
       {"", ",", "4K,", ",4K", "4KB", "4.5K", "-4K", "+4K", "0x10", "4K 8K", "K", "1e3", "four", "4K;8K"}) {
    EXPECT_THAT(sentence([&] { parse_lengths(bad, "--lengths"); }),
                ::testing::AllOf(HasSubstr("--lengths: '"), HasSubstr("is not a length")))
        << bad;
  }
  for (const char* bad : {"0", "0K", "17M", "16777217", "18446744073709551615", "18014398509481984K"}) {
    EXPECT_THAT(sentence([&] { parse_lengths(bad, "--lengths"); }), HasSubstr("outside 1 to 16M")) << bad;
  }
  EXPECT_THAT(sentence([] { parse_lengths("99999999999999999999", "--lengths"); }), HasSubstr("is not a length"));
  EXPECT_THAT(sentence([] { parse_lengths("4K,8K,4096", "--lengths"); }), HasSubstr("4096 ('4096') is given twice"));
}

TEST(ParseLengths, ReadsBackWhatIsWritten) {
  std::mt19937 random(7);
  for (int round = 0; round < 500; ++round) {
    const std::uint32_t kilo = std::uniform_int_distribution<std::uint32_t>(1, 16384)(random);
    const std::uint32_t plain = std::uniform_int_distribution<std::uint32_t>(1, 16777216)(random);
    if (plain == kilo * 1024) continue;
    EXPECT_THAT(parse_lengths(std::to_string(kilo) + "K," + std::to_string(plain), "x"),
                ElementsAre(kilo * 1024, plain));
  }
}

TEST(ParseCount, KeepsToItsLimits) {
  EXPECT_EQ(parse_count("20", "--samples", 1, 500), 20u);
  EXPECT_EQ(parse_count(" 1", "--samples", 1, 500), 1u);
  EXPECT_EQ(parse_count("18446744073709551615", "--seed", 0, ~std::uint64_t{0}), ~std::uint64_t{0});
  for (const char* bad : {"", "0", "501", "2.0", "-1", "4K", "1 2", "18446744073709551616"}) {
    EXPECT_THAT(sentence([&] { parse_count(bad, "--samples", 1, 500); }), HasSubstr("a whole number from 1 to 500"))
        << bad;
  }
}

TEST(ShellWord, IsQuotedWhereAShellWouldReadMore) {
  for (const char* plain : {"embedded", "hybrid-fixed:budget=0.1,window=4", "../a_b/c.json", "25%"})
    EXPECT_EQ(shell_word(plain), plain);
  EXPECT_EQ(shell_word("a b.txt"), "'a b.txt'");
  EXPECT_EQ(shell_word("it's"), "'it'\\''s'");
  EXPECT_EQ(shell_word("$(x)"), "'$(x)'");
  EXPECT_EQ(shell_word(""), "''");
}

TEST(ParseSize, KnowsBinaryAndDecimalUnits) {
  EXPECT_EQ(parse_size("4096", "--memory"), 4096u);
  EXPECT_EQ(parse_size("17B", "--memory"), 17u);
  EXPECT_EQ(parse_size("2G", "--memory"), std::uint64_t{2} << 30);
  EXPECT_EQ(parse_size("2gib", "--memory"), std::uint64_t{2} << 30);
  EXPECT_EQ(parse_size("2GB", "--memory"), 2000000000u);
  EXPECT_EQ(parse_size("1.5 K", "--memory"), 1536u);
  EXPECT_EQ(parse_size("3T", "--memory"), std::uint64_t{3} << 40);
  for (const char* bad : {"", "G", "2X", "2GG", "-2G", "nan", "inf", "1e3", "2 G B", ".5G"}) {
    EXPECT_THAT(sentence([&] { parse_size(bad, "--memory"); }), HasSubstr("is not a size")) << bad;
  }
  for (const char* bad : {"0", "0.1", "99999999999T"}) {
    EXPECT_THAT(sentence([&] { parse_size(bad, "--memory"); }), HasSubstr("outside")) << bad;
  }
}

}  // namespace
}  // namespace tandem::eval
