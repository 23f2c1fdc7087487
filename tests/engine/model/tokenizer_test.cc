#include "engine/model/tokenizer.h"

#include <random>
#include <set>
#include <vector>

#include "engine/common/json.h"
#include "engine/common/paths.h"
#include "engine/model/sentencepiece_model.h"
#include "tests/engine/model/model_folder.h"

namespace tandem::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Ids = std::vector<std::int32_t>;

class SentencePiece : public ::testing::Test {
 protected:
  SentencePiece() { write_bytes(file_, sound_); }
  std::unique_ptr<Tokenizer> load(const std::string& config = "") {
    if (!config.empty()) write_bytes(folder_.path() / "tokenizer_config.json", config);
    return load_tokenizer(folder_.path());
  }
  std::string sentence(const std::string& bytes) {
    write_bytes(file_, bytes);
    return sentence_of([&] { load_tokenizer(folder_.path()); });
  }
  TemporaryFolder folder_;
  std::filesystem::path file_ = folder_.path() / "tokenizer.model";
  std::string sound_ = read_bytes(data_path("models/seed") / "tokenizer.model");
};

TEST_F(SentencePiece, GivesTheReferencesIdsAndDecodesBack) {
  const auto tokenizer = load_tokenizer(data_path("models/seed"));
  EXPECT_EQ(tokenizer->vocab_size(), 2048u);
  EXPECT_EQ(tokenizer->bos(), 1);
  EXPECT_EQ(tokenizer->hash(), "7040dc55719d7618") << "older runs name it in their protocol ids";
  const Json json = parse_json(read_bytes(golden_folder() / "tokens.json"), "JSON");
  std::size_t count = 0;
  for (const Json& c : json.at("cases")) {
    const std::string text = c[0].get<std::string>();
    const Ids ids = tokenizer->encode(text, false);
    EXPECT_EQ(ids, c[1].get<Ids>()) << text;
    EXPECT_EQ(tokenizer->decode(ids), text);
    ++count;
  }
  EXPECT_GT(count, 300u);
}

TEST_F(SentencePiece, ControlTokensAreNotTextAndTextIsNotControlTokens) {
  const auto tokenizer = load();
  EXPECT_EQ(tokenizer->encode("", true), Ids{1});
  EXPECT_THAT(tokenizer->encode("", false), ::testing::IsEmpty());
  EXPECT_THAT(tokenizer->encode("<s></s>", false), ::testing::Each(::testing::Gt(2)));
  Ids ids = tokenizer->encode("plain", true);
  EXPECT_EQ(ids.front(), 1);
  ids.push_back(2);
  EXPECT_EQ(tokenizer->decode(ids), "plain");
  EXPECT_EQ(tokenizer->decode({}), "");
}

TEST_F(SentencePiece, AnyBytesCanBeEncoded) {
  const auto tokenizer = load();
  EXPECT_EQ(tokenizer->decode(tokenizer->encode("a\xff z", false)), "a\xef\xbf\xbd z");
  EXPECT_EQ(tokenizer->decode(tokenizer->encode(std::string_view("a\0b", 3), false)), std::string_view("a\0b", 3));
  std::mt19937 random(2);
  for (int i = 0; i < 300; ++i) {
    std::string text(random() % 60, '\0');
    for (char& c : text) c = static_cast<char>(random());
    const Ids ids = tokenizer->encode(text, true);
    EXPECT_THAT(ids, ::testing::Each(::testing::AllOf(::testing::Ge(0), ::testing::Lt(2048))));
    EXPECT_EQ(tokenizer->encode(tokenizer->decode(ids), true), ids);  // decoding made it valid; it stays as it is
  }
}

// A model may have more rows than its tokenizer has pieces, and say one of them.
TEST_F(SentencePiece, IdsBeyondTheVocabularyHaveNoText) {
  const auto tokenizer = load();
  Ids said = tokenizer->encode("word", false);
  said.push_back(2048);
  EXPECT_EQ(tokenizer->decode(said), "word");
  EXPECT_EQ(tokenizer->bytes_of(2100, false), "");
  EXPECT_THROW(tokenizer->decode(Ids{-1}), LogicError);
}

// As in early copies of Llama 2: a token for padding behind the last row of the embedding.
TEST_F(SentencePiece, AddedTokensBeyondTheModelsRowsMayStandInNoText) {
  write_bytes(folder_.path() / "added_tokens.json", R"({"<pad>": 2048})");
  EXPECT_EQ(load_tokenizer(folder_.path())->encode("<pad>", false), Ids{2048}) << "no setting names it: not special";
  write_bytes(folder_.path() / "special_tokens_map.json", R"({"pad_token": {"content": "<pad>"}})");
  EXPECT_THAT(load_tokenizer(folder_.path())->encode("<pad>", false), ::testing::Each(::testing::Lt(2048)));
  const auto tokenizer = load_tokenizer(folder_.path(), 2048);
  EXPECT_EQ(tokenizer->vocab_size(), 2048u);
  EXPECT_EQ(tokenizer->special("<pad>"), 2048);
  EXPECT_THAT(sentence_of([&] { tokenizer->encode("a<pad>", false, Specials::parsed); }),
              AllOf(HasSubstr("'<pad>'"), HasSubstr("2048"), HasSubstr("vocab_size")));
}

TEST_F(SentencePiece, TokensThatFilesBesideItAddAreFound) {
  const std::string plain = load("{}")->hash();
  const auto tokenizer = load(R"({"added_tokens_decoder": {
      "2": {"content": "</s>", "special": true}, "2048": {"content": "<|im_end|>", "special": true},
      "2049": {"content": "<|im_end|>!", "special": true}, "2050": {"content": "<tool>"}}})");
  EXPECT_EQ(tokenizer->vocab_size(), 2051u);
  EXPECT_EQ(tokenizer->special("<|im_end|>"), 2048);
  EXPECT_EQ(tokenizer->special("</s>"), 2);
  EXPECT_NE(tokenizer->hash(), plain);
  const std::string text = "one<|im_end|>two<|im_end|>!</s>";
  const Ids as_text = tokenizer->encode(text, false), parsed = tokenizer->encode(text, false, Specials::parsed);
  EXPECT_THAT(as_text, ::testing::Each(::testing::Lt(2048)));
  Ids expected = tokenizer->encode("one", false);
  expected.push_back(2048);
  for (const std::int32_t id : tokenizer->encode("two", false)) expected.push_back(id);
  expected.insert(expected.end(), {2049, 2});
  EXPECT_EQ(parsed, expected);
  EXPECT_EQ(tokenizer->decode(Ids{2048, 2049}), "");
  Ids plain_token = tokenizer->encode("one", false);
  plain_token.push_back(2050);
  EXPECT_EQ(tokenizer->encode("one<tool>", false), plain_token) << "no special one: found in every text";
  EXPECT_EQ(tokenizer->decode(plain_token), "one<tool>");
  EXPECT_EQ(tokenizer->bytes_of(2050, false), "<tool>");
  Ids parts;
  tokenizer->encode_parts("one<tool>two", 1, [&](std::span<const std::int32_t> part) {
    parts.insert(parts.end(), part.begin(), part.end());
    return true;
  });
  EXPECT_EQ(parts, tokenizer->encode("one<tool>two", false));
  for (const char* bad :
       {R"({"added_tokens_decoder": {"-1": {"content": "<x>", "special": true}}})",
        R"({"added_tokens_decoder": {"2049": {"content": "<x>", "special": 1}}})",
        R"({"added_tokens_decoder": {"2049": {"content": "<x>", "size": true}}})",
        R"({"added_tokens_decoder": {"2049": {"special": true}}})", R"({"added_tokens_decoder": [1]})",
        R"({"added_tokens_decoder": null})", R"({"unk_token": {"content": "<unk>"}})", R"({"bos_token": 1})"}) {
    EXPECT_THAT(sentence_of([&] { load(bad); }), HasSubstr("tokenizer_config.json")) << bad;
  }
}

// As transformers: a text that is rendered from a chat's turns can hold it.
TEST_F(SentencePiece, TheUnknownPieceIsParsedUnlessItsNameIsNull) {
  for (const char* config :
       {"{}", R"({"unk_token": "<unk>"})", R"({"unk_token": {"__type": "AddedToken", "content": "<unk>"}})",
        R"({"unk_token": null, "added_tokens_decoder": {"0": {"content": "<unk>", "special": true}}})"}) {
    const auto tokenizer = load(config);
    EXPECT_THAT(tokenizer->encode("a<unk>b", false, Specials::parsed), ::testing::Contains(0)) << config;
    EXPECT_THAT(tokenizer->encode("a<unk>b", false), ::testing::Not(::testing::Contains(0))) << config;
  }
  EXPECT_THAT(load(R"({"unk_token": null})")->encode("a<unk>b", false, Specials::parsed),
              ::testing::Not(::testing::Contains(0)));
}

TEST_F(SentencePiece, TokenizerConfigDecidesBosAndPrefixSpace) {
  const auto plain = load();
  EXPECT_EQ(plain->encode("word", true).front(), 1);  // in a folder of Meta's, without any such file, BOS is given
  const auto no_bos = load("{}");
  EXPECT_EQ(no_bos->encode("word", true), plain->encode("word", false));
  EXPECT_NE(no_bos->hash(), plain->hash());  // other ids, another tokenizer
  EXPECT_EQ(load(R"({"add_bos_token": false})")->hash(), no_bos->hash());
  EXPECT_EQ(load(R"({"add_bos_token": true})")->hash(), plain->hash());
  EXPECT_EQ(load(R"({"add_bos_token": true, "bos_token": null})")->encode("word", true), no_bos->encode("word", true));

  // The embedded model adds no space by itself. LlamaTokenizer adds one unless it is told not to, in front of the text
  // alone and not before another space; with "legacy" behind every added token too.
  const auto with = [this](const char* more) {
    return load(R"({"tokenizer_class": "LlamaTokenizer", "eos_token": "</s>")" + std::string(more) + "}");
  };
  const auto bare = with(R"(, "add_prefix_space": false)"), spaced = with(""), legacy = with(R"(, "legacy": true)");
  EXPECT_EQ(bare->encode("word", false), plain->encode("word", false));
  EXPECT_NE(plain->encode("word", false), plain->encode(" word", false));
  EXPECT_EQ(spaced->encode("word", false), plain->encode(" word", false));
  EXPECT_EQ(spaced->encode(" word", false), plain->encode(" word", false));
  EXPECT_EQ(spaced->decode(spaced->encode("word", false)), "word");
  const auto parsed = [](const Tokenizer& tokenizer) { return tokenizer.encode("</s>word", false, Specials::parsed); };
  const auto behind_end = [](Ids ids) {
    ids.insert(ids.begin(), 2);
    return ids;
  };
  EXPECT_EQ(parsed(*spaced), behind_end(plain->encode("word", false)));
  EXPECT_EQ(parsed(*legacy), behind_end(plain->encode(" word", false)));
  EXPECT_EQ(std::set<std::string>({bare->hash(), spaced->hash(), legacy->hash()}).size(), 3u);

  for (const char* config :
       {"[]", "{", R"({"add_bos_token": "yes"})", R"({"add_prefix_space": 1})", R"({"legacy": 1})"}) {
    EXPECT_THAT(sentence_of([&] { load(config); }), HasSubstr("tokenizer_config.json")) << config;
  }
}

TEST_F(SentencePiece, DamagedFilesAreSentences) {
  for (const std::string& bytes :
       {std::string("not a model"), sound_.substr(0, 1000), sound_.substr(0, 7), std::string(1000, '\xff')}) {
    EXPECT_THAT(sentence(bytes), HasSubstr("is not a SentencePiece model")) << bytes.size();
  }
  EXPECT_THAT(sentence(""), HasSubstr("is empty"));
  std::filesystem::remove(file_);
  EXPECT_THAT(sentence_of([&] { load(); }), HasSubstr("has no tokenizer: neither tokenizer.model"));
  write_bytes(folder_.path() / "tokenizer.json", "{}");
  EXPECT_THAT(sentence_of([&] { load(); }), HasSubstr("tokenizer.json: field 'model'"));
  std::filesystem::remove(folder_.path() / "tokenizer.json");
  std::filesystem::create_directory(file_);
  EXPECT_THAT(sentence_of([&] { load(); }), HasSubstr("not a regular file"));
}

TEST_F(SentencePiece, RandomDamageGivesASentenceOrATokenizer) {
  std::mt19937 random(6);
  int refused = 0, loaded = 0;
  for (int i = 0; i < 200; ++i) {
    std::string bytes = sound_;
    if (i % 8 == 0) bytes.resize(random() % bytes.size());
    // The end holds the settings of trainer and normalizer, the rest the pieces.
    const std::size_t from = i % 2 == 0 && bytes.size() > 300 ? bytes.size() - 300 : 0;
    for (unsigned n = 1 + random() % 2; n-- > 0 && !bytes.empty();) {
      bytes[from + random() % (bytes.size() - from)] = static_cast<char>(random());
    }
    write_bytes(file_, bytes);
    try {
      const auto tokenizer = load_tokenizer(folder_.path());
      tokenizer->decode(tokenizer->encode("The secret number for grand-tiger is 1234567.\n\xe4\xbd\xa0 \xff", true));
      ++loaded;
    } catch (const InputError&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 20);
  EXPECT_GT(loaded, 5);
}

/// A model message that holds nothing but a character map (normalizer_spec 3 or denormalizer_spec 5, field 2).
std::string model_with_map(const std::string& map, int field = 3) {
  const auto length = [](std::size_t n) {
    std::string out;
    for (; n >= 0x80; n >>= 7) out += static_cast<char>((n & 0x7F) | 0x80);
    return out + static_cast<char>(n);
  };
  const std::string spec = "\x12" + length(map.size()) + map;
  return std::string(1, static_cast<char>(field << 3 | 2)) + length(spec.size()) + spec;
}

std::string map_of(const std::vector<std::uint32_t>& units, const std::string& strings) {
  const auto bytes = static_cast<std::uint32_t>(units.size() * 4);
  return std::string(reinterpret_cast<const char*>(&bytes), 4) +
         std::string(reinterpret_cast<const char*>(units.data()), bytes) + strings;
}

TEST(CharacterMap, WhatLeadsOutsideIsRefused) {
  // 'a' -> "x": the root's children are in units 256..511; unit 256 ^ 'a' says "a value follows" and points to 0x1FF.
  std::vector<std::uint32_t> units(512, 0x80000000u);
  units[0] = 256u << 10;
  units[256 ^ 'a'] = ((256u ^ 'a' ^ 0x1FFu) << 10) | 1u << 8 | 'a';
  units[0x1FF] = 0x80000000u | 0;
  const std::string strings("x\0", 2);
  for (const int field : {3, 5}) {
    EXPECT_TRUE(character_maps_are_sound(model_with_map(map_of(units, strings), field)));
    auto damaged = units;
    damaged[0] = 512u << 10;  // children outside the trie
    EXPECT_FALSE(character_maps_are_sound(model_with_map(map_of(damaged, strings), field)));
    damaged = units;
    damaged[0] = 0x80000000u | 512u << 10;  // the root is followed whatever its bit 31 says
    EXPECT_FALSE(character_maps_are_sound(model_with_map(map_of(damaged, strings), field)));
    damaged = units;
    damaged[256 ^ 'a'] |= 1u << 9;  // offset times 256
    EXPECT_FALSE(character_maps_are_sound(model_with_map(map_of(damaged, strings), field)));
    damaged = units;
    damaged[0x1FF] = 0x80000000u | 2;  // a string outside the strings
    EXPECT_FALSE(character_maps_are_sound(model_with_map(map_of(damaged, strings), field)));
    EXPECT_FALSE(character_maps_are_sound(model_with_map(map_of(units, "x"), field)));  // no end of the last string
    EXPECT_FALSE(character_maps_are_sound(model_with_map(map_of(units, ""), field)));
  }
  EXPECT_TRUE(character_maps_are_sound(model_with_map("")));  // no map at all
  for (const std::string& map : {std::string("abc"), std::string("\0\0\0\0x\0", 6), std::string("\4\0\0\0\0\0\0\0", 8),
                                 std::string("\xff\xff\xff\xff....\0", 9), std::string("\3\0\0\0\0\0\0\0\0", 9)}) {
    EXPECT_FALSE(character_maps_are_sound(model_with_map(map))) << map.size();
  }
  // A second map replaces the first when the file is read, so both must hold.
  EXPECT_FALSE(character_maps_are_sound(model_with_map(map_of(units, strings)) + model_with_map("abc")));
  EXPECT_FALSE(character_maps_are_sound("\x1a\x05\x12"));              // ends inside a field
  EXPECT_FALSE(character_maps_are_sound(std::string(11, '\xff')));     // an endless number
  EXPECT_FALSE(character_maps_are_sound(std::string("\x1b\x1c", 2)));  // a group
  EXPECT_FALSE(character_maps_are_sound(std::string("\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 11)));
}

}  // namespace
}  // namespace tandem::testing
