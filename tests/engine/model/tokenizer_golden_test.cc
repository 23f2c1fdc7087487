// Ids equal the reference implementations' on varied texts (goldens made by scripts/make_tokenizer_goldens.py). The
// small tokenizers are part of the project; the published ones are tested where they are found.
#include <cstring>
#include <set>
#include <vector>

#include "engine/common/json.h"
#include "engine/model/tokenizer.h"
#include "engine/model/utf8.h"
#include "tests/engine/model/model_folder.h"
#include "tests/test_data.h"

namespace tandem::testing {
namespace {

namespace fs = std::filesystem;

std::string digest(const std::vector<std::int32_t>& ids) {
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (const std::int32_t id : ids) {
    unsigned char bytes[4];
    std::memcpy(bytes, &id, 4);
    for (const unsigned char byte : bytes) hash = (hash ^ byte) * 0x100000001b3u;
  }
  return fmt::format("{:016x}", hash);
}

const std::vector<std::string>& texts() {
  static const std::vector<std::string> all = [] {
    std::vector<std::string> out;
    for (const Json& text : parse_json(read_bytes(golden_folder() / "tokenizers" / "texts.json"), "JSON")) {
      if (text.is_string()) {
        out.push_back(text.get<std::string>());
        continue;
      }
      const std::string hex = text.at("hex").get<std::string>();
      std::string bytes;
      for (std::size_t i = 0; i < hex.size(); i += 2)
        bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
      out.push_back(bytes);
    }
    return out;
  }();
  return all;
}

struct Family {
  const char* golden;
  const char* folder;  // in tests/golden/tokenizers, or in the test data
  bool published;
  enum class Decodes { exactly, composed, without_unknown } decodes;
};
void PrintTo(const Family& family, std::ostream* out) {
  *out << family.folder;
}

class TokenizerGoldens : public ::testing::TestWithParam<Family> {};
INSTANTIATE_TEST_SUITE_P(References, TokenizerGoldens,
                         ::testing::Values(Family{"small_llama3", "small_llama3", false, Family::Decodes::exactly},
                                           Family{"small_qwen2", "small_qwen2", false, Family::Decodes::composed},
                                           Family{"small_qwen2", "small_qwen2_files", false, Family::Decodes::composed},
                                           Family{"small_smollm2", "small_smollm2", false,
                                                  Family::Decodes::without_unknown},
                                           Family{"small_tiktoken", "small_tiktoken", false, Family::Decodes::exactly},
                                           Family{"llama-2", "tokenizers/llama-2", true, Family::Decodes::exactly},
                                           Family{"llama-3", "tokenizers/llama-3", true, Family::Decodes::exactly},
                                           Family{"qwen2", "tokenizers/qwen2", true, Family::Decodes::composed}),
                         [](const auto& param) {
                           std::string name = param.param.folder;
                           for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
                           return name;
                         });

/// What decoding gives back of a text: bytes without a token are lost.
std::string kept(const Tokenizer& tokenizer, const std::string& sound, Family::Decodes decodes) {
  if (decodes == Family::Decodes::exactly) return sound;
  if (decodes == Family::Decodes::composed) return compose_utf8(sound);
  std::set<char> known;
  for (std::int32_t id = 0; id < static_cast<std::int32_t>(tokenizer.vocab_size()); ++id) {
    if (const std::string bytes = tokenizer.bytes_of(id, false); bytes.size() == 1) known.insert(bytes[0]);
  }
  EXPECT_LT(known.size(), 220u);
  std::string text = sound;
  std::erase_if(text, [&](char c) { return !known.contains(c); });
  return repair_utf8(text);
}

TEST_P(TokenizerGoldens, IdsAreTheReferencesAndDecodeBack) {
  const Family family = GetParam();
  const fs::path folder = family.published ? test_data(family.folder) : golden_folder() / "tokenizers" / family.folder;
  if (folder.empty()) GTEST_SKIP() << missing_test_data(family.folder);
  const auto tokenizer = load_tokenizer(folder);
  const Json golden =
      parse_json(read_bytes(golden_folder() / "tokenizers" / (std::string(family.golden) + ".json")), "JSON");
  ASSERT_GE(texts().size(), 2000u);
  ASSERT_EQ(golden.at("digests").size(), texts().size());
  std::size_t wrong = 0, parsed_differently = 0;
  for (std::size_t i = 0; i < texts().size(); ++i) {
    const std::string& text = texts()[i];
    const Json& row = golden.at("digests")[i];
    const bool both = row.is_array();
    const std::vector<std::int32_t> ids = tokenizer->encode(text, false);
    const std::string wanted = both ? row[0] : row;
    if (digest(ids) != wanted && ++wrong <= 10) ADD_FAILURE() << "text " << i << ": " << Json(repair_utf8(text)).dump();
    if (const std::string key = std::to_string(i); golden.at("ids").contains(key)) {
      EXPECT_EQ(ids, golden.at("ids").at(key).get<std::vector<std::int32_t>>()) << text;
    }
    if (both) {
      EXPECT_EQ(digest(tokenizer->encode(text, false, Specials::parsed)), row[1].get<std::string>()) << text;
      ++parsed_differently;
    }
    const std::string sound = repair_utf8(text);
    EXPECT_EQ(tokenizer->decode(ids), kept(*tokenizer, sound, family.decodes));
    StreamingDecoder stream(*tokenizer);
    std::string streamed;
    for (const std::int32_t id : ids) {
      streamed += stream.push(id);
      EXPECT_EQ(repair_utf8(streamed), streamed);
    }
    EXPECT_EQ(streamed + stream.finish(), tokenizer->decode(ids)) << text;
  }
  EXPECT_EQ(wrong, 0u);
  EXPECT_TRUE(parsed_differently > 20 || std::string(family.golden) == "llama-2") << parsed_differently;
}

TEST_P(TokenizerGoldens, DroppedBytesAreThoseThatATextLoses) {
  const Family family = GetParam();
  const fs::path folder = family.published ? test_data(family.folder) : golden_folder() / "tokenizers" / family.folder;
  if (folder.empty()) GTEST_SKIP() << missing_test_data(family.folder);
  const auto tokenizer = load_tokenizer(folder);
  // Characters that have every byte of UTF-8: of one byte; of two (0xC2 to 0xDF) with each second byte; with the first
  // bytes of three and four.
  std::vector<std::string> characters;
  for (int byte = 0; byte < 0x80; ++byte) characters.emplace_back(1, static_cast<char>(byte));
  for (int second = 0x80; second < 0xC0; ++second) characters.push_back({'\xC3', static_cast<char>(second)});
  for (int first = 0xC2; first < 0xE0; ++first) characters.push_back({static_cast<char>(first), '\xA0'});
  for (int first = 0xE1; first < 0xF0; ++first) characters.push_back({static_cast<char>(first), '\x90', '\x80'});
  characters.emplace_back("\xE0\xA4\x80");
  for (int first = 0xF1; first < 0xF4; ++first)
    characters.push_back({static_cast<char>(first), '\x90', '\x80', '\x80'});
  characters.insert(characters.end(), {"\xF0\x90\x80\x80", "\xF4\x80\x80\x80"});
  const std::string dropped = tokenizer->dropped_bytes();
  EXPECT_TRUE(std::is_sorted(dropped.begin(), dropped.end(), [](char a, char b) {
    return static_cast<unsigned char>(a) < static_cast<unsigned char>(b);
  }));
  EXPECT_EQ(dropped.empty(), family.decodes != Family::Decodes::without_unknown);
  for (const std::string& c : characters) {
    std::string bytes;
    for (const std::int32_t id : tokenizer->encode(c, false)) bytes += tokenizer->bytes_of(id, false);
    std::string left = family.decodes == Family::Decodes::composed ? compose_utf8(c) : c;
    std::erase_if(left, [&](char byte) { return dropped.find(byte) != std::string::npos; });
    EXPECT_TRUE(bytes == left || bytes == " " + left) << Json(c).dump() << ' ' << Json(repair_utf8(bytes)).dump();
  }
}

TEST(TokenizerGoldens, BosFollowsTheFiles) {
  const fs::path root = golden_folder() / "tokenizers";
  const auto llama = load_tokenizer(root / "small_llama3"), qwen = load_tokenizer(root / "small_qwen2"),
             files = load_tokenizer(root / "small_qwen2_files"), tiktoken = load_tokenizer(root / "small_tiktoken");
  for (const auto* with : {llama.get(), tiktoken.get()}) {
    ASSERT_GE(with->bos(), 0);
    EXPECT_EQ(with->bos(), with->special("<|begin_of_text|>"));
    EXPECT_EQ(with->encode("", true), std::vector<std::int32_t>{with->bos()});
    EXPECT_EQ(with->decode(with->encode("x", true)), "x");
  }
  for (const auto* without : {qwen.get(), files.get()}) {
    EXPECT_EQ(without->bos(), -1);
    EXPECT_EQ(without->encode("x", true), without->encode("x", false));
    EXPECT_GE(without->special("<|im_end|>"), 0);
    EXPECT_EQ(without->special("<|im_en|>"), -1);
  }
  EXPECT_NE(llama->hash(), qwen->hash());
  EXPECT_EQ(llama->hash(), load_tokenizer(root / "small_llama3")->hash());
}

}  // namespace
}  // namespace tandem::testing
