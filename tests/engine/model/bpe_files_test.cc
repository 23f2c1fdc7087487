// Files of byte-level tokenizers that are damaged, or that hold what is not supported: a sentence with file and field.
#include <functional>

#include "engine/common/json.h"
#include "engine/model/tokenizer.h"
#include "engine/model/utf8.h"
#include "tests/engine/model/model_folder.h"

namespace tandem::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
namespace fs = std::filesystem;

class BpeFiles : public ::testing::Test {
 protected:
  /// What loading says when one of the files of a golden tokenizer is changed.
  std::string said(const char* tokenizer, const char* file, const std::function<void(std::string&)>& change) {
    const TemporaryFolder folder;
    for (const auto& entry : fs::directory_iterator(golden_folder() / "tokenizers" / tokenizer))
      fs::copy_file(entry.path(), folder.path() / entry.path().filename());
    std::string bytes = read_bytes(folder.path() / file);
    change(bytes);
    write_bytes(folder.path() / file, bytes);
    return sentence_of([&] { load_tokenizer(folder.path()); });
  }
  std::string said_of_json(const char* tokenizer, const char* file, const std::function<void(Json&)>& change) {
    return said(tokenizer, file, [&](std::string& bytes) {
      Json json = parse_json(bytes, "JSON");
      change(json);
      bytes = json_text(json);
    });
  }
};

TEST_F(BpeFiles, TokenizerJsonNamesTheField) {
  struct Case {
    std::function<void(Json&)> change;
    const char* says;
  };
  const Case cases[] = {
      {[](Json& j) { j.erase("model"); }, "'model'"},
      {[](Json& j) { j["model"]["type"] = "Unigram"; }, "'model.type' is \"Unigram\""},
      {[](Json& j) { j["model"]["byte_fallback"] = true; }, "'model.ignore_merges'"},
      {[](Json& j) { j["model"]["dropout"] = 0.1; }, "'model.dropout'"},
      {[](Json& j) { j["model"]["vocab"] = Json::array(); }, "'model.vocab'"},
      {[](Json& j) { j["model"]["vocab"]["a"] = -1; }, "'model.vocab.a' is -1"},
      {[](Json& j) { j["model"]["vocab"]["a"] = j["model"]["vocab"]["b"]; }, "two tokens"},
      {[](Json& j) { j["model"]["vocab"].erase("a"); }, "'"},
      {[](Json& j) { j["model"]["merges"][0] = "nospace"; }, "'model.merges'"},
      {[](Json& j) {
         j["model"]["merges"][0] = {"zzzz", "q"};
       },
       "the merge 'zzzz q'"},
      {[](Json& j) { j["added_tokens"][0]["lstrip"] = 1; }, "lstrip"},
      {[](Json& j) { j["added_tokens"][0].erase("id"); }, "'added_tokens'"},
      {[](Json& j) { j["added_tokens"][1].erase("content"); }, "'content'"},
      {[](Json& j) {
         j["normalizer"] = {{"type", "Lowercase"}};
       },
       "'normalizer'"},
      {[](Json& j) { j["pre_tokenizer"] = nullptr; }, "'pre_tokenizer'"},
      {[](Json& j) {
         j["pre_tokenizer"] = {{"type", "Metaspace"}};
       },
       "'pre_tokenizer'"},
      {[](Json& j) { j["pre_tokenizer"]["pretokenizers"][0]["behavior"] = "Removed"; }, "'pre_tokenizer.behavior'"},
      {[](Json& j) { j["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = "(["; }, "cannot be compiled"},
      {[](Json& j) { j["pre_tokenizer"]["pretokenizers"][1]["add_prefix_space"] = true; }, "add_prefix_space"},
      {[](Json& j) {
         j["post_processor"] = {{"type", "BertProcessing"}};
       },
       "'post_processor'"},
      {[](Json& j) { j["post_processor"]["single"][0]["SpecialToken"]["id"] = "<none>"; },
       "'post_processor.special_tokens.<none>.ids'"},
      {[](Json& j) {
         Json& single = j["post_processor"]["single"];
         single.insert(single.begin(), single[0]);
       },
       "one token before the sequence at most"},
      {[](Json& j) {
         j["post_processor"] = {{"type", "Sequence"}, {"processors", {j["post_processor"], j["post_processor"]}}};
       },
       "one TemplateProcessing"},
      {[](Json& j) {
         j["post_processor"]["special_tokens"]["<|begin_of_text|>"]["ids"] = {5, 6};
       },
       "'post_processor.special_tokens.<|begin_of_text|>.ids' is [5,6]"},
  };
  for (const Case& c : cases) {
    EXPECT_THAT(said_of_json("small_llama3", "tokenizer.json", c.change),
                AllOf(HasSubstr("tokenizer.json"), HasSubstr(c.says)));
  }
  for (const Json& none : {Json("Metaspace"), Json::array({"Metaspace"})}) {
    EXPECT_THAT(said_of_json("small_llama3", "tokenizer.json",
                             [&](Json& j) {
                               j["model"]["byte_fallback"] = true;
                               j["model"]["ignore_merges"] = false;
                               j["pre_tokenizer"] = none;
                             }),
                AllOf(HasSubstr("tokenizer.json"), HasSubstr("'pre_tokenizer' is"), HasSubstr("Metaspace")));
  }
  EXPECT_THAT(said("small_llama3", "tokenizer.json", [](std::string& b) { b.resize(b.size() / 2); }),
              HasSubstr("not a JSON object"));
  EXPECT_THAT(said("small_llama3", "tokenizer.json", [](std::string& b) { b = std::string(100000, '['); }),
              HasSubstr("nested"));
  EXPECT_EQ(said_of_json("small_llama3", "tokenizer.json", [](Json&) {}), "");
}

TEST_F(BpeFiles, VocabAndMergesNameTheLine) {
  EXPECT_THAT(said("small_qwen2_files", "merges.txt", [](std::string& b) { b += "oneword\n"; }),
              AllOf(HasSubstr("merges.txt:"), HasSubstr("two tokens with a space")));
  EXPECT_THAT(said("small_qwen2_files", "merges.txt", [](std::string& b) { b += "zz yyyy\n"; }),
              HasSubstr("the merge 'zz yyyy'"));
  EXPECT_THAT(said("small_qwen2_files", "vocab.json", [](std::string& b) { b = "[]"; }),
              AllOf(HasSubstr("vocab.json"), HasSubstr("not a JSON object")));
  EXPECT_THAT(said_of_json("small_qwen2_files", "vocab.json", [](Json& j) { j.erase("!"); }), HasSubstr("'"));
  EXPECT_THAT(said_of_json("small_qwen2_files", "tokenizer_config.json",
                           [](Json& j) { j["tokenizer_class"] = "BertTokenizer"; }),
              AllOf(HasSubstr("tokenizer_config.json"), HasSubstr("\"BertTokenizer\"")));
  EXPECT_THAT(said_of_json("small_qwen2_files", "tokenizer_config.json",
                           [](Json& j) { j["added_tokens_decoder"]["99999999999"] = Json::object(); }),
              HasSubstr("'99999999999'"));
}

// As transformers 5; transformers 4 followed the flag.
TEST_F(BpeFiles, TheTemplateOfTokenizerJsonDecidesBos) {
  const TemporaryFolder folder;
  Json json = parse_json(read_bytes(golden_folder() / "tokenizers" / "small_llama3" / "tokenizer.json"), "JSON");
  write_bytes(folder.path() / "tokenizer.json", json_text(json));
  const auto first = [&](const Json& config) {
    write_bytes(folder.path() / "tokenizer_config.json", json_text(config));
    return load_tokenizer(folder.path())->encode("x", true).front();
  };
  for (const char* kind : {"LlamaTokenizer", "LlamaTokenizerFast", "PreTrainedTokenizerFast"})
    EXPECT_EQ(first({{"tokenizer_class", kind}, {"add_bos_token", false}}), 700);
  json["post_processor"]["special_tokens"]["<|begin_of_text|>"]["ids"] = {5};
  write_bytes(folder.path() / "tokenizer.json", json_text(json));
  EXPECT_EQ(first(Json::object()), 5) << "as that template says";
  json["post_processor"] = nullptr;
  write_bytes(folder.path() / "tokenizer.json", json_text(json));
  EXPECT_EQ(first({{"bos_token", "<|begin_of_text|>"}, {"add_bos_token", true}}), 87);
}

// Both kinds have the same files; only a class says which expression cuts the words.
TEST_F(BpeFiles, TheClassOfVocabAndMergesIsNeverGuessed) {
  const TemporaryFolder folder;
  for (const char* file : {"vocab.json", "merges.txt"})
    fs::copy_file(golden_folder() / "tokenizers" / "small_qwen2_files" / file, folder.path() / file);
  const auto words = [&] {
    return load_tokenizer(folder.path())->encode("I'LL go\n\n  to (see) it!!\n e\u0301 12", false);
  };
  const auto says = [&] { return sentence_of(words); };
  const auto refused = AllOf(HasSubstr("'tokenizer_class'"), HasSubstr("Qwen2Tokenizer or GPT2Tokenizer"));
  EXPECT_THAT(says(), refused);
  write_bytes(folder.path() / "config.json", R"({"model_type": "llama"})");
  EXPECT_THAT(says(), refused);
  write_bytes(folder.path() / "tokenizer_config.json", R"({"tokenizer_class": "GPT2Tokenizer"})");
  const auto gpt2 = words();
  write_bytes(folder.path() / "tokenizer_config.json", R"({"tokenizer_class": "Qwen2TokenizerFast"})");
  const auto qwen2 = words();
  EXPECT_NE(gpt2, qwen2);
  write_bytes(folder.path() / "tokenizer_config.json", "{}");
  for (const char* type : {"qwen2", "qwen3"}) {
    write_bytes(folder.path() / "config.json", Json{{"model_type", type}}.dump());
    EXPECT_EQ(words(), qwen2);
  }
  write_bytes(folder.path() / "config.json", R"({"model_type": "qwen2"})");
  write_bytes(folder.path() / "tokenizer_config.json", R"({"tokenizer_class": "GPT2Tokenizer"})");
  EXPECT_EQ(words(), qwen2) << "transformers takes the model's";
  write_bytes(folder.path() / "tokenizer_config.json", R"({"add_prefix_space": true})");
  EXPECT_THAT(says(), HasSubstr("'add_prefix_space' is true"));
}

TEST_F(BpeFiles, DigitsAreCutOneByOneOrInRuns) {
  const TemporaryFolder folder;
  Json json = parse_json(read_bytes(golden_folder() / "tokenizers" / "small_smollm2" / "tokenizer.json"), "JSON");
  const std::size_t next = json["model"]["vocab"].size();
  json["model"]["vocab"]["12"] = next;
  json["model"]["vocab"]
      ["\u0120"
       "1"] = next + 1;
  json["model"]["merges"].push_back({"1", "2"});
  json["model"]["merges"].push_back({"\u0120", "1"});
  const auto pieces = [&](const char* text, bool single) {
    json["pre_tokenizer"]["pretokenizers"][0]["individual_digits"] = single;
    write_bytes(folder.path() / "tokenizer.json", json_text(json));
    return load_tokenizer(folder.path())->encode(text, false).size();
  };
  EXPECT_EQ(pieces("12", true), 2u);
  EXPECT_EQ(pieces("12", false), 1u);
  EXPECT_EQ(pieces(" 1", true), 2u);
  EXPECT_EQ(pieces(" 1", false), 2u) << "the space is no digit: it is cut off before GPT-2's words are sought";
}

TEST_F(BpeFiles, ADamagedVocabularyIsNotTakenForOneThatLacksControlCharacters) {
  EXPECT_THAT(said_of_json("small_smollm2", "tokenizer.json",
                           [](Json& j) {
                             j["model"]["vocab"].erase("\u0120");
                             j["model"]["merges"] = Json::array();
                           }),
              HasSubstr("no token for the byte 0x20"));
}

TEST_F(BpeFiles, BytesWithoutATokenAreLeftOutWhereverTheyStand) {
  const auto tokenizer = load_tokenizer(golden_folder() / "tokenizers" / "small_smollm2");
  const auto ids = [&](const std::string& text) { return tokenizer->encode(text, false); };
  const std::string lost = "\x01";
  EXPECT_TRUE(ids(lost + lost).empty());
  // GPT-2's words put it with punctuation, not with letters: what lies beside it is one word again without it.
  EXPECT_EQ(ids("=" + lost + "="), ids("=="));
  EXPECT_EQ(ids(lost + "=="), ids("=="));
  EXPECT_EQ(ids("==" + lost), ids("=="));
  const std::string half(40, '=');  // a word of more than 48 bytes
  EXPECT_EQ(ids(half + lost + half), ids(half + half));
}

TEST_F(BpeFiles, BytesWithoutATokenAreRefusedWhereAnUnknownTokenWouldStandForThem) {
  EXPECT_THAT(
      said_of_json("small_smollm2", "tokenizer.json", [](Json& j) { j["model"]["unk_token"] = "<|endoftext|>"; }),
      AllOf(HasSubstr("tokenizer.json"), HasSubstr("no token for the byte 0x01")));
}

TEST_F(BpeFiles, TiktokenFilesNameTheLine) {
  const auto line = [&](const std::string& text) {
    return said("small_tiktoken", "tokenizer.model", [&](std::string& b) { b += text + "\n"; });
  };
  for (const char* bad : {"IQ== x", "IQ=", "IQ== 12345678", "I=== 7", "!!!! 7", "IQ==  7", "IQ=="})
    EXPECT_THAT(line(bad), AllOf(HasSubstr("tokenizer.model:"), HasSubstr("base64"))) << bad;
  EXPECT_THAT(line("IQ== 5"), HasSubstr("the rank 5 is given to two tokens"));
  EXPECT_THAT(said("small_tiktoken", "tokenizer.model", [](std::string& b) { b.erase(0, b.find('\n') + 1); }),
              HasSubstr("no token for the byte"));
}

TEST(Utf8, FindsTheFirstByteThatIsNone) {
  EXPECT_EQ(valid_utf8_bytes("caf\xC3\xA9"), 5u);
  EXPECT_EQ(valid_utf8_bytes("caf\xE9 au lait"), 3u);
  EXPECT_EQ(valid_utf8_bytes("ab\xE2\x82"), 2u);  // cut off: where the character begins
  EXPECT_EQ(valid_utf8_bytes(""), 0u);
}

TEST(Utf8, RepairsByMaximalParts) {
  EXPECT_EQ(repair_utf8("a\xff"
                        "b"),
            "a\xEF\xBF\xBD"
            "b");
  EXPECT_EQ(repair_utf8("\xF0\x9F\x98"), "\xEF\xBF\xBD");                          // one beginning, one mark
  EXPECT_EQ(repair_utf8("\xE0\x80"), "\xEF\xBF\xBD\xEF\xBF\xBD");                  // an overlong form: byte by byte
  EXPECT_EQ(repair_utf8("\xED\xA0\x80"), "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD");  // a surrogate
  EXPECT_EQ(repair_utf8("\xF4\x90\x80\x80").size(), 12u);                          // beyond U+10FFFF
  EXPECT_EQ(unfinished_utf8("a\xF0\x9F\x98"), 3u);
  EXPECT_EQ(unfinished_utf8("a\xF0\x9F\x98\x80"), 0u);
  EXPECT_EQ(unfinished_utf8("\xC3"), 1u);
  EXPECT_EQ(unfinished_utf8("\xFF"), 0u);
  EXPECT_EQ(unfinished_utf8("\xE0\x80"), 0u);  // can never be finished
  EXPECT_EQ(unfinished_utf8("\x80\x80\x80\x80"), 0u);
  EXPECT_EQ(compose_utf8("e\xCC\x81"), "\xC3\xA9");
  EXPECT_EQ(compose_utf8("\xC3\xA9"), "\xC3\xA9");
}

}  // namespace
}  // namespace tandem::testing
