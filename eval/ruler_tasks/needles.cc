#include <algorithm>
#include <array>
#include <fmt/core.h>
#include <numeric>
#include <unordered_set>

#include "eval/ruler_tasks/draft.h"

namespace tandem::eval {
namespace {

using Haystack = RulerTask::Haystack;
using Kind = RulerTask::Kind;

// round(linspace(0, 100, 40)) with ties to even, as upstream's NumPy computes it: per cent of the haystack.
constexpr std::array<std::uint32_t, 40> kDepths = {0,  3,  5,  8,  10, 13, 15, 18, 21, 23, 26, 28, 31, 33,
                                                   36, 38, 41, 44, 46, 49, 51, 54, 56, 59, 62, 64, 67, 69,
                                                   72, 74, 77, 79, 82, 85, 87, 90, 92, 95, 97, 100};

const char* type_of(Kind kind) {
  return kind == Kind::numbers ? "niah/types/numbers" : kind == Kind::words ? "niah/types/words" : "niah/types/uuids";
}

/// An adjective and a noun, "able-acid"; as upstream a number from 1000000 to 9999999, or a UUID of RFC 4122's
/// version 4.
std::string random_text(const RulerWording& wording, Kind kind, Random& random) {
  if (kind == Kind::numbers) return std::to_string(1000000 + random.below(9000000));
  if (kind == Kind::words) {
    const std::string& adjective = wording.adjectives[random.below(wording.adjectives.size())];
    return adjective + "-" + wording.nouns[random.below(wording.nouns.size())];
  }
  const std::uint64_t high = (random.next() & ~0xf000ull) | 0x4000ull;                        // version 4
  const std::uint64_t low = (random.next() & 0x3fffffffffffffffull) | 0x8000000000000000ull;  // variant 10
  return fmt::format("{:08x}-{:04x}-{:04x}-{:04x}-{:012x}", high >> 32, (high >> 16) & 0xffff, high & 0xffff, low >> 48,
                     low & 0xffffffffffffull);
}

/// Sentences are drawn from their own stream, so that the haystack of n sentences is the beginning of the haystack of
/// n + 1: the fit searches over one fixed text.
class NeedleDraft : public Draft {
 public:
  explicit NeedleDraft(const DraftSeed& seed)
      : task_(*seed.task),
        wording_(ruler_wording()),
        type_(wording_[type_of(task_.value)]),
        essays_(seed.task->haystack == Haystack::prose ? seed.texts->essays.get() : nullptr),
        hay_(seed.stream(1)) {
    Random random = seed.stream(0);
    std::unordered_set<std::string> values;
    while (needles_.size() < std::size_t{task_.keys} * task_.values) {
      std::string key = random_text(wording_, task_.key, random);
      // Upstream lets keys and values repeat; then a question has two answers, or a wrong one is counted as right.
      if (keys_.contains(key)) continue;
      keys_.insert(key);
      for (std::uint32_t v = 0; v < task_.values;) {
        std::string value = random_text(wording_, task_.value, random);
        if (!values.insert(value).second) continue;
        needles_.push_back({line(key, value), key, value});
        ++v;
      }
    }
    choose_asked(random);
    std::array<std::uint32_t, kDepths.size()> depths = kDepths;
    for (std::size_t i = 0; i < needles_.size(); ++i) {
      std::swap(depths[i], depths[i + random.below(depths.size() - i)]);
      needles_[i].percent = depths[i];
      needles_[i].position = random.next();
    }
    if (task_.percent) needles_[asked_.front()].percent = *task_.percent;
    order_.resize(needles_.size());
    std::iota(order_.begin(), order_.end(), std::size_t{0});
    std::sort(order_.begin(), order_.end(),
              [&](std::size_t a, std::size_t b) { return needles_[a].percent < needles_[b].percent; });
  }

  std::string prompt(std::uint32_t n, std::optional<double>* depth) override {
    while (units_.size() < n) units_.push_back(next_unit());
    std::vector<std::string> lines;
    std::vector<std::uint32_t> places;
    for (const std::size_t i : order_) {
      lines.push_back(needles_[i].line);
      places.push_back(place(needles_[i], n));
    }
    // Ascending: only prose, whose places follow the depths, has several needles.
    std::vector<std::size_t> starts;
    const std::string hay = scatter(units_, n, lines, places, &starts);
    const auto at = static_cast<std::size_t>(std::find(order_.begin(), order_.end(), asked_.front()) - order_.begin());
    const std::size_t room = hay.size() - lines[at].size();
    if (depth != nullptr) *depth = room == 0 ? 0.0 : static_cast<double>(starts[at]) / static_cast<double>(room);
    return fill(wording_["niah/intro"], {{"type", type_}}) + '\n' + hay + '\n' + question();
  }

  std::vector<std::string> answers() const override {
    std::vector<std::string> out;
    out.reserve(asked_.size());
    for (const std::size_t i : asked_) out.push_back(needles_[i].value);
    return out;
  }

 private:
  struct Needle {
    std::string line, key, value;
    std::uint32_t percent = 0;   // prose: one of the 40 depths
    std::uint64_t position = 0;  // noise, needles: uniform
  };

  void choose_asked(Random& random) {
    if (task_.queries > 1) {  // keys in a random order
      std::vector<std::size_t> all(needles_.size());
      std::iota(all.begin(), all.end(), std::size_t{0});
      for (std::size_t i = 0; i < task_.queries; ++i) {
        std::swap(all[i], all[i + random.below(all.size() - i)]);
        asked_.push_back(all[i]);
      }
    } else {
      const std::size_t first = random.below(task_.keys) * task_.values;
      for (std::uint32_t v = 0; v < task_.values; ++v) asked_.push_back(first + v);
    }
    for (const std::size_t i : asked_) {
      forbidden_values_.insert(needles_[i].value);
      forbidden_keys_.insert(needles_[i].key);
    }
  }

  std::string question() const {
    const std::string& key = needles_[asked_.front()].key;
    if (task_.queries > 1) {
      std::string keys;
      for (const std::size_t i : asked_) keys += (keys.empty() ? "" : wording_["niah/keys_join"]) + needles_[i].key;
      return fill(wording_["niah/question_keys"], {{"type", type_}, {"keys", keys}});
    }
    return fill(wording_[task_.values > 1 ? "niah/question_values" : "niah/question_one"],
                {{"type", type_}, {"key", key}});
  }

  std::string line(std::string_view key, std::string_view value) const {
    return fill(wording_["niah/needle"], {{"type", type_}, {"key", key}, {"value", value}});
  }

  /// Units before the needle: upstream takes int(sentences * depth / 100) sentences for essays and a random line
  /// otherwise. Of essays a unit is a word, so that the last sentence may be cut, as upstream's.
  std::uint32_t place(const Needle& needle, std::uint32_t n) const {
    if (essays_ != nullptr) {
      const std::uint64_t sentences = essays_->sentences_before(n), before = sentences * needle.percent / 100;
      return before == sentences ? n : static_cast<std::uint32_t>(essays_->first_word(before));
    }
    if (task_.haystack == Haystack::prose || task_.percent)
      return static_cast<std::uint32_t>(std::uint64_t{n} * needle.percent / 100);
    return scaled_place(needle.position, n);
  }

  std::string next_unit() {
    if (essays_ != nullptr) return essays_->word(units_.size());
    if (task_.haystack == Haystack::noise) return wording_.noise[units_.size() % wording_.noise.size()];
    if (task_.haystack == Haystack::prose) return random_prose(wording_, hay_);
    // Distractor keys are distinct while the words last; from half of all pairs on only the asked keys are avoided.
    const std::size_t enough = wording_.nouns.size() * wording_.adjectives.size() / 2;
    for (;;) {
      std::string key = random_text(wording_, task_.key, hay_), value = random_text(wording_, task_.value, hay_);
      if (forbidden_values_.contains(value) || forbidden_keys_.contains(key)) continue;
      if (keys_.size() < enough && !keys_.insert(key).second) continue;
      return line(key, value);
    }
  }

  const RulerTask& task_;
  const RulerWording& wording_;
  const std::string& type_;  // of value: "number"
  const Essays* essays_;     // null: invented prose
  Random hay_;
  std::vector<Needle> needles_;
  std::vector<std::size_t> order_;  // needles by depth
  std::vector<std::size_t> asked_;  // in the order of the answer
  std::unordered_set<std::string> forbidden_values_, forbidden_keys_;
  std::unordered_set<std::string> keys_;
  std::vector<std::string> units_;
};

/// Variable tracking: one chain of five variables in noise, each but the first set from the one before it.
class ChainDraft : public Draft {
 public:
  explicit ChainDraft(const DraftSeed& seed) : wording_(ruler_wording()) {
    Random random = seed.stream(0);
    value_ = std::to_string(10000 + random.below(90000));  // as upstream
    std::unordered_set<std::string> used;
    while (names_.size() < kHops + 1) {
      std::string name;
      for (int i = 0; i < 5; ++i) name += static_cast<char>('A' + random.below(26));
      if (used.insert(name).second) names_.push_back(name);
    }
    for (std::size_t i = 0; i < names_.size(); ++i) {
      lines_.push_back(i == 0 ? fill(wording_["vt/first"], {{"name", names_[0]}, {"value", value_}})
                              : fill(wording_["vt/next"], {{"name", names_[i]}, {"previous", names_[i - 1]}}));
      positions_.push_back(random.next());
    }
    std::sort(positions_.begin(), positions_.end());
  }

  std::string prompt(std::uint32_t n, std::optional<double>* depth) override {
    while (noise_.size() < n) noise_.push_back(wording_.noise[noise_.size() % wording_.noise.size()]);
    std::vector<std::uint32_t> places;
    places.reserve(positions_.size());
    for (const std::uint64_t position : positions_) places.push_back(scaled_place(position, n));
    std::vector<std::size_t> starts;
    const std::string hay = scatter(noise_, n, lines_, places, &starts);
    const std::size_t room = hay.size() - lines_[0].size();
    if (depth != nullptr) *depth = static_cast<double>(starts[0]) / static_cast<double>(room);
    return wording_["vt/intro"] + '\n' + hay + '\n' + fill(wording_["vt/question"], {{"value", value_}});
  }

  std::vector<std::string> answers() const override { return names_; }

 private:
  static constexpr std::size_t kHops = 4;

  const RulerWording& wording_;
  std::string value_;
  std::vector<std::string> names_, lines_, noise_;
  std::vector<std::uint64_t> positions_;  // ascending
};

}  // namespace

std::unique_ptr<Draft> draft_needles(const DraftSeed& seed) {
  return std::make_unique<NeedleDraft>(seed);
}

std::unique_ptr<Draft> draft_chains(const DraftSeed& seed) {
  return std::make_unique<ChainDraft>(seed);
}

}  // namespace tandem::eval
