// Texts that are encoded in parts have the ids of the whole text, wherever parts end.
#include <random>
#include <vector>

#include "engine/common/json.h"
#include "engine/common/paths.h"
#include "engine/model/sentencepiece_model.h"
#include "engine/model/tokenizer.h"
#include "tests/engine/model/model_folder.h"

namespace tandem::testing {
namespace {

using Ids = std::vector<std::int32_t>;

Ids in_parts(const Tokenizer& tokenizer, std::string_view text, std::size_t part_bytes, std::size_t* parts = nullptr) {
  Ids ids;
  std::size_t count = 0;
  tokenizer.encode_parts(text, part_bytes, [&](std::span<const std::int32_t> part) {
    ids.insert(ids.end(), part.begin(), part.end());
    ++count;
    return true;
  });
  if (parts != nullptr) *parts = count;
  return ids;
}

std::vector<std::string> texts_and_atoms() {
  std::string all;
  for (const Json& text : parse_json(read_bytes(golden_folder() / "tokenizers" / "texts.json"), "JSON")) {
    if (text.is_string()) all += text.get<std::string>() + "\n";
  }
  std::vector<std::string> texts = {"", "a", all, read_bytes(golden_folder() / "README.md")};
  // Spaces, line ends and what looks like them, beside letters that merge and characters that no piece has.
  const std::vector<std::string> atoms = {" ",   "  ",       "\n",   "\r\n", "\xE2\x96\x81", "\t", "the",       "a",
                                          "ing", ".",        "\"",   "1",    "25",           "é",  "e\xCC\x81", "漢",
                                          "☃",   "\xC2\xA0", "\xFF", "'s"};
  std::mt19937 random(3);
  for (int i = 0; i < 4; ++i) {
    std::string text;
    while (text.size() < 2000) text += atoms[random() % atoms.size()];
    texts.push_back(text);
  }
  return texts;
}

TEST(TokenizerParts, AreTheWholeTextsIds) {
  const auto golden = golden_folder() / "tokenizers";
  TemporaryFolder prefixed;  // a space before every text, as Llama 2 has it
  std::filesystem::copy(data_path("models/seed") / "tokenizer.model", prefixed.path());
  write_bytes(prefixed.path() / "tokenizer_config.json", R"({"add_prefix_space": true})");
  const std::vector<std::filesystem::path> folders = {data_path("models/seed"),  prefixed.path(),
                                                      golden / "small_llama3",   golden / "small_qwen2",
                                                      golden / "small_tiktoken", golden / "small_qwen2_files"};
  for (const auto& folder : folders) {
    const auto tokenizer = load_tokenizer(folder);
    for (const std::string& text : texts_and_atoms()) {
      const Ids whole = tokenizer->encode(text, false);
      for (const std::size_t part_bytes : {1u, 40u})
        ASSERT_EQ(in_parts(*tokenizer, text, part_bytes), whole)
            << folder << ", parts of " << part_bytes << ": " << text;
    }
  }
}

TEST(TokenizerParts, ComeOneByOneUntilTheyAreEnough) {
  std::string text;
  for (int i = 0; i < 2000; ++i) text += "the " + std::to_string(i) + "th sentence. ";
  for (const auto& folder : {data_path("models/seed"), golden_folder() / "tokenizers" / "small_llama3"}) {
    const auto tokenizer = load_tokenizer(folder);
    std::size_t parts = 0, asked = 0;
    in_parts(*tokenizer, text, 1000, &parts);
    EXPECT_GT(parts, text.size() / 1100) << folder;
    EXPECT_LE(parts, text.size() / 1000 + 1) << folder;
    tokenizer->encode_parts(text, 1000, [&](std::span<const std::int32_t>) { return ++asked < 3; });
    EXPECT_EQ(asked, 3u) << folder;
    EXPECT_TRUE(in_parts(*tokenizer, "", 1000).empty());
  }
}

/// A model is a sequence of fields that later ones add to: tag, length, content.
std::string with(const std::string& model, char field, const std::string& content) {
  return model + char(field << 3 | 2) + char(content.size()) + content;
}

TEST(TokenizerParts, FilesThatDoNotSayThatACutIsSafeAreNotCut) {
  const std::string sound = read_bytes(data_path("models/seed") / "tokenizer.model");
  const auto piece = [&](const std::string& text) {
    return with(sound, 1, "\x0A" + std::string(1, char(text.size())) + text);
  };
  EXPECT_TRUE(can_be_cut(sound));
  EXPECT_TRUE(can_be_cut(piece("\xE2\x96\x81\xE2\x96\x81what")));
  EXPECT_TRUE(can_be_cut(piece("\n")));
  for (const char* text : {"what\xE2\x96\x81", "\xE2\x96\x81what\xE2\x96\x81is", "so what", "\n\n", "a\n"})
    EXPECT_FALSE(can_be_cut(piece(text))) << text;
  EXPECT_FALSE(can_be_cut(with(sound, 2, std::string("\x18\x01", 2)))) << "unigram";
  EXPECT_FALSE(can_be_cut(with(sound, 2, std::string("\xC0\x01\x01", 3)))) << "spaces as suffixes";
  EXPECT_FALSE(can_be_cut(with(sound, 2, std::string("\x98\x02\x00", 3)))) << "unknown characters";
  EXPECT_FALSE(can_be_cut(with(sound, 3, std::string("\x20\x01", 2)))) << "white space is removed";
  EXPECT_FALSE(can_be_cut(with(sound, 3, std::string("\x12\x01x", 3)))) << "characters are mapped";
  EXPECT_FALSE(can_be_cut(sound.substr(0, sound.size() - 1)));

  TemporaryFolder folder;
  write_bytes(folder.path() / "tokenizer.model", with(sound, 3, std::string("\x20\x01", 2)));
  const auto tokenizer = load_tokenizer(folder.path());
  std::size_t parts = 0;
  const std::string text = "  a text  with spaces\nthat are  removed ";
  EXPECT_EQ(in_parts(*tokenizer, text, 5, &parts), tokenizer->encode(text, false));
  EXPECT_EQ(parts, 1u);
}

}  // namespace
}  // namespace tandem::testing
