// A queue that several pullers empty at the same time, each at its own pace. Taking is atomic: no task is lost, none is
// taken twice, whatever the threads do.
#pragma once

#include <atomic>
#include <cstdint>
#include <numeric>
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

  /// The same, guarded: a puller leaves a task for good that it would end later than another one, which may take the
  /// task, would end everything that is left. `work`: of each task; `pace`: time of a unit of it, by puller.
  TaskQueue(std::vector<std::uint8_t> allowed, std::vector<std::uint64_t> work, std::vector<double> pace)
      : TaskQueue(std::move(allowed)) {
    work_ = std::move(work);
    pace_ = std::move(pace);
    left_ = std::accumulate(work_.begin(), work_.end(), std::uint64_t{0});
  }

  /// The first task left that this puller may take. Any number of threads may pull, for any pullers.
  std::optional<std::uint32_t> pull(std::uint32_t puller) {
    const auto bit = static_cast<std::uint8_t>(1u << puller);
    // Tasks before next_[puller] are taken, not this puller's, or better left, which does not change as less is left:
    // the search never goes back.
    for (std::uint32_t i = next_[puller].load(std::memory_order_relaxed); i < allowed_.size(); ++i) {
      if ((allowed_[i] & bit) == 0 || taken_[i].load(std::memory_order_relaxed) || better_left(puller, i)) continue;
      if (taken_[i].exchange(true, std::memory_order_acq_rel)) continue;
      if (!work_.empty()) left_.fetch_sub(work_[i], std::memory_order_relaxed);
      next_[puller].store(i + 1, std::memory_order_relaxed);
      return i;
    }
    return std::nullopt;
  }

  std::uint32_t size() const { return static_cast<std::uint32_t>(allowed_.size()); }

 private:
  /// Never true for the fastest puller of those that may take task i: no more is in it than is left.
  bool better_left(std::uint32_t puller, std::uint32_t i) const {
    if (work_.empty()) return false;
    double fastest = 0;  // another one
    for (std::uint32_t p = 0; p < pace_.size(); ++p) {
      if (p == puller || (allowed_[i] >> p & 1) == 0) continue;
      if (fastest == 0 || pace_[p] < fastest) fastest = pace_[p];
    }
    if (fastest == 0) return false;
    return double(work_[i]) * pace_[puller] > double(left_.load(std::memory_order_relaxed)) * fastest;
  }

  std::vector<std::uint8_t> allowed_;
  std::vector<std::uint64_t> work_;  // empty: not guarded
  std::vector<double> pace_;
  std::atomic<std::uint64_t> left_ = 0;  // work of tasks that nobody has taken, or more for a moment
  std::vector<std::atomic<bool>> taken_;
  std::vector<std::atomic<std::uint32_t>> next_;  // by puller
};

}  // namespace tandem
