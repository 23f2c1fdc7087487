#include <algorithm>
#include <unordered_set>

#include "eval/ruler/draft.h"

namespace tandem::eval {
namespace {

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
      lines_.push_back(i == 0 ? fill(wording_.chains.first, {{"name", names_[0]}, {"value", value_}})
                              : fill(wording_.chains.next, {{"name", names_[i]}, {"previous", names_[i - 1]}}));
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
    return wording_.chains.intro + '\n' + hay + '\n' + fill(wording_.chains.question, {{"value", value_}});
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

std::unique_ptr<Draft> draft_chains(const DraftSeed& seed) {
  return std::make_unique<ChainDraft>(seed);
}

}  // namespace tandem::eval
