// Slots that were given back, as runs: a long sequence frees hundreds of thousands at once, in few runs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <utility>

#include "engine/common/error.h"

namespace tandem {

class FreeSlots {
 public:
  bool empty() const { return slots_ == 0; }
  std::size_t size() const { return slots_; }
  std::size_t runs() const { return runs_.size(); }

  /// Takes the lowest, so that what is taken together stays adjacent. There must be one.
  std::uint32_t take() {
    TANDEM_CHECK(!runs_.empty(), "no slot is free");
    auto lowest = runs_.extract(runs_.begin());
    const std::uint32_t slot = lowest.key()++;
    if (--lowest.mapped() > 0) runs_.insert(runs_.begin(), std::move(lowest));
    --slots_;
    return slot;
  }

  /// `slot` must not be free.
  void put(std::uint32_t slot) {
    const auto above = runs_.upper_bound(slot);
    const bool touches_above = above != runs_.end() && above->first == slot + 1;
    ++slots_;
    if (above != runs_.begin()) {
      const auto below = std::prev(above);
      if (below->first + below->second == slot) {
        ++below->second;
        if (touches_above) {
          below->second += above->second;
          runs_.erase(above);
        }
        return;
      }
    }
    if (!touches_above) {
      runs_.emplace_hint(above, slot, 1);
      return;
    }
    const auto next = std::next(above);
    auto run = runs_.extract(above);
    run.key() = slot;
    ++run.mapped();
    runs_.insert(next, std::move(run));
  }

 private:
  std::map<std::uint32_t, std::uint32_t> runs_;  // first slot -> how many; no two touch
  std::size_t slots_ = 0;
};

}  // namespace tandem
