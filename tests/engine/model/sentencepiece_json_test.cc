// tokenizer.json with pieces and merges: the ids are those of the merges, applied one by one.
#include <algorithm>
#include <map>
#include <random>

#include "engine/model/sentencepiece_tokenizer.h"
#include "tests/engine/model/model_folder.h"

namespace tandem::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Ids = std::vector<std::int32_t>;

struct Pieces {
  Vocabulary vocabulary;
  Merges merges;
  std::int32_t id_of(const std::string& text) const {
    for (const auto& [piece, id] : vocabulary) {
      if (piece == text) return id;
    }
    return -1;
  }
  void add(const std::string& text) { vocabulary.emplace_back(text, static_cast<std::int32_t>(vocabulary.size())); }
  /// A piece and all merges that make it, those with the shorter left part first.
  void make(const std::string& text) {
    for (std::size_t cut = 1; cut < text.size(); ++cut) {
      if (id_of(text.substr(0, cut)) >= 0 && id_of(text.substr(cut)) >= 0)
        merges.emplace_back(text.substr(0, cut), text.substr(cut));
    }
    add(text);
  }
};

Pieces letters(const std::string& all) {
  Pieces pieces;
  pieces.add("<unk>");
  for (const char c : all) pieces.add(std::string(1, c));
  return pieces;
}

std::unique_ptr<Tokenizer> load(const Pieces& pieces) {
  SentencePieceSpec spec;
  spec.file = "tokenizer.json";
  spec.model = sentencepiece_of(pieces.vocabulary, pieces.merges, "<unk>", /*prefix_space=*/false, spec.file);
  return make_sentencepiece_tokenizer(spec, ~0u);
}

std::string refusal(const Pieces& pieces) {
  return sentence_of([&] { load(pieces); });
}

/// Of all pairs the one whose merge comes first, of equal ones the leftmost.
Ids merged(const Pieces& pieces, const std::string& text) {
  std::map<std::pair<std::string, std::string>, std::size_t> ranks;
  for (std::size_t rank = 0; rank < pieces.merges.size(); ++rank) ranks.emplace(pieces.merges[rank], rank);
  std::vector<std::string> parts;
  for (const char c : text) parts.emplace_back(1, c);
  while (true) {
    std::size_t best = parts.size(), least = ranks.size();
    for (std::size_t i = 0; i + 1 < parts.size(); ++i) {
      const auto found = ranks.find({parts[i], parts[i + 1]});
      if (found == ranks.end() || found->second >= least) continue;
      least = found->second;
      best = i;
    }
    if (best == parts.size()) break;
    parts[best] += parts[best + 1];
    parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(best) + 1);
  }
  Ids ids;
  for (const std::string& part : parts) ids.push_back(pieces.id_of(part));
  return ids;
}

TEST(SentencePieceJson, IdsAreThoseOfTheMerges) {
  std::mt19937 random(4);
  std::size_t accepted = 0;
  for (int round = 0; round < 300; ++round) {
    Pieces pieces = letters(round % 2 == 0 ? "ab" : "abc");
    const std::size_t first = pieces.vocabulary.size();
    for (int i = 0; i < 12; ++i) {
      const auto any = [&] { return pieces.vocabulary[1 + random() % (pieces.vocabulary.size() - 1)].first; };
      const std::string text = any() + any();
      if (pieces.id_of(text) < 0 && text.size() < 9) pieces.make(text);
    }
    ASSERT_GT(pieces.vocabulary.size(), first);
    // A later piece may allow a merge into an earlier one, which is not listed then.
    if (!refusal(pieces).empty()) continue;
    ++accepted;
    const auto tokenizer = load(pieces);
    for (int i = 0; i < 40; ++i) {
      std::string text(1 + random() % 40, 'a');
      for (char& c : text) c = static_cast<char>('a' + random() % (round % 2 == 0 ? 2 : 3));
      ASSERT_EQ(tokenizer->encode(text, false), merged(pieces, text)) << text << ", round " << round;
    }
  }
  EXPECT_GT(accepted, 50u);
}

// Llama 2's spaces: of the pieces "aa" to "aaaa" the longer left parts come first, whichever piece they make.
TEST(SentencePieceJson, RunsOfOneCharacterMayBeMixed) {
  Pieces pieces = letters("ab");
  for (const char* text : {"aa", "aaa", "aaaa"}) pieces.add(text);
  pieces.merges = {{"aaa", "a"}, {"aa", "aa"}, {"aa", "a"}, {"a", "aaa"}, {"a", "aa"}, {"a", "a"}};
  const auto tokenizer = load(pieces);
  for (std::size_t n = 1; n < 30; ++n) {
    const std::string text = "b" + std::string(n, 'a') + "b";
    EXPECT_EQ(tokenizer->encode(text, false), merged(pieces, text)) << n;
  }
  pieces.merges = {{"aa", "aa"}, {"aaa", "a"}, {"a", "aaa"}, {"a", "a"}, {"aaaa", "a"}, {"aa", "a"}, {"a", "aa"}};
  EXPECT_THAT(refusal(pieces), HasSubstr("'aaaaa'")) << "which is no piece";
}

TEST(SentencePieceJson, WhatScoresCannotSayIsRefused) {
  Pieces mixed = letters("abc");
  for (const char* text : {"ab", "bc", "abc", "cab"}) mixed.add(text);
  mixed.merges = {{"a", "b"}, {"b", "c"}, {"a", "bc"}, {"c", "ab"}, {"ab", "c"}};
  EXPECT_THAT(refusal(mixed), AllOf(HasSubstr("tokenizer.json"), HasSubstr("'abc' in two places")));
  mixed.merges = {{"a", "b"}, {"b", "c"}, {"a", "bc"}, {"c", "ab"}};
  EXPECT_THAT(refusal(mixed), AllOf(HasSubstr("'abc', but not of 'ab' and 'c'")));
  Pieces gap = letters("ab");
  gap.vocabulary.emplace_back("ab", 9);
  EXPECT_THAT(refusal(gap), HasSubstr("the id 9 to 'ab'"));
  Pieces bytes = letters("ab");
  bytes.add("<0x0A>");
  EXPECT_THAT(refusal(bytes), HasSubstr("1 of the 256 bytes"));
  Pieces unknown = letters("ab");
  unknown.merges = {{"a", "b"}};
  EXPECT_THAT(refusal(unknown), HasSubstr("'ab', which model.vocab does not have"));
}

}  // namespace
}  // namespace tandem::testing
