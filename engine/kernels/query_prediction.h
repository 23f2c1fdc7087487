// The next token's query from the queries of the tokens before it (AsyncSpade, papers: section 4.2, equations 2 to 5,
// appendix C): regress the newest query on its predecessors, and apply the weights one token later.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/kernels/attention_span.h"
#include "engine/kernels/rope.h"

namespace tandem {

enum class LagWeights : std::uint8_t {
  ridge_softmax,  // softmax of the ridge regression's solution
  eq2,            // equation 2 as printed: softmax inside the norm, the penalty on what goes into it
  alg1,           // appendix C to the letter: one solution of the opposite sign, a mask, a second softmax; omits Q_t
  raw,            // the ridge regression's solution
};

struct PredictionRule {
  LagWeights weights = LagWeights::ridge_softmax;
  bool all_windows = true;    // mean over the windows of 1 .. W queries; false: the window of W alone
  double epsilon = 1e-3;      // of the ridge, relative to the mean squared norm of the W queries
  std::uint32_t window = 16;  // W, 1 .. kMaxWindow
  bool pre_rope = false;      // queries are predicted as they were before RoPE, and rotated to the next position

  std::uint32_t room() const { return window + 1; }  // queries that a prediction looks at: Q_t and W before it
};
inline constexpr std::uint32_t kMaxWindow = 32;

/// Weights of Q_{t-1}, Q_{t-2}, .. Q_{t-n}, with n = min(W, count - 1), that stand for Q_t; means over the windows. In
/// double precision, by a Cholesky factorisation of the Gram matrix that grows with the window; eq2 by damped
/// Gauss-Newton steps from the solution of the window before it, or from equal weights. Zero queries are fine: the
/// ridge then counts as 1.
std::vector<double> lag_weights(const PredictionRule& rule, const float* queries /*[count][D], oldest first*/,
                                std::uint32_t count, std::uint32_t dim);

/// The sum of weights[i - 1] Q_{t+1-i}, one token later than what the weights were found for; `shift` false: of
/// weights[i - 1] Q_{t-i}, which stands for Q_t itself. Of a single query: that query. alg1 never shifts.
void apply_lag_weights(const PredictionRule& rule, const std::vector<double>& weights, const float* queries,
                       std::uint32_t count, std::uint32_t dim, bool shift, float* out /*[D]*/);

/// Puts the query of the token at `position` into a window of the heads' last rule.room() queries: entry position %
/// room, without its rotation where the rule says so.
void push_query(const PredictionRule& rule, const RopeTable& rope, const float* q /*[heads][D]*/, std::uint32_t heads,
                std::uint32_t dim, std::uint32_t position, float* window /*[heads][room][D]*/);

/// Predicts the heads' queries of token `position` + 1 from a window of `count` queries, the newest at `position`.
void predict_next(const PredictionRule& rule, const RopeTable& rope, const float* window /*[heads][room][D]*/,
                  std::uint32_t heads, std::uint32_t dim, std::uint32_t count, std::uint32_t position,
                  float* out /*[heads][D]*/);

}  // namespace tandem
