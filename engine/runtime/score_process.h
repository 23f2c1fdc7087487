// The synthetic score process of a workload: which blocks and tokens heads would choose where no tensor is computed
// (SimOptions::shapes_only). The same workload and place give the same draws, with one instruction set and mathematical
// library.
#pragma once

#include <cstdint>

#include "engine/runtime/plan.h"
#include "engine/runtime/workload.h"

namespace tandem {

/// Which items of a sequence the query heads of one KV head choose.
struct ScorePlace {
  SequenceId sequence = 0;
  std::uint32_t layer = 0, kv_head = 0, step = 0;
  bool operator==(const ScorePlace&) const = default;
};

class ScoreProcess {
 public:
  ScoreProcess(const Workload& workload, const ModelShape& shape);
  double concentration(std::uint32_t layer, std::uint32_t q_head) const {
    return workload_.at(shape_, layer, q_head).concentration;
  }
  /// scores [group][n] of blocks 0 .. n - 1 at a step.
  void block_scores(const ScorePlace& place, std::uint32_t n, float* scores) const;
  /// Of tokens first .. first + n - 1, how many have a mean weight that exceeds `times` the mean for some query head.
  /// The step does not matter.
  std::uint32_t salient_tokens(const ScorePlace& place, std::uint32_t first, std::uint32_t n, double times) const;
  /// Of n tokens, how many have a score at this step that lies within `alpha` of the head's largest, the tokens' own
  /// draws and s times their normal parts: summed over the query heads. No token is drawn: a head's largest is, as the
  /// largest of n, and the count is its mean under that one. n > 0.
  double tokens_near_best(const ScorePlace& place, std::uint32_t n, double alpha) const;

 private:
  const Workload& workload_;
  ModelShape shape_;
};

}  // namespace tandem
