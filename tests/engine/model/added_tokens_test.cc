// Tokens that files add to a vocabulary, in every kind of tokenizer. Ids as the tokenizers library and transformers
// give them, or a sentence.
#include "engine/model/added_tokens.h"

#include <functional>

#include "engine/common/json.h"
#include "engine/model/tokenizer.h"
#include "tests/engine/model/model_folder.h"

namespace tandem::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Ids = std::vector<std::int32_t>;
namespace fs = std::filesystem;

Json token(const std::string& text, bool special, bool normalized = false) {
  return {{"content", text}, {"special", special}, {"normalized", normalized},
          {"lstrip", false}, {"rstrip", false},    {"single_word", false}};
}

class AddedTokens : public ::testing::Test {
 protected:
  /// A golden tokenizer in a folder of its own, with other files beside it.
  explicit AddedTokens() = default;
  void copy(const char* tokenizer) {
    for (const auto& entry : fs::directory_iterator(golden_folder() / "tokenizers" / tokenizer))
      fs::copy_file(entry.path(), path(entry.path().filename().string()), fs::copy_options::overwrite_existing);
  }
  fs::path path(const std::string& file) const { return folder_.path() / file; }
  void write(const char* file, const Json& json) const { write_bytes(path(file), json_text(json)); }
  void change(const char* file, const std::function<void(Json&)>& edit) const {
    Json json = parse_json(read_bytes(path(file)), "JSON");
    edit(json);
    write(file, json);
  }
  std::unique_ptr<Tokenizer> load() const { return load_tokenizer(folder_.path()); }
  Ids parsed(const std::string& text) const { return load()->encode(text, false, Specials::parsed); }
  std::string sentence() const {
    return sentence_of([this] { load(); });
  }
  TemporaryFolder folder_;
};

TEST_F(AddedTokens, OfTokenizerJsonComeFromItsSiblingsToo) {
  copy("small_llama3");  // 700 words and five special tokens
  const std::string hash = load()->hash();
  write("tokenizer_config.json", {{"added_tokens_decoder", {{"704", token("<|eot_id|>", true)}}}});
  EXPECT_EQ(load()->hash(), hash) << "it lists what is there";
  write("tokenizer_config.json",
        {{"added_tokens_decoder", {{"705", token("<extra>", true)}, {"706", token("<tool>", false)}}}});
  EXPECT_EQ(parsed("a <extra>x"), (Ids{64, 220, 705, 87}));
  EXPECT_EQ(load()->encode("<tool>", false), Ids{706}) << "no special one: found in every text";
  EXPECT_NE(load()->hash(), hash);

  write("tokenizer_config.json", {{"pad_token", "<extra>"}});
  write("added_tokens.json", {{"<extra>", 705}, {"<tool>", 706}});
  EXPECT_EQ(parsed("<extra>"), Ids{705});
  EXPECT_NE(load()->encode("<extra>", false), Ids{705}) << "a setting names it, so it is special";
  EXPECT_EQ(load()->encode("<tool>", false), Ids{706});
  write("tokenizer_config.json", {{"added_tokens_decoder", Json::object()}});
  EXPECT_EQ(load()->special("<extra>"), -1) << "added_tokens.json counts only without that field";
}

TEST_F(AddedTokens, OfVocabAndMergesComeFromAddedTokensJson) {
  copy("small_qwen2_files");
  Json listed = Json::object();
  change("tokenizer_config.json", [&](Json& j) {
    for (const auto& [id, added] : j["added_tokens_decoder"].items())
      listed[added["content"].get<std::string>()] = std::stoi(id);
    j.erase("added_tokens_decoder");
  });
  write("added_tokens.json", listed);
  EXPECT_EQ(parsed("a<|im_end|>"), (Ids{64, 702}));
  EXPECT_EQ(load()->decode(Ids{702}), "") << "eos_token names it";
  EXPECT_EQ(load()->encode("<tool_call>", false), Ids{703});
  write("special_tokens_map.json", {{"additional_special_tokens", {"<tool_call>"}}});
  EXPECT_NE(load()->encode("<tool_call>", false), Ids{703});
  EXPECT_EQ(parsed("<tool_call>"), Ids{703});
}

TEST_F(AddedTokens, OfTiktokenFilesReplaceTheGuessedNames) {
  copy("small_tiktoken");
  const auto guessed = load();
  const std::int32_t first = guessed->bos();
  ASSERT_EQ(guessed->special("<|finetune_right_pad_id|>"), first + 4);
  write("tokenizer_config.json",
        {{"added_tokens_decoder",
          {{std::to_string(first + 4), token("<pad>", true)}, {std::to_string(first + 256), token("<new>", false)}}}});
  EXPECT_EQ(load()->special("<pad>"), first + 4);
  EXPECT_EQ(load()->special("<|finetune_right_pad_id|>"), -1);
  EXPECT_EQ(load()->encode("<new>", false), Ids{first + 256});
  EXPECT_EQ(load()->special("<|eot_id|>"), first + 9);
  EXPECT_NE(load()->hash(), guessed->hash());
  write("tokenizer_config.json", {{"added_tokens_decoder", {{std::to_string(first + 9), token("<|eot_id|>", true)}}}});
  EXPECT_EQ(load()->hash(), guessed->hash());
  write("tokenizer_config.json", {{"added_tokens_decoder", {{std::to_string(first + 4), token("<|eot_id|>", true)}}}});
  EXPECT_THAT(sentence(), HasSubstr("'<|eot_id|>'")) << "two ids for one text";
}

TEST_F(AddedTokens, FilesThatDisagreeAreRefusedByName) {
  copy("small_llama3");
  struct Case {
    const char* id;
    Json added;
    const char* says;
  };
  for (const Case& c : std::vector<Case>{{"704", token("<other>", true), "'<other>'"},
                                         {"705", token("<|eot_id|>", true), "under 704"},
                                         {"704", token("<|eot_id|>", false), "'special'"},
                                         {"704", token("<|eot_id|>", true, true), "'normalized'"},
                                         {"300", token("<extra>", true), "another token"},
                                         {"705", token("lo", true), "under 538"},
                                         {"709", token("<extra>", true), "705 is the next free one"},
                                         {"705", token("", true), "no text"},
                                         {"x", token("<extra>", true), "'x'"}}) {
    write("tokenizer_config.json", {{"added_tokens_decoder", {{c.id, c.added}}}});
    EXPECT_THAT(sentence(), AllOf(HasSubstr("tokenizer_config.json"), HasSubstr(c.says)));
  }
  for (const char* flag : {"lstrip", "rstrip", "single_word"}) {
    Json added = token("<extra>", true);
    added[flag] = true;
    write("tokenizer_config.json", {{"added_tokens_decoder", {{"705", added}}}});
    EXPECT_THAT(sentence(), HasSubstr(flag));
  }
  write("tokenizer_config.json", {{"pad_token", "<none>"}});
  EXPECT_THAT(sentence(), AllOf(HasSubstr("'<none>'"), HasSubstr("no file gives it an id")));
  write("tokenizer_config.json", Json::object());
  change("tokenizer.json", [](Json& j) { j["added_tokens"].back()["id"] = 709; });
  EXPECT_THAT(sentence(), HasSubstr("704 is the next free one"));
}

TEST_F(AddedTokens, NormalizedOnesAreSoughtInWhatTheOthersLeave) {
  copy("small_qwen2");  // NFC
  change("tokenizer.json", [](Json& j) {
    const auto add = [&j](int id, const char* text, bool normalized) {
      Json added = token(text, false, normalized);
      added["id"] = id;
      j["added_tokens"].push_back(added);
    };
    add(704, "bcd", false);
    add(705, "xabc", true);
    add(706, "na\u0303o", true);
    add(707, "caf\u00e9", true);
    add(708, "cafe\u0301s", false);
  });
  const auto tokenizer = load();
  EXPECT_EQ(tokenizer->encode("xabcd xabc", false), (Ids{87, 64, 704, 220, 705}));
  EXPECT_EQ(tokenizer->encode("cafe\u0301 n\u00e3o na\u0303o", false), (Ids{707, 220, 706, 220, 706}));
  EXPECT_EQ(tokenizer->encode("cafe\u0301s caf\u00e9s", false), (Ids{708, 220, 707, 82}));
}

// "!" for padding, as in some copies of Llama 2 and Qwen: it stays the byte's token.
TEST_F(AddedTokens, AWordOfTheVocabularyCanBeOne) {
  copy("small_qwen2");
  change("tokenizer.json", [](Json& j) {
    Json added = token("!", true);
    added["id"] = j["model"]["vocab"]["!"];
    j["added_tokens"].insert(j["added_tokens"].begin(), added);
  });
  EXPECT_EQ(parsed("a!"), (Ids{64, 0}));
  EXPECT_EQ(load()->encode("a!", false), (Ids{64, 0}));
  EXPECT_EQ(load()->decode(Ids{64, 0}), "a");
}

}  // namespace
}  // namespace tandem::testing
