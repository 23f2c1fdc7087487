#include "eval/run/documents.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tandem::eval {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<std::uint32_t> numbers(std::vector<std::string_view> texts) {
  return number_documents(texts);
}

TEST(Documents, AreNumberedWhereOneIsThereTwice) {
  EXPECT_THAT(numbers({"b", "a", "b", "c", "a"}), ElementsAre(0u, 1u, 0u, 2u, 1u));
  EXPECT_THAT(numbers({"a", "a", "b"}), ElementsAre(0u, 0u, 1u));
}

TEST(Documents, OfOneQuestionEachNeedNoNumbers) {
  EXPECT_THAT(numbers({"a", "b", "c"}), IsEmpty());
  EXPECT_THAT(numbers({}), IsEmpty());
}

TEST(Documents, MayBeOneAlone) {
  EXPECT_THAT(numbers({"a", "a", "a"}), ElementsAre(0u, 0u, 0u));
  EXPECT_THAT(numbers({"a"}), IsEmpty());
}

}  // namespace
}  // namespace tandem::eval
