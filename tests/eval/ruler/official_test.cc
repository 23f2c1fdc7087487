#include "eval/ruler/official.h"

#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/common/error.h"
#include "tests/test_data.h"

namespace tandem::eval {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
namespace fs = std::filesystem;

class OfficialFiles : public ::testing::Test {
 protected:
  OfficialFiles() : root_(fs::temp_directory_path() / ("tandem_official_" + std::to_string(getpid()))) {
    fs::remove_all(root_);
  }
  ~OfficialFiles() override { fs::remove_all(root_); }
  fs::path write(const std::string& name, const std::string& text) const {
    fs::create_directories((root_ / name).parent_path());
    std::ofstream(root_ / name, std::ios::binary) << text;
    return root_ / name;
  }
  template <class Call>
  static std::string error(const Call& call) {
    try {
      call();
    } catch (const InputError& e) {
      return e.what();
    }
    return "";
  }
  fs::path root_;
};

constexpr const char* kTwo =
    "{\"index\": 0, \"input\": \"a b\", \"outputs\": [\"x\"], \"length\": 9}\n"
    "{\"index\": 7, \"input\": \"c\", \"outputs\": [\"y\", \"z\"], \"answer_prefix\": \" The answer is\"}\r\n\n";

std::uint32_t bytes(std::string_view text) {
  return static_cast<std::uint32_t>(text.size());
}

TEST_F(OfficialFiles, FoldersAreReadAsUpstreamLaysThemOut) {
  write("4096/niah_single_1.jsonl", kTwo);
  write("4096/qa_1/validation.jsonl", kTwo);
  write("8192/niah_single_1.jsonl", kTwo);
  write("8192/qa_1/validation.jsonl", "{\"index\": 3, \"input\": \"q\", \"outputs\": [\"w\"]}");
  write("8192/notes.txt", "not a sample");
  const OfficialRuler files(root_);
  EXPECT_THAT(files.tasks(), ElementsAre("niah_single_1", "qa_1"));
  EXPECT_THAT(files.lengths(), ElementsAre(4096u, 8192u));
  EXPECT_EQ(files.samples(), 1u);
  const RulerSample sample = files.sample("niah_single_1", 4096, 1, bytes);
  EXPECT_EQ(sample.prompt, "c The answer is");
  EXPECT_THAT(sample.answers, ElementsAre("y", "z"));
  EXPECT_EQ(sample.prompt_tokens, 15u);
  EXPECT_EQ(sample.max_new_tokens, 128u);
  EXPECT_FALSE(sample.depth) << "nothing says where the needle is";
  EXPECT_EQ(files.sample("qa_1", 8192, 0, bytes).max_new_tokens, 32u);
  const std::string hash = files.hash();
  EXPECT_EQ(OfficialRuler(root_).hash(), hash);
  write("8192/niah_single_1.jsonl", "{\"index\": 0, \"input\": \"a c\", \"outputs\": [\"x\"]}");
  EXPECT_NE(OfficialRuler(root_).hash(), hash);
  EXPECT_EQ(OfficialRuler(root_ / "4096/niah_single_1.jsonl").samples(), 2u);
}

TEST_F(OfficialFiles, MalformedLinesNameFileAndLine) {
  const std::string good = "{\"index\": 0, \"input\": \"a\", \"outputs\": [\"x\"]}\n";
  const auto second = [&](const std::string& line) { return error([&] { parse_official(good + line, "f.jsonl"); }); };
  EXPECT_THAT(second("{\"index\": 1, \"inp"), HasSubstr("f.jsonl, line 2: not a JSON object"));
  EXPECT_THAT(second("[1]"), HasSubstr("f.jsonl, line 2: not a JSON object"));
  EXPECT_THAT(second("{\"index\": 1, \"outputs\": [\"x\"]}"), HasSubstr("'input' is missing"));
  EXPECT_THAT(second("{\"index\": 1, \"input\": 5, \"outputs\": [\"x\"]}"), HasSubstr("'input' must be a string"));
  EXPECT_THAT(second("{\"index\": 1, \"input\": \"a\", \"outputs\": []}"), HasSubstr("'outputs' must be a list"));
  EXPECT_THAT(second("{\"index\": 1, \"input\": \"a\", \"outputs\": [3]}"), HasSubstr("'outputs' must be a string"));
  EXPECT_EQ(parse_official(good + good + "{\"index\": -1, \"input\": \"a\", \"outputs\": [\"x\"]}", "f").size(), 3u)
      << "upstream's needle files repeat an index, and -1 stands for none";
  EXPECT_THAT(error([] { parse_official("\n\n", "f.jsonl"); }), HasSubstr("holds no sample"));
}

TEST_F(OfficialFiles, WrongPathsAreSentences) {
  EXPECT_THAT(error([&] { OfficialRuler{root_}; }), HasSubstr("there is no file or folder"));
  fs::create_directories(root_);
  EXPECT_THAT(error([&] { OfficialRuler{root_}; }), HasSubstr("holds no .jsonl file"));
  write("4096/needles.jsonl", kTwo);
  EXPECT_THAT(error([&] { OfficialRuler{root_}; }), HasSubstr("is no RULER task"));
  fs::remove_all(root_ / "4096");
  write("vt.jsonl", kTwo);
  EXPECT_THAT(error([&] { OfficialRuler{root_}; }), HasSubstr("as in 4096/vt.jsonl"));
  fs::remove(root_ / "vt.jsonl");
  write("4096/vt.jsonl", kTwo);
  write("8192/cwe.jsonl", kTwo);
  EXPECT_THAT(error([&] { OfficialRuler{root_}; }), HasSubstr("give files of the same lengths"));
  fs::remove_all(root_ / "8192");
  write("4096/vt/validation.jsonl", kTwo);
  EXPECT_THAT(error([&] { OfficialRuler{root_}; }), HasSubstr("two files of vt at length 4096"));
}

TEST(OfficialRulerData, ARealFile) {
  const auto folder = tandem::testing::test_data("ruler/official");
  if (folder.empty()) GTEST_SKIP() << tandem::testing::missing_test_data("ruler/official");
  const OfficialRuler files(folder);
  EXPECT_THAT(files.tasks(), ElementsAre("niah_multikey_3"));
  EXPECT_EQ(files.samples(), 500u);
  const RulerSample sample = files.sample("niah_multikey_3", 4096, 0, bytes);
  EXPECT_EQ(sample.prompt.size(), 6142u);
  EXPECT_TRUE(sample.prompt.ends_with("mentioned in the provided text is"));
  EXPECT_THAT(sample.answers, ElementsAre("1ee34dc4-3b04-4a8b-805b-fdc94e7ed827"));
}

}  // namespace
}  // namespace tandem::eval
