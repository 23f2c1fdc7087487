// The next token's query, a block of threads per head: inner products by warps, then systems of at most 32 unknowns in
// double precision, a thread per row or per window.
#include "engine/common/error.h"
#include "engine/kernels/cuda/launch.cuh"
#include "engine/mechanisms/cache_rank/kernels/query_prediction.h"

namespace tandem::gpu {

constexpr unsigned kPushThreads = 64;

/// Grid: {heads, pushes}.
__global__ void __launch_bounds__(kPushThreads)
    push_queries_kernel(const __grid_constant__ PredictionRule rule, const __grid_constant__ DeviceRope rope,
                        const __grid_constant__ LaunchArray<QueryPush> pushes, std::uint32_t dim) {
  const QueryPush push = pushes[blockIdx.y];
  const std::uint32_t head = blockIdx.x, room = rule.window + 1, pairs = dim / 2;
  const float* const from = push.q + std::size_t{head} * dim;
  float* const to = push.window + (std::size_t{head} * room + push.position % room) * dim;
  if (!rule.pre_rope) {
    for (std::uint32_t i = threadIdx.x; i < dim; i += kPushThreads) to[i] = from[i];
    return;
  }
  for (std::uint32_t i = threadIdx.x; i < pairs; i += kPushThreads) {
    const float2 turn = rotation(rope.inverse_frequency[i], push.position, static_cast<float>(1.0 / rope.scale));
    const float a = from[i], b = from[i + pairs];
    to[i] = a * turn.x + b * turn.y;
    to[i + pairs] = b * turn.x - a * turn.y;
  }
}

constexpr unsigned kPredictThreads = 128;
constexpr std::uint32_t kPitch = kMaxWindow + 1;  // of a row: rows begin in different banks

/// One head's window.
struct LagQueries {
  const float* queries;  // [room][D]
  std::uint32_t room, count, position, dim;
  /// The query so many tokens before the newest.
  __device__ __forceinline__ const float* lag(std::uint32_t tokens) const {
    return queries + std::size_t{(position + room - tokens) % room} * dim;
  }
};
__device__ __forceinline__ LagQueries queries_of(const PredictionRule& rule, const QueryWindow& window,
                                                 std::uint32_t head, std::uint32_t dim) {
  const std::uint32_t room = rule.window + 1;
  return {window.queries + std::size_t{head} * room * dim, room, window.count, window.position % room, dim};
}
/// Queries that the newest is regressed on.
__device__ __forceinline__ std::uint32_t unknowns_of(const PredictionRule& rule, std::uint32_t count) {
  const std::uint32_t most = rule.weights == LagWeights::alg1 ? rule.window - 1 : rule.window;
  return most < count - 1 ? most : count - 1;
}

/// Row i < n: inner products of Q_{t-1-i} with Q_{t-1} .. Q_{t-1-i}, and in the upper half the same; row n: of Q_t.
struct Gram {
  double values[(kMaxWindow + 1) * kPitch];
  double ridge;
  __device__ __forceinline__ double& at(std::uint32_t i, std::uint32_t j) { return values[i * kPitch + j]; }
};

/// By the block; ends with a barrier.
__device__ __forceinline__ void make_gram(const PredictionRule& rule, const LagQueries& queries, std::uint32_t n,
                                          Gram& gram) {
  const unsigned lane = threadIdx.x % kWarp;
  const std::uint32_t products = (n + 1) * (n + 2) / 2 - 1;  // all but Q_t with itself
  for (std::uint32_t p = threadIdx.x / kWarp; p < products; p += kPredictThreads / kWarp) {
    std::uint32_t i = 0, left = p;
    while (left > i) left -= ++i;
    const float *a = queries.lag(i == n ? 0 : i + 1), *b = queries.lag(left + 1);
    double sum = 0.0;
    for (std::uint32_t d = lane; d < queries.dim; d += kWarp)
      sum += static_cast<double>(a[d]) * static_cast<double>(b[d]);
    sum = warp_sum(sum);
    if (lane == 0) gram.at(i, left) = gram.at(left, i) = sum;
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    double trace = 0.0;
    for (std::uint32_t i = 0; i < n; ++i) trace += gram.at(i, i);
    gram.ridge = trace > 0.0 ? rule.epsilon * trace / n : 1.0;
  }
  __syncthreads();
}

/// The lower factor of the leading n x n of `a` + `shift` on the diagonal, in place, and row n of `a` with the factor
/// divided out from the right: what the forward substitution of that row as a right-hand side gives. A thread per row;
/// ends with a barrier. Sets `indefinite`, where given, if rounding alone keeps the matrix positive definite, or
/// nothing does.
__device__ __forceinline__ void factor_in_place(double* a, std::uint32_t n, double shift, bool* indefinite = nullptr) {
  const std::uint32_t i = threadIdx.x;
  for (std::uint32_t j = 0; j < n; ++j) {
    double value = 0.0;
    if (i >= j && i <= n) {
      const double diagonal = a[j * kPitch + j] + shift;
      double rest = diagonal, sum = i == j ? diagonal : a[i * kPitch + j];
      for (std::uint32_t k = 0; k < j; ++k) {
        const double l = a[j * kPitch + k];
        rest -= l * l;
        sum -= a[i * kPitch + k] * l;
      }
      // A ridge bounds it from below; rounding must not make it 0.
      const double positive = diagonal > 0.0 ? diagonal : 0.0, least = positive * 1e-15 + 1e-300;
      const double root = sqrt(rest > least ? rest : least);
      if (i == j && indefinite != nullptr && rest <= positive * 1e-14) *indefinite = true;
      value = i == j ? root : sum / root;
    }
    __syncthreads();
    if (i >= j && i <= n) a[i * kPitch + j] = value;
    __syncthreads();
  }
}

/// x = the solution of the leading k unknowns, after factor_in_place: by one thread.
__device__ __forceinline__ void substitute_back(const double* factor, std::uint32_t n, std::uint32_t k, double* x) {
  for (std::uint32_t i = k; i-- > 0;) {
    double value = factor[n * kPitch + i];
    for (std::uint32_t m = i + 1; m < k; ++m) value -= factor[m * kPitch + i] * x[m];
    x[i] = value / factor[i * kPitch + i];
  }
}

/// By one thread.
__device__ __forceinline__ void softmax_in_place(double* x, std::uint32_t n) {
  double most = x[0], sum = 0.0;
  for (std::uint32_t i = 1; i < n; ++i) most = most < x[i] ? x[i] : most;
  for (std::uint32_t i = 0; i < n; ++i) sum += x[i] = exp(x[i] - most);
  for (std::uint32_t i = 0; i < n; ++i) x[i] /= sum;
}

/// The query of the next token from weights of the lags, in its place on the rotation. By the block.
__device__ __forceinline__ void apply_lags(const PredictionRule& rule, const DeviceRope& rope,
                                           const LagQueries& queries, std::uint32_t next, const double* lags,
                                           std::uint32_t n, float* out) {
  const std::uint32_t dim = queries.dim, pairs = dim / 2, first = rule.weights == LagWeights::alg1 ? 1 : 0;
  const auto predicted = [&](std::uint32_t d) {
    if (n == 0) return queries.lag(0)[d];
    double sum = 0.0;
    for (std::uint32_t i = 0; i < n; ++i) sum += lags[i] * static_cast<double>(queries.lag(first + i)[d]);
    return static_cast<float>(sum);
  };
  if (!rule.pre_rope) {
    for (std::uint32_t d = threadIdx.x; d < dim; d += kPredictThreads) out[d] = predicted(d);
    return;
  }
  for (std::uint32_t i = threadIdx.x; i < pairs; i += kPredictThreads) {
    const float2 turn = rotation(rope.inverse_frequency[i], next, static_cast<float>(rope.scale));
    const float a = predicted(i), b = predicted(i + pairs);
    out[i] = a * turn.x - b * turn.y;
    out[i + pairs] = b * turn.x + a * turn.y;
  }
}

/// Every rule but equation 2. Grid: {heads, windows}.
__global__ void __launch_bounds__(kPredictThreads)
    predict_kernel(const __grid_constant__ PredictionRule rule, const __grid_constant__ DeviceRope rope,
                   const QueryWindow* windows, std::uint32_t dim) {
  TANDEM_SHARED(Gram, grams, 1);
  TANDEM_SHARED(double, solutions, kMaxWindow* kPitch);  // of each window
  TANDEM_SHARED(double, lags, kMaxWindow);
  Gram& gram = grams[0];
  const QueryWindow& window = windows[blockIdx.y];
  const LagQueries queries = queries_of(rule, window, blockIdx.x, dim);
  const std::uint32_t n = unknowns_of(rule, window.count), t = threadIdx.x;
  if (n > 0) {
    make_gram(rule, queries, n, gram);
    factor_in_place(gram.values, n, gram.ridge);
    if (rule.weights == LagWeights::alg1) {
      // Appendix C: the solution for the longest window, its sign turned and the oldest query first; each window takes
      // as many of it as it has queries, beside zeros for the others, through a second softmax.
      if (t == 0) {
        double* const x = lags;
        substitute_back(gram.values, n, n, x);
        for (std::uint32_t i = 0; i < n; ++i) x[i] = -x[i];
        softmax_in_place(x, n);
      }
      __syncthreads();
      if (t <= n && t < kMaxWindow) {  // window t + 1
        const std::uint32_t taken = t + 1 < n ? t + 1 : n;
        double* const x = solutions + t * kPitch;
        for (std::uint32_t i = 0; i < n; ++i) x[i] = i < taken ? lags[n - 1 - i] : 0.0;
        softmax_in_place(x, n);
      }
      __syncthreads();
      if (t < n) {
        double sum = 0.0;
        for (std::uint32_t j = rule.all_windows ? 0 : n; j <= n; ++j) {
          const std::uint32_t taken = j + 1 < n ? j + 1 : n;
          if (t < taken) sum += solutions[j * kPitch + taken - 1 - t];
        }
        lags[t] = rule.all_windows ? sum / (n + 1) : sum;
      }
    } else {
      if (t < n && (rule.all_windows || t + 1 == n)) {
        double* const x = solutions + t * kPitch;
        substitute_back(gram.values, n, t + 1, x);
        if (rule.weights == LagWeights::ridge_softmax) softmax_in_place(x, t + 1);
      }
      __syncthreads();
      if (t < n) {
        double sum = 0.0;
        for (std::uint32_t k = rule.all_windows ? t : n - 1; k < n; ++k) sum += solutions[k * kPitch + t];
        lags[t] = rule.all_windows ? sum / n : sum;
      }
    }
    __syncthreads();
  }
  apply_lags(rule, rope, queries, window.position + 1, lags, n, window.out + std::size_t{blockIdx.x} * dim);
}

/// The working memory of equation 2, for k unknowns.
struct Eq2 {
  Gram gram;
  double system[(kMaxWindow + 1) * kPitch];  // the damped curvature and, as row k, the gradient
  double p[kMaxWindow], omega[kMaxWindow], next[kMaxWindow], along[kMaxWindow], slope[kMaxWindow], terms[kMaxWindow];
  double least_gain;  // that the objective can tell
  bool indefinite;
};

/// x to its softmax, by the block; ends with a barrier.
__device__ __forceinline__ void softmax_into(const double* x, std::uint32_t k, double* out) {
  if (threadIdx.x == 0) {
    for (std::uint32_t i = 0; i < k; ++i) out[i] = x[i];
    softmax_in_place(out, k);
  }
  __syncthreads();
}

__device__ __forceinline__ double sum_of_terms(const double* terms, std::uint32_t k) {
  double sum = 0.0;
  for (std::uint32_t i = 0; i < k; ++i) sum += terms[i];
  return sum;
}

/// Equation 2's objective, less a constant, on every thread; leaves softmax(omega) in e.p.
__device__ __forceinline__ double eq2_objective(Eq2& e, const double* omega, std::uint32_t n, std::uint32_t k) {
  softmax_into(omega, k, e.p);
  if (threadIdx.x < k) {
    const std::uint32_t i = threadIdx.x;
    double row = 0.0;
    for (std::uint32_t j = 0; j < k; ++j) row += e.gram.at(i, j) * e.p[j];
    e.terms[i] = e.p[i] * (row - 2.0 * e.gram.at(n, i)) + e.gram.ridge * omega[i] * omega[i];
  }
  __syncthreads();
  const double sum = sum_of_terms(e.terms, k);
  __syncthreads();
  return sum;
}

/// Equation 2 over the newest k = blockIdx.x + 1 queries: Newton steps from equal weights, damped where they lead up or
/// the curvature is not positive. Grid: {W, heads, windows}; weights: [windows][heads][W][W].
__global__ void __launch_bounds__(kPredictThreads)
    eq2_weights_kernel(const __grid_constant__ PredictionRule rule, const QueryWindow* windows, std::uint32_t dim,
                       double* weights) {
  constexpr int kSteps = 200, kAttempts = 60;
  constexpr double kRounding = 1e-15;  // of the objective's terms
  TANDEM_SHARED(Eq2, shared, 1);
  Eq2& e = shared[0];
  const QueryWindow& window = windows[blockIdx.z];
  const std::uint32_t n = unknowns_of(rule, window.count), k = blockIdx.x + 1, t = threadIdx.x;
  if (k > n || (!rule.all_windows && k < n)) return;
  make_gram(rule, queries_of(rule, window, blockIdx.y, dim), n, e.gram);
  if (t < k) e.omega[t] = 0.0;
  __syncthreads();
  double value = eq2_objective(e, e.omega, n, k), damping = 0.0;  // of the ridge
  bool ended = false;
  for (int step = 0; step < kSteps && !ended; ++step) {  // every thread decides alike
    if (t < k) {
      double mean = 0.0;
      for (std::uint32_t j = 0; j < k; ++j) mean += e.gram.at(t, j) * e.p[j];
      e.along[t] = mean;  // (G p)_t
      e.terms[t] = e.p[t] * (mean - e.gram.at(n, t));
    }
    __syncthreads();
    const double along = sum_of_terms(e.terms, k);
    double quadratic = 0.0;  // p G p
    for (std::uint32_t i = 0; i < k; ++i) quadratic += e.p[i] * e.along[i];
    if (t < k) e.slope[t] = e.p[t] * (e.along[t] - e.gram.at(n, t) - along);
    if (t == 0) {
      double terms = fabs(quadratic);
      for (std::uint32_t i = 0; i < k; ++i)
        terms += 2.0 * e.p[i] * fabs(e.gram.at(n, i)) + e.gram.ridge * e.omega[i] * e.omega[i];
      e.least_gain = kRounding * terms;
    }
    __syncthreads();
    const auto gradient = [&](std::uint32_t i) { return e.slope[i] + e.gram.ridge * e.omega[i]; };
    bool better = false;
    for (int attempt = 0; attempt < kAttempts && !better; ++attempt) {
      // e.p, e.along and e.slope are those of e.omega here. J = diag(p) - p p^T is the softmax's derivative: J G J, and
      // what J itself changes, diag(slope) - slope p^T - p slope^T.
      for (std::uint32_t c = t; c < (k + 1) * k; c += kPredictThreads) {
        const std::uint32_t i = c / k, j = c % k;
        double entry = i == k ? gradient(j)
                              : e.p[i] * e.p[j] * (e.gram.at(i, j) - e.along[i] - e.along[j] + quadratic) -
                                    e.slope[i] * e.p[j] - e.p[i] * e.slope[j];
        if (i == j) entry += e.slope[i];
        e.system[i * kPitch + j] = entry;
      }
      if (t == 0) e.indefinite = false;
      __syncthreads();
      factor_in_place(e.system, k, e.gram.ridge * (1.0 + damping), &e.indefinite);
      if (!e.indefinite) {
        if (t == 0) {
          substitute_back(e.system, k, k, e.next);
          for (std::uint32_t i = 0; i < k; ++i) e.next[i] = e.omega[i] - e.next[i];
        }
        __syncthreads();
        if (t < k) e.terms[t] = gradient(t) * (e.omega[t] - e.next[t]);
        __syncthreads();
        ended =
            sum_of_terms(e.terms, k) <= e.least_gain;  // a good step still, though the objective cannot tell any more
        const double reached = eq2_objective(e, e.next, n, k);
        better = ended || reached < value;
        if (better) {
          if (t < k) e.omega[t] = e.next[t];
          value = reached;
        } else {
          softmax_into(e.omega, k, e.p);
        }
      }
      damping = !better ? (4.0 * damping > 1.0 ? 4.0 * damping : 1.0) : damping < 1e-2 ? 0.0 : damping / 16.0;
      __syncthreads();
    }
    ended = ended || !better;
  }
  // On every way out e.p is the softmax of e.omega.
  double* const out =
      weights + ((std::size_t{blockIdx.z} * gridDim.y + blockIdx.y) * rule.window + k - 1) * rule.window;
  if (t < k) out[t] = e.p[t];
}

/// Grid: {heads, windows}.
__global__ void __launch_bounds__(kPredictThreads)
    apply_eq2_weights_kernel(const __grid_constant__ PredictionRule rule, const __grid_constant__ DeviceRope rope,
                             const QueryWindow* windows, std::uint32_t dim, const double* weights) {
  TANDEM_SHARED(double, lags, kMaxWindow);
  const QueryWindow& window = windows[blockIdx.y];
  const std::uint32_t n = unknowns_of(rule, window.count), t = threadIdx.x;
  const double* const own = weights + (std::size_t{blockIdx.y} * gridDim.x + blockIdx.x) * rule.window * rule.window;
  if (t < n) {
    double sum = 0.0;
    for (std::uint32_t k = rule.all_windows ? t : n - 1; k < n; ++k) sum += own[k * rule.window + t];
    lags[t] = rule.all_windows ? sum / n : sum;
  }
  __syncthreads();
  apply_lags(rule, rope, queries_of(rule, window, blockIdx.x, dim), window.position + 1, lags, n,
             window.out + std::size_t{blockIdx.x} * dim);
}

}  // namespace tandem::gpu

namespace tandem {
using namespace gpu;

void push_queries_cuda(const PredictionRule& rule, const DeviceRope& rope, const LaunchArray<QueryPush>& pushes,
                       std::uint32_t n, std::uint32_t heads, std::uint32_t dim, CudaStream stream) {
  TANDEM_CHECK(!rule.pre_rope || (dim % 2 == 0 && rope.inverse_frequency != nullptr),
               "Queries of {} dimensions cannot be turned back.", dim);
  TANDEM_CHECK(n <= kMaxGridRows, "{} queries.", n);
  launch(stream, push_queries_kernel, dim3(heads, n), kPushThreads, 0, rule, rope, pushes, dim);
}

void predict_next_cuda(const PredictionRule& rule, const DeviceRope& rope, const QueryWindow* windows, std::uint32_t n,
                       std::uint32_t heads, std::uint32_t dim, double* weights, CudaStream stream) {
  TANDEM_CHECK(rule.window >= 1 && rule.window <= kMaxWindow, "A window of {} queries.", rule.window);
  TANDEM_CHECK(!rule.pre_rope || (dim % 2 == 0 && rope.inverse_frequency != nullptr),
               "Queries of {} dimensions cannot be turned.", dim);
  TANDEM_CHECK(n <= kMaxGridRows && heads <= kMaxGridRows, "{} windows of {} heads.", n, heads);
  if (rule.weights != LagWeights::eq2) {
    launch(stream, predict_kernel, dim3(heads, n), kPredictThreads, 0, rule, rope, windows, dim);
    return;
  }
  TANDEM_CHECK(weights != nullptr, "Equation 2 has no room for its weights.");
  launch(stream, eq2_weights_kernel, dim3(rule.window, heads, n), kPredictThreads, 0, rule, windows, dim, weights);
  launch(stream, apply_eq2_weights_kernel, dim3(heads, n), kPredictThreads, 0, rule, rope, windows, dim, weights);
}

void select_ahead_cuda(const PredictionRule& rule, const DeviceRope& rope, const AheadBatch& batch, CudaStream stream) {
  const std::uint32_t q_heads = batch.group * batch.kv.kv_heads;
  predict_next_cuda(rule, rope, batch.windows, batch.rows, q_heads, batch.kv.dim, batch.weights, stream);
  choose_tokens_cuda(batch.queries, batch.choices, batch.rows, batch.group, batch.kv, batch.lists, batch.scores,
                     stream);
  pack_tokens_cuda(batch.packs, batch.rows, batch.most, batch.kv, stream);
}

}  // namespace tandem
