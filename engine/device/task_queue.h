// A queue that several threads empty, each at its own pace. Taking is atomic: no task is lost, none is taken twice.
#pragma once

#include <algorithm>
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

  /// Tasks in the order in which they are taken; bit p of an entry: puller p may take it. With `work` of each task the
  /// queue is guarded: a puller leaves a task for good that it would end later than another puller, which may take the
  /// task, would end all that is left. `pace`: time of a unit of work, by puller; `workers`: how many pull as this one
  /// and have its pace together, so that a task takes one of them that many times as long. Empty: one each.
  explicit TaskQueue(std::vector<std::uint8_t> allowed, std::vector<std::uint64_t> work = {},
                     std::vector<double> pace = {}, const std::vector<std::uint32_t>& workers = {})
      : allowed_(std::move(allowed)),
        work_(std::move(work)),
        pace_(std::move(pace)),
        task_pace_(pace_),
        taken_(allowed_.size()),
        next_(kMaxPullers) {
    for (std::size_t p = 0; p < std::min(task_pace_.size(), workers.size()); ++p) task_pace_[p] *= workers[p];
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

 private:
  /// Never true for the puller that would end task i the soonest: the others need as long as one of theirs for it.
  bool better_left(std::uint32_t puller, std::uint32_t i) const {
    if (work_.empty()) return false;
    const auto work = double(work_[i]), left = double(left_.load(std::memory_order_relaxed));
    for (std::uint32_t p = 0; p < pace_.size(); ++p) {
      if (p == puller || (allowed_[i] >> p & 1) == 0) continue;
      if (work * task_pace_[puller] > std::max(left * pace_[p], work * task_pace_[p])) return true;
    }
    return false;
  }

  std::vector<std::uint8_t> allowed_;
  std::vector<std::uint64_t> work_;       // empty: not guarded
  std::vector<double> pace_, task_pace_;  // of all workers of a puller together, of one of them on a task
  std::atomic<std::uint64_t> left_ = 0;   // work of tasks that nobody has taken, or more for a moment
  std::vector<std::atomic<bool>> taken_;
  std::vector<std::atomic<std::uint32_t>> next_;  // by puller
};

}  // namespace tandem
