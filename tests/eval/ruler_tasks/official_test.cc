#include "eval/ruler_tasks/official.h"

#include <filesystem>
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "engine/common/error.h"
#include "tests/files.h"
#include "tests/golden/golden.h"
#include "tests/test_data.h"

namespace tandem::eval {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
namespace fs = std::filesystem;

class OfficialFiles : public ::testing::Test {
 protected:
  fs::path write(const std::string& name, const std::string& text) const {
    fs::create_directories((root_ / name).parent_path());
    testing::write_bytes(root_ / name, text);
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
  const testing::TemporaryFolder folder_;
  const fs::path& root_ = folder_.path();
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
  EXPECT_THAT(second("{\"index\": 1, \"inp"), HasSubstr("f.jsonl, line 2: not valid JSON from byte"));
  EXPECT_THAT(second("[1]"), HasSubstr("f.jsonl, line 2: not a JSON object"));
  EXPECT_THAT(second("{\"index\": 1, \"outputs\": [\"x\"]}"), HasSubstr("'input' is missing"));
  EXPECT_THAT(second("{\"index\": 1, \"input\": 5, \"outputs\": [\"x\"]}"), HasSubstr("'input' must hold text"));
  EXPECT_THAT(second("{\"index\": 1, \"input\": \"a\", \"outputs\": []}"), HasSubstr("'outputs' must be a list"));
  EXPECT_THAT(second("{\"index\": 1, \"input\": \"a\", \"outputs\": [\"x\", \"\"]}"),
              HasSubstr("an answer without text"));
  EXPECT_THAT(second("{\"index\": 1, \"input\": \"a\", \"outputs\": [3]}"), HasSubstr("'outputs' must hold text"));
  const std::string other = "{\"index\": 0, \"input\": \"b\", \"outputs\": [\"x\"]}\n";
  EXPECT_EQ(parse_official(good + other + "{\"index\": -1, \"input\": \"c\", \"outputs\": [\"x\"]}", "f").size(), 3u)
      << "upstream's needle files repeat an index, and -1 stands for none";
  EXPECT_THAT(error([&] { parse_official(good + other + good, "f.jsonl"); }),
              HasSubstr("f.jsonl, line 3: 'input' is that of an earlier line"));
  EXPECT_THAT(error([] { parse_official("\n\n", "f.jsonl"); }), HasSubstr("holds no sample"));
}

TEST_F(OfficialFiles, OnlyWhatIsChosenIsOpened) {
  write("4096/niah_single_1.jsonl", kTwo);
  write("8192/niah_single_1.jsonl", kTwo);
  write("4096/vt.jsonl", kTwo);
  const std::string before = OfficialRuler(root_, {"niah_single_1"}, {4096}).hash();
  write("8192/niah_single_1.jsonl", "damaged");
  write("4096/vt.jsonl", "damaged");
  write("4096/needles.jsonl", "of no task");
  const OfficialRuler files(root_, {"niah_single_1"}, {4096});
  EXPECT_EQ(files.samples(), 2u);
  EXPECT_EQ(files.hash(), before) << "of what was chosen alone";
  EXPECT_THROW(OfficialRuler(root_, {"vt"}), InputError);
  EXPECT_THROW(OfficialRuler(root_, {}, {8192}), InputError);
}

TEST_F(OfficialFiles, LinksToFoldersAreFollowed) {
  write("elsewhere/niah_single_1.jsonl", kTwo);
  write("data/512/vt.jsonl", kTwo);
  fs::create_directory_symlink(root_ / "elsewhere", root_ / "data" / "256");
  fs::create_directory_symlink(root_ / "data", root_ / "elsewhere" / "back");
  fs::create_directory_symlink(".", root_ / "data" / "512" / "self");
  const OfficialRuler files(root_ / "data", {"niah_single_1"});
  EXPECT_THAT(files.lengths(), ElementsAre(256));
  EXPECT_THAT(files.unread(), IsEmpty()) << "links back leave nothing out";
}

TEST_F(OfficialFiles, AFolderIsReadOnceHoweverManyLinksLeadToIt) {
  write("data/00/512/vt.jsonl", kTwo);
  constexpr int kFolders = 30;
  for (int i = 1; i < kFolders; ++i) {  // 2^29 ways lead from the last to the first
    fs::create_directories(root_ / "data" / fmt::format("{:02}", i));
    for (const char* link : {"a", "b"})
      fs::create_directory_symlink(fmt::format("../{:02}", i - 1), root_ / "data" / fmt::format("{:02}", i) / link);
  }
  const OfficialRuler inside(root_ / "data");
  EXPECT_THAT(inside.lengths(), ElementsAre(512u));
  EXPECT_EQ(inside.unread().size(), 2u * (kFolders - 1)) << "every link leads to what is read at its own place";
  const OfficialRuler from_last(root_ / "data" / "29");
  EXPECT_THAT(from_last.lengths(), ElementsAre(512u));
  EXPECT_EQ(from_last.unread().size(), std::size_t{kFolders - 1}) << "the second link of each folder";
}

TEST_F(OfficialFiles, WhatIsNotChosenFollowsFromWhatIs) {
  write("4096/vt.jsonl", kTwo);
  write("4096/cwe.jsonl", kTwo);
  write("8192/cwe.jsonl", kTwo);
  write("8192/qa_1.jsonl", kTwo);
  EXPECT_THAT(OfficialRuler(root_, {"cwe"}).lengths(), ElementsAre(4096u, 8192u));
  EXPECT_THAT(OfficialRuler(root_, {"vt"}).lengths(), ElementsAre(4096u));
  EXPECT_THAT(OfficialRuler(root_, {}, {8192}).tasks(), ElementsAre("cwe", "qa_1"));
  EXPECT_THAT(OfficialRuler(root_, {"vt", "cwe"}, {4096}).tasks(), ElementsAre("vt", "cwe")) << "as asked for";
  EXPECT_THAT(error([&] {
                OfficialRuler(root_, {"cwe", "vt"}, {8192, 4096});
              }),
              HasSubstr("no file of vt at length 8192, only at 4096"));
  EXPECT_THAT(error([&] { OfficialRuler(root_, {"fwe"}); }), HasSubstr("--tasks: fwe is not among"));
  EXPECT_THAT(error([&] { OfficialRuler(root_, {}, {16384}); }), HasSubstr("--lengths: 16384 is not among"));
  EXPECT_THAT(error([&] { OfficialRuler{root_}; }), HasSubstr("no file of vt at length 8192"));
}

TEST_F(OfficialFiles, TheLengthIsTheFolderOfTheLayoutAndNoOther) {
  write("2048/4096/data/vt/validation.jsonl", kTwo);  // as run.sh leaves them
  write("2048/4096/pred/vt.jsonl", "predictions");
  write("2048/notes/cwe.jsonl", kTwo);
  write("2048/4096/extra/fwe/validation.jsonl", kTwo);
  write("99999999/qa_1.jsonl", kTwo);
  const OfficialRuler files(root_);
  EXPECT_THAT(files.tasks(), ElementsAre("vt"));
  EXPECT_THAT(files.lengths(), ElementsAre(4096u));
  EXPECT_THAT(error([&] { OfficialRuler{root_ / "2048/notes"}; }), HasSubstr("length of"));
  EXPECT_THAT(error([&] { OfficialRuler{root_ / "2048/notes/cwe.jsonl"}; }), HasSubstr("as in 4096/cwe.jsonl"));
  EXPECT_EQ(OfficialRuler(root_ / "2048/4096/data/../data/vt/.").lengths().front(), 4096u) << "a folder inside";
}

TEST_F(OfficialFiles, WhatNothingIsReadFromIsListed) {
  write("512/vt.jsonl", kTwo);
  write("512/pred/vt.jsonl", "predictions, which run.sh leaves");
  write("1024/cwe.jsonl", "of a length that was not chosen");
  const auto unread = [&] { return OfficialRuler(root_, {}, {512}).unread(); };
  EXPECT_THAT(unread(), IsEmpty());
  for (const char* name : {"1K/vt.jsonl", "512/niah_singel_2.jsonl", "512/niah_single_3/test.jsonl", "notes.jsonl"})
    write(name, "not read");
  write("512/notes.txt", "not read");
  fs::create_symlink("nowhere", root_ / "512" / "qa_1.jsonl");
  EXPECT_THAT(unread(),
              ElementsAre(root_ / "1K/vt.jsonl", root_ / "512/niah_singel_2.jsonl",
                          root_ / "512/niah_single_3/test.jsonl", root_ / "512/qa_1.jsonl", root_ / "notes.jsonl"));
  EXPECT_THAT(OfficialRuler(root_ / "512/vt.jsonl").unread(), IsEmpty());
}

TEST_F(OfficialFiles, AFolderThatCannotBeReadIsListed) {
  write("512/vt.jsonl", kTwo);
  write("1024/vt.jsonl", kTwo);
  fs::permissions(root_ / "1024", fs::perms::none);
  const bool readable = access((root_ / "1024").c_str(), R_OK) == 0;
  const auto found = [&](const fs::path& folder) { return OfficialRuler(folder, {}, {512}).unread(); };
  if (!readable) {
    EXPECT_THAT(found(root_), ElementsAre(root_ / "1024" / ""));
    fs::remove_all(root_ / "512");
    EXPECT_THAT(error([&] { found(root_); }), HasSubstr("1024/' cannot be read (Permission denied)"));
  }
  fs::permissions(root_ / "1024", fs::perms::owner_all);
  if (readable) GTEST_SKIP() << "this user may read every folder";
}

TEST_F(OfficialFiles, TheShortestFileDecidesHowManySamplesThereAre) {
  write("4096/vt.jsonl", kTwo);
  write("4096/cwe.jsonl", "{\"input\": \"a\", \"outputs\": [\"x\"]}");
  const OfficialRuler files(root_);
  EXPECT_EQ(files.samples(), 1u);
  EXPECT_EQ(files.fewest(), "cwe at length 4096");
}

TEST_F(OfficialFiles, ChatTemplatesAreSeenAndTheirSpecialTokensRead) {
  const std::string qwen = "<|im_start|>user\nHi<|im_end|>\n", llama = "<|begin_of_text|><|start_header_id|>user";
  EXPECT_EQ(chat_template_of(qwen).mark, "<|im_start|>");
  EXPECT_EQ(chat_template_of(llama).mark, "<|start_header_id|>");
  EXPECT_EQ(chat_template_of("<s>[INST] Hi [/INST]").mark, "[INST]");
  for (const char* plain :
       {"", "Read <|im_start|> and [INST].", "<s> Hi", "[INST", "[not one] Hi", "a < b > c", "<>", "< a>"})
    EXPECT_EQ(chat_template_of(plain).mark, "") << plain;
  write("4096/vt.jsonl", kTwo);
  EXPECT_EQ(OfficialRuler(root_).chat_template().mark, "");
  write("4096/vt.jsonl", std::string(kTwo) + "{\"input\": \"[INST] a\", \"outputs\": [\"x\"]}");
  EXPECT_EQ(OfficialRuler(root_).chat_template().mark, "[INST]");

  const auto folder = tandem::testing::golden_folder() / "tokenizers";
  const auto tokens = load_tokenizer(folder / "small_qwen2");
  const auto ids = encode_official(*tokens, qwen);
  EXPECT_EQ(ids[0], tokens->special("<|im_start|>"));
  EXPECT_THAT(encode_official(*tokens, "Say " + qwen), ::testing::Not(::testing::Contains(ids[0])))
      << "in a plain prompt it is text";
  const auto with_bos = load_tokenizer(folder / "small_llama3");
  const auto one = encode_official(*with_bos, llama), without = encode_official(*with_bos, llama.substr(17));
  EXPECT_EQ(one, without) << "one begin token, written out or not";
  EXPECT_EQ(one[0], with_bos->bos());
  EXPECT_EQ(one[1], with_bos->special("<|start_header_id|>"));
}

TEST_F(OfficialFiles, AllTemplatesOfUpstreamAreRecognised) {
  // Marks alone: what stands around them is ours.
  const std::string text = " Find it. " + std::string(3000, 'x') + " Where is it?";
  const std::string talk = "Somebody asks. USER:" + text + " ASSISTANT: The answer is";
  const auto expect = [](const std::string& prompt, const char* mark, bool specials) {
    const ChatTemplate found = chat_template_of(prompt);
    EXPECT_EQ(found.mark, mark);
    EXPECT_TRUE(found.known) << mark;
    EXPECT_EQ(found.has_specials(), specials) << mark;
  };
  expect(talk, "USER:", false);  // vicuna, lwm
  expect("User: hi\n\nAssistant: hi\n\nUser:" + text + "\n\nAssistant: The answer is", "User:", false);
  expect("<BOS_TOKEN><|START_OF_TURN_TOKEN|>" + text, "<|START_OF_TURN_TOKEN|>", true);
  expect("[gMASK]sop<|user|>" + text, "[gMASK]", true);
  expect("<|startoftext|><|bom|><|system|>" + text, "<|bom|>", true);
  expect("<SPECIAL_10>System" + text, "<SPECIAL_10>", true);
  for (const std::string& plain : {text + " USER: ASSISTANT:", "USER:" + text, text + "ASSISTANT:",
                                   "USER: hi ASSISTANT: hi" + text, "SUPERUSER: hi" + text + " ASSISTANT:"})
    EXPECT_EQ(chat_template_of(plain).mark, "") << plain.substr(0, 30);
  const ChatTemplate other = chat_template_of("<|turn|>" + text);
  EXPECT_EQ(other.mark, "<|turn|>");
  EXPECT_FALSE(other.known);
  EXPECT_TRUE(other.has_specials());
  // Words are no special tokens, so nothing in such a prompt is.
  const auto tokens = load_tokenizer(tandem::testing::golden_folder() / "tokenizers" / "small_qwen2");
  EXPECT_EQ(encode_official(*tokens, talk + "<|im_end|>"), tokens->encode(talk + "<|im_end|>", true));
  // A known template in a later prompt goes before what only looks like one.
  write("4096/vt.jsonl", R"({"input": "<|turn|> a", "outputs": ["x"]})");
  EXPECT_FALSE(OfficialRuler(root_).chat_template().known);
  write("4096/vt.jsonl", R"({"input": "<|turn|> a", "outputs": ["x"]})"
                         "\n"
                         R"({"input": "[INST] a", "outputs": ["x"]})");
  EXPECT_EQ(OfficialRuler(root_).chat_template().mark, "[INST]");
}

TEST_F(OfficialFiles, WrongPathsAreSentences) {
  EXPECT_THAT(error([&] { OfficialRuler{root_ / "absent"}; }), HasSubstr("there is no file or folder"));
  EXPECT_THAT(error([&] { OfficialRuler{root_}; }), HasSubstr("holds no .jsonl file"));
  write("4096/needles.jsonl", kTwo);
  EXPECT_THAT(error([&] { OfficialRuler{root_}; }), HasSubstr("is no RULER task"));
  fs::remove_all(root_ / "4096");
  write("vt.jsonl", kTwo);
  EXPECT_THAT(error([&] { OfficialRuler{root_}; }), HasSubstr("as in 4096/vt.jsonl"));
  fs::remove(root_ / "vt.jsonl");
  write("4096/vt.jsonl", kTwo);
  write("8192/cwe.jsonl", kTwo);
  EXPECT_THAT(error([&] { OfficialRuler{root_}; }), HasSubstr("no file of vt at length 8192, only at 4096"));
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
