#include "eval/scoring/segment_chinese.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/common/error.h"
#include "tests/engine/common/own_home.h"
#include "tests/eval/scoring/segmenter.h"

namespace tandem::eval {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Strings = std::vector<std::string>;

TEST(SegmentChinese, WordsPutTogetherAreTheText) {
  if (!testing::has_segmenter()) GTEST_SKIP() << "not installed: jieba";
  const Strings texts = {"南京市长江大桥", "", "a\n \"b\\c\" 😀\u0001", std::string("x\0y", 3)};
  const auto words = segment_chinese(texts);
  ASSERT_EQ(words.size(), texts.size());
  EXPECT_THAT(words[0], ElementsAre("南京市", "长江大桥"));
  for (std::size_t i = 0; i < texts.size(); ++i) {
    std::string together;
    for (const auto& word : words[i]) together += word;
    EXPECT_EQ(together, texts[i]);
  }
}

TEST(SegmentChinese, NoTextsNeedNoProcess) {
  const testing::OwnHome home;
  home.use();
  home.write("eval/scoring/segment_chinese.py", "import sys; sys.exit(1)");
  EXPECT_THAT(segment_chinese({}), IsEmpty());
}

/// What is said where the script is another one; "" where nothing is thrown.
template <class Error>
std::string message_with(const std::string& script) {
  const testing::OwnHome home;
  home.use();
  home.write("eval/scoring/segment_chinese.py", script);
  try {
    segment_chinese(Strings{"x", "y"});
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(SegmentChinese, AMissingPackageIsNamed) {
  EXPECT_THAT(message_with<InputError>("import sys; sys.exit(4)"),
              AllOf(HasSubstr("python3-jieba"), HasSubstr("install_packages.sh --chinese")));
}

TEST(SegmentChinese, AFailingScriptIsARunError) {
  EXPECT_THAT(message_with<RunError>("import sys; sys.exit(1)"), HasSubstr("segment_chinese.py failed"));
  EXPECT_THAT(message_with<RunError>("print('[]')"), HasSubstr("cut 1 texts into words, not 2"));
  EXPECT_THAT(message_with<RunError>("print('[1]')"), HasSubstr("a line that is no list of words"));
  EXPECT_THAT(message_with<RunError>("print('{')"), HasSubstr("a line that is no list of words"));
}

}  // namespace
}  // namespace tandem::eval
