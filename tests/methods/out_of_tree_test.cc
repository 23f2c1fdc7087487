// A method that lies outside methods/ (TANDEM_METHODS): the registry has it, and it does what its page says.
#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <iterator>

#include "engine/common/paths.h"
#include "methods/registry.h"
#include "tests/engine/runtime/tiny.h"

namespace tandem::testing {
namespace {

std::string text_of(const std::filesystem::path& file) {
  std::ifstream in(file);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

TEST(OutOfTree, TheRegistryEndsWithIt) {
  EXPECT_EQ(method_registry().back().name, "tail");
  EXPECT_EQ(make_method("tail:keep=64")->spelled_out(), "tail:keep=64");
  EXPECT_THAT(default_comparison(true), ::testing::Contains("tail"));
}

// What lies before the last `keep` tokens cannot change the next ones, what lies behind can.
TEST(OutOfTree, TailAttendsTheLastTokensOnly) {
  Bench bench(tiny_model(true, 1));  // with more layers, earlier tokens reach the last ones through those between
  const std::vector<std::int32_t> prompt = random_prompt(200, 3);
  const auto logits = [&](const std::vector<std::int32_t>& tokens) {
    std::vector<std::vector<float>> out;
    bench.decode(*make_method("tail:keep=50"), {tokens}, 1, {.logits = &out});
    return out.at(0);
  };
  std::vector<std::int32_t> before = prompt, behind = prompt;
  before[149] = (before[149] + 1) % 96;
  behind[150] = (behind[150] + 1) % 96;
  EXPECT_EQ(logits(before), logits(prompt));
  EXPECT_NE(logits(behind), logits(prompt));
}

TEST(OutOfTree, ThePageShowsThisCode) {
  const std::string page = text_of(data_path("docs") / "add_a_method.md");
  ASSERT_FALSE(page.empty());
  for (const char* file : {"tail.cc", "tail.h"})
    EXPECT_THAT(page, ::testing::HasSubstr("```cpp\n" +
                                           text_of(data_path("tests") / "methods/out_of_tree/tail" / file) + "```"))
        << file;
}

}  // namespace
}  // namespace tandem::testing
