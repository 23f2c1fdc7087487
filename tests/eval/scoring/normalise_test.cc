#include "eval/scoring/normalise.h"

#include <gtest/gtest.h>

namespace tandem::eval {
namespace {

TEST(Normalise, PunctuationArticlesAndSpacesGo) {
  EXPECT_EQ(normalise_answer("The  quick,\n brown fox!"), "quick brown fox");
  EXPECT_EQ(normalise_answer("A well-known (an) U.S. city"), "wellknown us city");
  EXPECT_EQ(normalise_answer("the a an"), "");
  EXPECT_EQ(normalise_answer(""), "");
}

TEST(Normalise, PunctuationIsDroppedBeforeArticlesAreLookedFor) {
  EXPECT_EQ(normalise_answer("a. a-n x_the_y"), "xthey");  // "a-n" has become "an"
}

TEST(Normalise, ArticlesEndWhereUnicodesLettersEnd) {
  EXPECT_EQ(normalise_answer("thé the北京 the３ théa"), "thé the北京 the３ théa");
  EXPECT_EQ(normalise_answer("the，an。x"), "， 。x");  // Chinese punctuation stays, articles beside it do not
  EXPECT_EQ(normalise_answer("the\u0301x a\u0301"), "\u0301x \u0301");  // a combining mark is no letter for re's \b
  EXPECT_EQ(normalise_answer("x\u3000the\u00a0y"), "x y");
}

TEST(Normalise, ChinesePunctuationIsUpstreamsList) {
  EXPECT_EQ(normalise_chinese_answer("他说：“Hi, 你好！”……\n"), "他说hi你好");
  EXPECT_EQ(normalise_chinese_answer("《红楼梦》〈附录〉【三】"), "《红楼梦〈附录〉三");  // 《 and 〈 〉 are not in it
  EXPECT_EQ(normalise_chinese_answer("the a"), "thea");
  EXPECT_EQ(normalise_chinese_answer("。 \u3000"), "");
}

}  // namespace
}  // namespace tandem::eval
