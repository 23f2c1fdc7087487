// The next token's query from the queries of the tokens before it (AsyncSpade, papers: section 4.2, equations 2 to 5,
// appendix C): regress the newest query on its predecessors, and apply the weights one token later.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/device/cuda/launch_array.h"
#include "engine/device/cuda/runtime.h"  // CudaStream
#include "engine/kernels/attention_span.h"
#include "engine/kernels/rope.h"
#include "engine/mechanisms/token_choice/kernels/token_choice.h"

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
/// double precision, by a Cholesky factorisation of the Gram matrix that grows with the window; eq2 by damped Newton
/// steps from the solution of the window before it, or from equal weights. Zero queries are fine: the
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

/// FLOPs of predict_next() per head, in double precision; equation 2's with the mean number of Newton steps.
std::uint64_t prediction_flops(const PredictionRule& rule, std::uint32_t count, std::uint32_t dim);

// On the GPU, for many windows at once: of sequences and layers. The lists and all that they name are device memory.

/// A RopeTable. Rules that predict queries as they are need none.
struct DeviceRope {
  const double* inverse_frequency = nullptr;  // [D / 2]
  double scale = 1;
};

struct QueryPush {
  const float* q = nullptr;    // [heads][D]
  float* window = nullptr;     // [heads][room][D]
  std::uint32_t position = 0;  // of the token
};
/// push_query of every one. D is even where the rule is pre_rope. Of two pushes into one window the latter belongs into
/// another call.
void push_queries_cuda(const PredictionRule& rule, const DeviceRope& rope, const LaunchArray<QueryPush>& pushes /*[n]*/,
                       std::uint32_t n, std::uint32_t heads, std::uint32_t dim, CudaStream stream);

struct QueryWindow {
  const float* queries = nullptr;  // [heads][room][D], by push_query
  std::uint32_t count = 0;         // that are there, at least 1
  std::uint32_t position = 0;      // of the newest
  float* out = nullptr;            // [heads][D]
};
/// predict_next of every one, in double precision like the CPU's. `weights`: room for prediction_scratch() doubles.
void predict_next_cuda(const PredictionRule& rule, const DeviceRope& rope, const QueryWindow* windows /*[n]*/,
                       std::uint32_t n, std::uint32_t heads, std::uint32_t dim, double* weights, CudaStream stream);
/// Doubles. Only equation 2 has its windows solved apart, by a block of threads each.
constexpr std::size_t prediction_scratch(const PredictionRule& rule, std::uint32_t n, std::uint32_t heads) {
  return rule.weights == LagWeights::eq2 ? std::size_t{n} * heads * rule.window * rule.window : 0;
}

struct AheadWindow {
  const float* queries = nullptr;  // [group][room][D], by push_query
  std::uint32_t count = 0;         // that are there
  std::uint32_t position = 0;      // of the newest
};

/// The work of a cache rank for one KV head and layer (AsyncSpade, section 4 and figure 6): predicts the group's next
/// queries, scores every token with them, and gathers the keys and values of the best: the `keep` best tokens of
/// the spans, or all where there are fewer, in ascending order, packed. Chooses as choose_tokens() does.
void select_ahead(const PredictionRule& rule, const RopeTable& rope, const AheadWindow& window,
                  std::span<const KvSpan> spans, AttentionShape shape, std::uint32_t keep,
                  void* k /*[min(keep, tokens)][D]*/, void* v /*[min(keep, tokens)][D]*/);

/// The same on the GPU for a whole batch, of sequences and layers: predict_next_cuda, choose_tokens_cuda and
/// pack_tokens_cuda one after another, so that nothing of it comes to the host. All pointers are device memory.
struct AheadBatch {
  const QueryWindow* windows = nullptr;     // [rows]; out: the row of `queries`
  const TokenChoiceRow* choices = nullptr;  // [rows]
  const TokenPack* packs = nullptr;         // [rows]; chosen and room: those of `choices`
  std::uint32_t rows = 0, group = 1;
  std::uint32_t most = 0;  // the largest `keep`
  KvPages kv;
  PageLists lists;            // the rows' pages, full but for the last of each
  float* queries = nullptr;   // [rows][Hq][D]
  float* scores = nullptr;    // [rows][Hq][16 * lists.capacity]; to work in
  double* weights = nullptr;  // prediction_scratch(rule, rows, Hq)
};
void select_ahead_cuda(const PredictionRule& rule, const DeviceRope& rope, const AheadBatch& batch, CudaStream stream);

}  // namespace tandem
