// A queue that several pullers empty at the same time, each at its own pace. Taking is atomic: no task is lost, none is
// taken twice, whatever the threads do.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace tandem {

class TaskQueue {
 public:
  static constexpr int kMaxPullers = 8;

  /// Tasks in the order in which they are taken; bit p of an entry: puller p may take it.
  explicit TaskQueue(std::vector<std::uint8_t> allowed)
      : allowed_(std::move(allowed)), taken_(allowed_.size()), next_(kMaxPullers) {}

  /// The first task left that this puller may take. Any number of threads may pull, for any pullers.
  std::optional<std::uint32_t> pull(std::uint32_t puller) {
    const auto bit = static_cast<std::uint8_t>(1u << puller);
    // Tasks before next_[puller] are taken or not this puller's: the search never goes back.
    for (std::uint32_t i = next_[puller].load(std::memory_order_relaxed); i < allowed_.size(); ++i) {
      if ((allowed_[i] & bit) == 0 || taken_[i].load(std::memory_order_relaxed)) continue;
      if (taken_[i].exchange(true, std::memory_order_acq_rel)) continue;
      next_[puller].store(i + 1, std::memory_order_relaxed);
      return i;
    }
    return std::nullopt;
  }

  std::uint32_t size() const { return static_cast<std::uint32_t>(allowed_.size()); }

 private:
  std::vector<std::uint8_t> allowed_;
  std::vector<std::atomic<bool>> taken_;
  std::vector<std::atomic<std::uint32_t>> next_;  // by puller
};

}  // namespace tandem
