// Tokens that files add to a vocabulary, in every kind of tokenizer. Ids as the tokenizers library and transformers
// give them, or a sentence.
#include "engine/model/added_tokens.h"

#include <functional>

#include "engine/common/json.h"
#include "engine/model/json_fields.h"
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

TEST_F(AddedTokens, OfTiktokenFilesAreGuessedOnlyWhereNoFileSaysAnything) {
  copy("small_tiktoken");
  const auto guessed = load();
  const std::int32_t first = guessed->bos();
  ASSERT_EQ(guessed->special("<|finetune_right_pad_id|>"), first + 4);
  write("tokenizer_config.json",
        {{"added_tokens_decoder",
          {{std::to_string(first + 4), token("<pad>", true)}, {std::to_string(first + 6), token("<new>", false)}}},
         {"extra_special_tokens", {"<more>"}}});
  const auto listed = load();
  EXPECT_EQ(listed->special("<pad>"), first + 4);
  EXPECT_EQ(listed->special("<|finetune_right_pad_id|>"), -1);
  EXPECT_EQ(listed->special("<|reserved_token_" + std::to_string(first) + "|>"), first)
      << "transformers' name for a gap";
  EXPECT_EQ(listed->special("<more>"), first + 7);
  EXPECT_NE(listed->encode("<new>", false), Ids{first + 6}) << "all of them were special when they were added";
  EXPECT_EQ(listed->encode("x", true), listed->encode("x", false)) << "add_bos_token is missing";
  EXPECT_NE(listed->hash(), guessed->hash());
  write("tokenizer_config.json", {{"bos_token", "<s>"}, {"add_bos_token", true}});
  EXPECT_EQ(load()->encode("", true), Ids{first});
  EXPECT_EQ(load()->special("<|eot_id|>"), -1);
  write("tokenizer_config.json", {{"extra_special_tokens", {{{"__type", "AddedToken"}, {"content", "<x>"}}}}});
  EXPECT_THAT(sentence(), AllOf(HasSubstr("tokenizer_config.json"), HasSubstr("extra_special_tokens")));
}

// A listed id decides the order alone: a token has the id of its text, or else the next free one.
TEST_F(AddedTokens, GetTheIdsThatTransformersGivesThem) {
  copy("small_llama3");
  struct Case {
    const char* id;
    Json added;
    std::int32_t wanted;
  };
  for (const Case& c : std::vector<Case>{{"704", token("<other>", true), 705},
                                         {"705", token("<|eot_id|>", true), 704},
                                         {"704", token("<|eot_id|>", false), 704},
                                         {"704", token("<|eot_id|>", true, true), 704},
                                         {"300", token("<extra>", true), 705},
                                         {"705", token("lo", true), 538},
                                         {"709", token("<extra>", true), 705},
                                         {"705", token("", true), -1}}) {
    write("tokenizer_config.json", {{"added_tokens_decoder", {{c.id, c.added}}}});
    EXPECT_EQ(load()->special(c.added["content"].get<std::string>()), c.wanted) << c.id << ' ' << c.added;
  }
  write("tokenizer_config.json", {{"added_tokens_decoder", {{"x", token("<extra>", true)}}}});
  EXPECT_THAT(sentence(), AllOf(HasSubstr("tokenizer_config.json"), HasSubstr("'x'")));
  write("tokenizer_config.json", {{"pad_token", "<none>"}});
  EXPECT_EQ(parsed("<none>"), Ids{705});
  write("tokenizer_config.json", Json::object());
  change("tokenizer.json", [](Json& j) { j["added_tokens"].back()["id"] = 709; });
  EXPECT_EQ(parsed("<|eot_id|>"), Ids{704});
}

// Every place and form that names a special token gives the same one.
TEST_F(AddedTokens, EveryFormGivesOneId) {
  const Json object = {{"__type", "AddedToken"}, {"content", "<image>"}, {"special", true}};
  const Json plain = {{"content", "<image>"}, {"normalized", false}};
  for (const char* tokenizer : {"small_llama3", "small_qwen2", "small_qwen2_files"}) {
    copy(tokenizer);
    const Json own = path_exists(path("tokenizer_config.json"))
                         ? parse_json(read_bytes(path("tokenizer_config.json")), "JSON")
                         : Json::object();
    for (const Json& form : std::vector<Json>{{{"extra_special_tokens", {"<image>"}}},
                                              {{"extra_special_tokens", {object}}},
                                              {{"extra_special_tokens", {{"image_token", "<image>"}}}},
                                              {{"extra_special_tokens", {{"image_token", object}}}},
                                              {{"additional_special_tokens", {"<image>"}}},
                                              {{"additional_special_tokens", {object}}},
                                              {{"model_specific_special_tokens", {{"image_token", "<image>"}}}},
                                              {{"image_token", "<image>"}},
                                              {{"image_token", object}},
                                              {{"pad_token", "<image>"}},
                                              {{"pad_token", object}}}) {
      Json config = own;
      config.update(form);
      write("tokenizer_config.json", config);
      const Ids ids = parsed("a<image>b");
      ASSERT_EQ(ids.size(), 3u) << tokenizer << ' ' << form;
      EXPECT_EQ(ids[1], load()->special("<image>"));
      EXPECT_NE(load()->encode("a<image>b", false), ids) << "it is special";
      EXPECT_EQ(load()->decode(ids), "ab");
    }
    Json config = own;
    config.erase("added_tokens_decoder");
    write("tokenizer_config.json", config);
    for (const Json& map : std::vector<Json>{{{"pad_token", "<image>"}},
                                             {{"pad_token", plain}},
                                             {{"image_token", plain}},
                                             {{"extra_special_tokens", {plain}}},
                                             {{"additional_special_tokens", {"<image>"}}}}) {
      write("special_tokens_map.json", map);
      EXPECT_EQ(parsed("a<image>b").size(), 3u) << tokenizer << ' ' << map;
    }
    std::error_code ignored;
    for (const auto& entry : fs::directory_iterator(folder_.path())) fs::remove(entry.path(), ignored);
  }
}

TEST_F(AddedTokens, FormsThatAreNoneAreNamed) {
  copy("small_llama3");
  const Json map_of_names = {{"extra_special_tokens", {{"image_token", "<image>"}}}};
  write("special_tokens_map.json", map_of_names);
  write("tokenizer_config.json", {{"model_specific_special_tokens", "<image>"}});
  EXPECT_THAT(sentence(), AllOf(HasSubstr("tokenizer_config.json"), HasSubstr("'model_specific_special_tokens'")));
  write("tokenizer_config.json", Json::object());
  EXPECT_EQ(parsed("<image>"), Ids{705});
  write("special_tokens_map.json", {{"extra_special_tokens", {"<image>"}}});
  for (const Json& none : std::vector<Json>{"<image>", 7}) {
    write("tokenizer_config.json", {{"extra_special_tokens", none}});
    EXPECT_THAT(sentence(), AllOf(HasSubstr("tokenizer_config.json"), HasSubstr("'extra_special_tokens' is"))) << none;
  }
  write("special_tokens_map.json", Json::object());
  write("added_tokens.json", {{"<image>", 705}});
  for (const Json& none : std::vector<Json>{{{"__from_map", true}}, {{"__from_map", true}, {"content", 7}}}) {
    write("tokenizer_config.json", {{"pad_token", none}});
    EXPECT_THAT(sentence(), AllOf(HasSubstr("tokenizer_config.json"), HasSubstr("'pad_token'"))) << none;
  }
}

// lstrip, rstrip and single_word.
TEST_F(AddedTokens, FlagsTakeSpacesAlongAndLookAtNeighbours) {
  copy("small_llama3");
  const auto with = [this](const char* flag) {
    Json added = token("<tool>", false);
    added[flag] = true;
    write("tokenizer_config.json", {{"added_tokens_decoder", {{"705", added}}}});
    return load();
  };
  const Ids a = load()->encode("a", false), b = load()->encode("b", false), space_b = load()->encode(" b", false);
  const auto joined = [](const Ids& before, const Ids& after) {
    Ids ids = before;
    ids.push_back(705);
    ids.insert(ids.end(), after.begin(), after.end());
    return ids;
  };
  EXPECT_EQ(with("lstrip")->encode("a \n\u2003<tool> b", false), joined(a, space_b));
  EXPECT_EQ(with("rstrip")->encode("a<tool>\u00a0\t b", false), joined(a, b));
  const auto single = with("single_word");
  EXPECT_EQ(single->encode("<tool> b", false), joined({}, space_b));
  for (const char* text : {"a<tool> b", "<tool>b", "<tool>_", "\u00e9<tool>", "<tool>\u0301", "1<tool>"})
    EXPECT_THAT(single->encode(text, false), ::testing::Not(::testing::Contains(705))) << text;
  EXPECT_THAT(single->encode("(<tool>)", false), ::testing::Contains(705));
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
