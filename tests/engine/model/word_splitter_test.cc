#include "engine/model/word_splitter.h"

#include "tests/engine/model/model_folder.h"

namespace tandem::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Words = std::vector<std::string>;

Words words(const std::vector<std::string>& expressions, const std::string& text) {
  Words out;
  WordSplitter(expressions, "file").split(text, [&out](std::string_view word) {
    out.emplace_back(word);
    return true;
  });
  return out;
}

// What the tokenizers library (Oniguruma) gives.
TEST(WordSplitter, PublishedExpressionsGiveTheReferencesWords) {
  EXPECT_EQ(words({kGpt2Words}, "I'll go  to 12345 ${x}!\n"),
            (Words{"I", "'ll", " go", " ", " to", " 12345", " ${", "x", "}!", "\n"}));
  EXPECT_EQ(words({kLlama3Words}, "I'LL go  to 12345 ${x}!\n"),
            (Words{"I", "'LL", " go", " ", " to", " ", "123", "45", " ${", "x", "}!\n"}));
  EXPECT_EQ(words({kQwen2Words}, "y 12"), (Words{"y", " ", "1", "2"}));
  const std::string cl100k =
      R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+)";
  EXPECT_EQ(words({cl100k}, "It'S  a\n\n1234 !!"), (Words{"It", "'S", " ", " a", "\n\n", "123", "4", " !!"}));
  const std::vector<std::string> coder = {R"([\r\n])", R"(\s?\p{L}+)", R"(\s?\p{P}+)", "[一-龥ࠀ-一가-퟿]+"};
  EXPECT_EQ(words(coder, "Hi, 汉字 가!\nx"), (Words{"Hi", ",", " ", "汉字", " ", "가", "!", "\n", "x"}));
  const std::string v3 =
      R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
  EXPECT_EQ(words({R"(\p{N}{1,3})", "[一-龥぀-ゟ゠-ヿ]+", v3}, "$abc [x] 1234 汉字ひ-y"),
            (Words{"$abc", " [", "x", "]", " ", "123", "4", " ", "汉字ひ", "-y"}));
}

TEST(WordSplitter, LongTextsOfOneKindStayWithinTheBudget) {
  constexpr std::size_t kMany = 100'000;
  const std::string cased =
      R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
  for (const std::string& expression :
       {std::string(kGpt2Words), std::string(kLlama3Words), std::string(kQwen2Words), cased}) {
    for (const char* repeated : {" ", "\n", " \n", "A", "a", "Aa", "汉", "1", "!", " x", "'s", "\t \r"}) {
      std::string text;
      while (text.size() < kMany) text += repeated;
      std::string joined;
      for (const std::string& word : words({expression}, text + "end")) joined += word;
      EXPECT_EQ(joined.size(), text.size() + 3) << expression << " on '" << repeated << "'";
    }
  }
}

TEST(WordSplitter, AMatchIsFoundHoweverFarItIs) {
  for (const std::size_t before : {0u, 1u, 4095u, 4096u, 4097u, 100'000u}) {
    const std::string far(before, 'a');
    std::string wide;
    for (std::size_t i = 0; i < before; ++i) wide += "ü";
    Words expected = {"b", "c"};
    if (before > 0) expected.insert(expected.begin(), far);
    EXPECT_EQ(words({"b"}, far + "bc"), expected) << before;
    if (before > 0) expected[0] = wide;
    EXPECT_EQ(words({"b"}, wide + "bc"), expected) << before;
    EXPECT_EQ(words({"(a+a+)+b|c"}, wide + "c"), before > 0 ? (Words{wide, "c"}) : Words{"c"}) << before;
  }
}

TEST(WordSplitter, ATextHasABudgetOfSteps) {
  // By itself, behind what matches, in every place of the text, and in words that another expression has left.
  const std::string worst = std::string(40, 'a') + " b";  // without a b the library need not try
  std::string often;
  for (int i = 0; i < 10'000; ++i) often += "aaaaaaaaaaaa ";
  for (const auto& [expressions, text] : std::vector<std::pair<std::vector<std::string>, std::string>>{
           {{"(a+a+)+b"}, worst},
           {{"(a+a+)+b| ?x"}, " x x x" + worst},
           {{"(a*a*a*a*a*a*a*a*)b"}, std::string(20'000, 'a') + " b"},
           {{"(?:a|a)+b|."}, often + "b"},
           {{R"(\s)", "(a+a+)+b"}, "x y " + std::string(40, 'a') + "cb"}}) {
    EXPECT_THAT(sentence_of([&, e = expressions, t = text] { words(e, t); }),
                AllOf(HasSubstr("file: its expression"), HasSubstr("too many steps")))
        << expressions[0];
  }
}

TEST(WordSplitter, WhatLibrariesReadDifferentlyIsRefusedByName) {
  struct Case {
    const char* expression;
    const char* part;
  };
  for (const Case& c : std::vector<Case>{{R"(\w+|\W+)", R"('\w')"},
                                         {R"(\W+)", R"('\W')"},
                                         {R"(\bx)", R"('\b')"},
                                         {R"(x\B)", R"('\B')"},
                                         {R"(\h+)", R"('\h')"},
                                         {R"(\H+)", R"('\H')"},
                                         {R"(\R)", R"('\R')"},
                                         {R"(\X)", R"('\X')"},
                                         {R"(x\Z)", R"('\Z')"},
                                         {R"(\v)", R"('\v')"},
                                         {R"(\D+)", R"('\D')"},
                                         {R"((a)\1)", R"('\1')"},
                                         {R"(\xe9)", R"('\x')"},
                                         {"x\\", "'\\"},
                                         {R"(\pL)", R"('\p')"},
                                         {R"(\p{Han}+)", R"('\p{Han}')"},
                                         {R"(\p{Alpha}+)", R"('\p{Alpha}')"},
                                         {R"(\p{^L}+)", R"('\p{^L}')"},
                                         {R"(^\s+)", "'^'"},
                                         {R"(\s+$)", "'$'"},
                                         {R"(\p{N}{1,3}+)", "'{1,3}+'"},
                                         {R"(\p{N}{3}+)", "'{3}+'"},
                                         {R"(\p{N}{,3})", "'{,3}'"},
                                         {R"(\p{L}{2}?)", "'{2}?'"},
                                         {"a{x}", "'{'"},
                                         {"(?m:.)+", "'(?m'"},
                                         {"(?i)x", "'(?i'"},
                                         {"(?>a+)", "'(?>'"},
                                         {"(?<name>a)", "'(?<'"},
                                         {"(?#a)b", "'(?#'"},
                                         {"(*UCP)a", "'(*'"},
                                         {"(?i:é)", "outside ASCII"},
                                         {"(?i:[é])", "outside ASCII"},
                                         {R"((?i:\x{e9}))", "(?i:"},
                                         {"(?i:stra)", "\"st\""},
                                         {"(?i:a(b|Ss))", "\"ss\""},
                                         {R"((?i:\p{Lu}))", R"('\p{Lu}')"},
                                         {"[a[0-9]]+", "'['"},
                                         {"[[:punct:]]+", "'['"},
                                         {"[a-z&&[^e]]", "'&&'"},
                                         {R"([\w]+)", R"('\w')"},
                                         {R"([\h]+)", R"('\h')"},
                                         {R"([^\S]+)", R"('\S')"},
                                         {"[]a]", "'[]'"},
                                         {R"([+-\d])", "'-'"},
                                         {R"([\s-x])", "'-x'"}}) {
    EXPECT_THAT(sentence_of([&] { pcre2_expression(c.expression, "some.json"); }),
                AllOf(HasSubstr("some.json"), HasSubstr(c.expression), HasSubstr(c.part)));
  }
  EXPECT_THAT(sentence_of([&] { words({R"(\p{L}*|\p{N})"}, "1"); }), HasSubstr("empty text"));
  EXPECT_THAT(sentence_of([&] { words({"(["}, "1"); }), HasSubstr("cannot be compiled"));
}

TEST(WordSplitter, WhatIsAlikeStays) {
  for (const char* same :
       {R"([\-\[\]^$&.]+)", R"(a{2}b{2,}c{2,3}?d{2,}?)", R"((?<=a)b|(?<!a)c)", R"(\x{e9}|\.\\\$\{)", R"([a-z0-9_-])",
        R"([^\]-])", "a|b*+|c??", R"([\p{Lu}\P{L}\d\r\n\t])", "(?i:[sdmt]|ll|ve|re)s"})
    EXPECT_EQ(pcre2_expression(same, "file"), same);
  EXPECT_EQ(pcre2_expression(R"(\s\S[\s])", "file"), R"([\t-\r \x{85}\p{Z}][^\t-\r \x{85}\p{Z}][\t-\r \x{85}\p{Z}])");
}

}  // namespace
}  // namespace tandem::testing
