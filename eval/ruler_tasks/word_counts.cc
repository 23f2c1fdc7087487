#include <algorithm>
#include <cmath>
#include <unordered_set>

#include "engine/common/error.h"
#include "eval/ruler_tasks/draft.h"

namespace tandem::eval {
namespace {

/// Six small letters.
std::string random_word(Random& random) {
  std::string word;
  for (int i = 0; i < 6; ++i) word += static_cast<char>('a' + random.below(26));
  return word;
}

/// Words at their indices in a list that is shuffled alike each time.
std::string shuffled_text(std::vector<std::size_t> list, const std::vector<std::string>& words, Random random,
                          const std::string& join) {
  shuffle(list, random);
  std::string text;
  for (std::size_t i = 0; i < list.size(); ++i) text += (i == 0 ? "" : join) + words[list[i]];
  return text + '\n';
}

/// Common words: ten words that occur often in a list of words that do not. The unit is a rare word.
class CommonDraft : public Draft {
 public:
  explicit CommonDraft(const DraftSeed& seed)
      : wording_(ruler_wording()),
        shuffling_(seed.stream(2)),
        inventing_(seed.stream(3)),
        often_(seed.length < kShort ? 10 : 30),
        seldom_(seed.length < kShort ? 1 : 3) {
    for (const auto* words : {&wording_.nouns, &wording_.verbs}) {
      for (const std::string& word : *words) {
        if (seen_.insert(word).second) pool_.push_back(word);
      }
    }
    Random random = seed.stream(0);
    shuffle(pool_, random);
    TANDEM_CHECK(pool_.size() > kCommon, "{} words", pool_.size());
  }

  std::string prompt(std::uint32_t n, std::optional<double>* depth) override {
    // Beyond some 20,000 words of text the dictionary is used up, and a rare word that came back would not be rare.
    while (pool_.size() < kCommon + n)
      if (std::string word = random_word(inventing_); seen_.insert(word).second) pool_.push_back(std::move(word));
    std::vector<std::size_t> list;  // indices into pool_
    for (std::size_t i = 0; i < kCommon; ++i) list.insert(list.end(), often_, i);
    for (std::size_t i = 0; i < n; ++i) list.insert(list.end(), seldom_, kCommon + i);
    if (depth != nullptr) depth->reset();
    return wording_["cwe/intro"] + '\n' + shuffled_text(list, pool_, shuffling_, wording_["cwe/item_join"]) +
           fill(wording_["cwe/question"], {{"k", std::to_string(kCommon)}});
  }

  std::vector<std::string> answers() const override { return {pool_.begin(), pool_.begin() + kCommon}; }

 private:
  static constexpr std::size_t kCommon = 10;
  static constexpr std::uint32_t kShort = 4096;  // below, upstream's 10 * 30 common words would leave no room

  const RulerWording& wording_;
  Random shuffling_, inventing_;
  std::size_t often_, seldom_;
  std::unordered_set<std::string> seen_;
  std::vector<std::string> pool_;  // the common ones first
};

/// Frequent words: made-up words with frequencies of Zipf's law (alpha 2); asked for are ranks 2 to 4, rank 1 being
/// dots. The unit is 16 words of text.
class FrequentDraft : public Draft {
 public:
  explicit FrequentDraft(const DraftSeed& seed) : wording_(ruler_wording()), shuffling_(seed.stream(2)) {
    Random random = seed.stream(0);
    std::unordered_set<std::string> seen;
    words_.emplace_back("...");
    while (words_.size() < kVocabulary) {
      std::string word = random_word(random);
      if (seen.insert(word).second) words_.push_back(std::move(word));
    }
  }

  std::string prompt(std::uint32_t n, std::optional<double>* depth) override {
    const double total = 16.0 * (n + kLeast);
    std::vector<std::size_t> list;
    for (std::size_t rank = 1; rank <= words_.size(); ++rank) {
      const double share = 1 / (static_cast<double>(rank) * static_cast<double>(rank) * kZeta2);
      list.insert(list.end(), static_cast<std::size_t>(total * share), rank - 1);
    }
    if (depth != nullptr) depth->reset();
    return wording_["fwe/intro"] + '\n' + shuffled_text(list, words_, shuffling_, " ") + wording_["fwe/question"];
  }

  std::vector<std::string> answers() const override { return {words_.begin() + 1, words_.begin() + 4}; }

 private:
  static constexpr std::size_t kVocabulary = 2000;  // as upstream
  static constexpr double kZeta2 = 1.6449340668482264;
  static constexpr std::uint32_t kLeast = 8;  // 128 words: ranks 4 and 5 occur 4 and 3 times

  const RulerWording& wording_;
  Random shuffling_;
  std::vector<std::string> words_;  // by rank
};

}  // namespace

std::unique_ptr<Draft> draft_common(const DraftSeed& seed) {
  return std::make_unique<CommonDraft>(seed);
}

std::unique_ptr<Draft> draft_frequent(const DraftSeed& seed) {
  return std::make_unique<FrequentDraft>(seed);
}

}  // namespace tandem::eval
