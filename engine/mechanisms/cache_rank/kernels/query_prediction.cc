#include "engine/mechanisms/cache_rank/kernels/query_prediction.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <vector>

#include "engine/common/error.h"
#include "engine/kernels/gram.h"

namespace tandem {
namespace {

using Vector = std::vector<double>;

// Rows of matrices begin in whole groups of numbers, so that loops over a group are vectors and their order of adding
// stays that of one number.
constexpr std::size_t kGroup = 8;
constexpr std::size_t padded(std::size_t n) {
  return (n + kGroup - 1) / kGroup * kGroup;
}

/// Lower triangular factor of a symmetric positive definite matrix. Not LAPACK's, because a factor here serves all
/// windows, and what counts as positive definite is what counts on the GPU. Nor is dposv of OpenBLAS 0.3.21 faster: on
/// one Zen 4 core it solves 8, 16 and 32 unknowns in 0.38, 0.91 and 3.0 us, this in 0.33, 0.84 and 2.6.
class Cholesky {
 public:
  explicit Cholesky(std::size_t most) : stride_(padded(most)), columns_(stride_ * stride_) {}
  /// Factors the leading n x n of `a` with `shift` added to the diagonal. a: [n][stride], of each row the part from the
  /// diagonal on. False where rounding alone keeps the matrix positive definite, or nothing does; with `all` the factor
  /// is finished even so.
  bool factor(const double* a, std::size_t n, std::size_t stride, double shift, bool all) {
    bool definite = true;
    for (std::size_t j = 0; j < n; ++j) {
      double* const column = columns_.data() + j * stride_;
      const double shifted = a[j * stride + j] + shift;
      for (std::size_t first = j / kGroup * kGroup; first < n; first += kGroup) {
        double sums[kGroup];
        for (std::size_t i = 0; i < kGroup; ++i) sums[i] = a[j * stride + first + i];
        if (first <= j) sums[j - first] = shifted;
        for (std::size_t k = 0; k < j; ++k) {
          const double* const before = columns_.data() + k * stride_;
          const double of_j = before[j];
          for (std::size_t i = 0; i < kGroup; ++i) sums[i] -= before[first + i] * of_j;
        }
        for (std::size_t i = 0; i < kGroup; ++i) column[first + i] = sums[i];
      }
      const double rest = column[j];
      // A ridge bounds it from below; rounding must not make it 0.
      const double diagonal = std::max(shifted, 0.0);
      const double root = std::sqrt(std::max(rest, diagonal * 1e-15 + 1e-300));
      for (std::size_t i = j + 1; i < n; ++i) column[i] /= root;
      column[j] = root;
      definite = definite && rest > diagonal * 1e-14;
      if (!definite && !all) return false;
    }
    return definite;
  }
  /// Solves the leading n x n.
  Vector solve(const double* b, std::size_t n) const {
    Vector x(b, b + n);
    for (std::size_t i = 0; i < n; ++i) {
      for (std::size_t k = 0; k < i; ++k) x[i] -= columns_[k * stride_ + i] * x[k];
      x[i] /= columns_[i * stride_ + i];
    }
    for (std::size_t i = n; i-- > 0;) {
      const double* const column = columns_.data() + i * stride_;
      for (std::size_t k = i + 1; k < n; ++k) x[i] -= column[k] * x[k];
      x[i] /= column[i];
    }
    return x;
  }

 private:
  std::size_t stride_;
  Vector columns_;  // [column][row]
};

void softmax(const Vector& x, Vector& p) {
  const double most = *std::max_element(x.begin(), x.end());
  double sum = 0;
  for (std::size_t i = 0; i < x.size(); ++i) sum += p[i] = std::exp(x[i] - most);
  for (double& value : p) value /= sum;
}
Vector softmax(const Vector& x) {
  Vector p(x.size());
  softmax(x, p);
  return p;
}

/// Inner products of Q_{t-1} .. Q_{t-n} with each other and with Q_t.
struct Gram {
  std::size_t n = 0;
  std::size_t stride = 0;
  Vector values;  // [stride][stride], newest first, zeros beyond n
  Vector target;  // [n]
  double ridge = 0;
};

Gram gram_of(const PredictionRule& rule, const float* queries, std::uint32_t count, std::uint32_t dim,
             std::uint32_t n) {
  const std::size_t stride = padded(n);
  Gram gram{n, stride, Vector(stride * stride), Vector(n), 0};
  GramSums sums(n + 1);  // of Q_t too, which is the first
  for (std::uint32_t d = 0; d < dim; ++d) {
    double* const lags = sums.next_row();
    for (std::uint32_t i = 0; i <= n; ++i) lags[i] = double{queries[std::size_t{count - 1 - i} * dim + d]};
  }
  Vector products(std::size_t{n + 1} * (n + 1));
  sums.finish(products.data());
  double trace = 0;
  for (std::size_t i = 0; i < n; ++i) {
    const double* const row = products.data() + (i + 1) * (n + 1);
    std::copy_n(row + 1, n, gram.values.begin() + i * stride);
    gram.target[i] = row[0];
    trace += gram.values[i * stride + i];
  }
  gram.ridge = trace > 0 ? rule.epsilon * trace / n : 1;
  return gram;
}

/// out = G p, of the newest p.size() queries. out: whole groups.
void multiply(const Gram& gram, const Vector& p, double* out) {
  for (std::size_t first = 0; first < p.size(); first += kGroup) {
    double sums[kGroup] = {};
    for (std::size_t j = 0; j < p.size(); ++j) {
      const double* const row = gram.values.data() + j * gram.stride + first;
      for (std::size_t i = 0; i < kGroup; ++i) sums[i] += p[j] * row[i];
    }
    std::copy_n(sums, kGroup, out + first);
  }
}

/// What equation 2 minimises, without its constant. `p` and `mean` are room for the softmax and for G p.
double objective(const Gram& gram, const Vector& omega, Vector& p, Vector& mean) {
  const std::size_t n = omega.size();
  softmax(omega, p);
  multiply(gram, p, mean.data());
  double sum = 0;
  for (std::size_t i = 0; i < n; ++i) {
    sum += p[i] * (mean[i] - 2 * gram.target[i]) + gram.ridge * omega[i] * omega[i];
  }
  return sum;
}

/// Equation 2 over the newest k queries: Newton steps, damped where they lead up or the curvature is not positive, from
/// `omega`, which is the solution for k - 1 of them and a zero, so that few are left. (Gauss-Newton steps take ten
/// times as many: the residual at the solution is not small.)
void solve_eq2(const Gram& gram, Vector& omega) {
  constexpr int kSteps = 200, kAttempts = 60;
  constexpr double kRounding = 1e-15;  // of the objective's terms
  const std::size_t k = omega.size();
  const std::size_t stride = padded(k);
  Vector mean(stride), next_mean(stride), slope(k), gradient(k), curvature(stride * stride), p(k), next(k), next_p(k);
  Cholesky factor(k);
  double value = objective(gram, omega, p, mean), damping = 0;  // of the ridge
  for (int step = 0; step < kSteps; ++step) {
    double all = 0, along = 0, terms = 0;  // p G p, p (G p - target)
    for (std::size_t i = 0; i < k; ++i) {
      all += p[i] * mean[i];
      along += p[i] * (mean[i] - gram.target[i]);
      terms += 2 * p[i] * std::abs(gram.target[i]) + gram.ridge * omega[i] * omega[i];
    }
    terms += std::abs(all);
    // The softmax's derivative is J = diag(p) - p p^T: (J G J)_ij = p_i p_j (G_ij - mean_i - mean_j + all), and what J
    // itself changes is diag(slope) - slope p^T - p slope^T.
    for (std::size_t i = 0; i < k; ++i) {
      slope[i] = p[i] * (mean[i] - gram.target[i] - along);
      gradient[i] = slope[i] + gram.ridge * omega[i];
    }
    for (std::size_t j = 0; j < k; ++j) {
      double* const row = curvature.data() + j * stride;
      const double* const products = gram.values.data() + j * gram.stride;
      for (std::size_t i = j; i < k; ++i)
        row[i] = p[i] * p[j] * (products[i] - mean[i] - mean[j] + all) - slope[i] * p[j] - p[i] * slope[j];
      row[j] += slope[j];
    }
    bool better = false;
    for (int attempt = 0; attempt < kAttempts && !better; ++attempt) {
      if (factor.factor(curvature.data(), k, stride, gram.ridge * (1 + damping), false)) {
        const Vector move = factor.solve(gradient.data(), k);
        for (std::size_t i = 0; i < k; ++i) next[i] = omega[i] - move[i];
        const double gain = std::inner_product(move.begin(), move.end(), gradient.begin(), 0.0);
        if (gain <= kRounding * terms) {  // a good step still, though the objective cannot tell any more
          std::swap(omega, next);
          return;
        }
        const double reached = objective(gram, next, next_p, next_mean);
        better = reached < value;
        if (better) value = reached;
      }
      damping = !better ? std::max(4 * damping, 1.0) : damping < 1e-2 ? 0 : damping / 16;
    }
    if (!better) return;
    std::swap(omega, next);
    std::swap(p, next_p);
    std::swap(mean, next_mean);
  }
}

/// Appendix C: the solution for the longest window, its sign turned; each window takes as many of it as it has
/// queries, beside zeros for the others, through a second softmax.
Vector solve_alg1(const Gram& gram, std::size_t windows, bool all_windows) {
  const std::size_t n = gram.n;
  Cholesky factor(n);
  factor.factor(gram.values.data(), n, gram.stride, gram.ridge, true);
  Vector solution = factor.solve(gram.target.data(), n);
  std::reverse(solution.begin(), solution.end());  // the pseudo-code counts from the oldest query
  for (double& value : solution) value = -value;
  const Vector base = softmax(solution);
  Vector lags(n);
  for (std::size_t j = all_windows ? 1 : windows; j <= windows; ++j) {
    const std::size_t taken = std::min(j, n);
    Vector masked(n);
    std::copy_n(base.begin(), taken, masked.begin());
    const Vector weights = softmax(masked);
    // Of window j's queries Q_{t-taken} .. Q_{t-1}, the k-th has lag taken - k.
    for (std::size_t k = 0; k < taken; ++k) lags[taken - 1 - k] += weights[k];
  }
  const auto used = static_cast<double>(all_windows ? windows : 1);
  for (double& lag : lags) lag /= used;
  return lags;
}

}  // namespace

std::vector<double> lag_weights(const PredictionRule& rule, const float* queries, std::uint32_t count,
                                std::uint32_t dim) {
  TANDEM_CHECK(count >= 1 && rule.window >= 1 && rule.window <= kMaxWindow, "a window of {} queries, {} of them there",
               rule.window, count);
  // The pseudo-code's window of W has Q_t in it, so that W - 1 are left to regress on.
  const bool alg1 = rule.weights == LagWeights::alg1;
  const std::uint32_t n = std::min(alg1 ? rule.window - 1 : rule.window, count - 1);
  if (n == 0) return {};
  const Gram gram = gram_of(rule, queries, count, dim, n);
  if (alg1) return solve_alg1(gram, std::size_t{n} + 1, rule.all_windows);
  const bool eq2 = rule.weights == LagWeights::eq2;
  Vector lags(n), omega;
  Cholesky factor(n);  // of its leading parts the factors of the smaller windows
  if (!eq2) factor.factor(gram.values.data(), n, gram.stride, gram.ridge, true);
  for (std::size_t k = 1; k <= n; ++k) {
    if (eq2) omega.push_back(0);
    if (!rule.all_windows && k < n) continue;
    if (eq2) solve_eq2(gram, omega);
    Vector weights = eq2 ? omega : factor.solve(gram.target.data(), k);
    if (rule.weights != LagWeights::raw) weights = softmax(weights);
    for (std::size_t i = 0; i < k; ++i) lags[i] += weights[i];
  }
  if (rule.all_windows) {
    for (double& lag : lags) lag /= n;
  }
  return lags;
}

void apply_lag_weights(const PredictionRule& rule, const std::vector<double>& weights, const float* queries,
                       std::uint32_t count, std::uint32_t dim, bool shift, float* out) {
  if (weights.empty()) {
    std::copy_n(queries + std::size_t{count - 1} * dim, dim, out);
    return;
  }
  const std::size_t first = shift && rule.weights != LagWeights::alg1 ? 0 : 1;
  Vector sum(dim);
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const float* query = queries + (count - 1 - first - i) * dim;
    for (std::uint32_t d = 0; d < dim; ++d) sum[d] += weights[i] * double{query[d]};
  }
  for (std::uint32_t d = 0; d < dim; ++d) out[d] = static_cast<float>(sum[d]);
}

std::uint64_t prediction_flops(const PredictionRule& rule, std::uint32_t count, std::uint32_t dim) {
  constexpr std::uint64_t kNewtonSteps = 6, kExp = 20;  // FLOPs of an exponential, about
  const bool alg1 = rule.weights == LagWeights::alg1;
  const std::uint64_t n = std::min<std::uint64_t>(alg1 ? rule.window - 1 : rule.window, count - 1);
  if (n == 0) return 0;
  const auto squares = [](std::uint64_t k) { return k * (k + 1) * (2 * k + 1) / 6; };
  const auto cubes = [](std::uint64_t k) { return k * k * (k + 1) * (k + 1) / 4; };
  const auto over = [&](auto sum, std::uint64_t first) { return sum(n) - sum(first - 1); };
  const std::uint64_t first = rule.all_windows ? 1 : n, windows = n - first + 1;
  const std::uint64_t products = (n * (n + 1) + 2 * n) * dim, applied = 2 * n * dim, softmaxes = kExp * windows * n;
  if (rule.weights == LagWeights::eq2) {
    // A step: G p, the curvature, a factorisation with its two substitutions, and G p again for what was reached.
    return products + applied + softmaxes +
           kNewtonSteps * (over(cubes, first) / 3 + 12 * over(squares, first) + kExp * windows * n);
  }
  const std::uint64_t substitutions = alg1 ? 2 * n * n : 2 * over(squares, first);
  return products + applied + n * n * n / 3 + substitutions + (rule.weights == LagWeights::raw ? 0 : softmaxes);
}

void push_query(const PredictionRule& rule, const RopeTable& rope, const float* q, std::uint32_t heads,
                std::uint32_t dim, std::uint32_t position, float* window) {
  const std::uint32_t room = rule.room(), pairs = dim / 2;
  Vector cosines(pairs), sines(pairs);
  for (std::uint32_t i = 0; i < pairs && rule.pre_rope; ++i) {
    const double angle = rope.inverse_frequency[i] * position;
    cosines[i] = std::cos(angle) / rope.scale;
    sines[i] = std::sin(angle) / rope.scale;
  }
  for (std::uint32_t h = 0; h < heads; ++h) {
    const float* from = q + std::size_t{h} * dim;
    float* to = window + (std::size_t{h} * room + position % room) * dim;
    if (!rule.pre_rope) {
      std::copy_n(from, dim, to);
      continue;
    }
    for (std::uint32_t i = 0; i < pairs; ++i) {
      const double a = from[i], b = from[i + pairs];
      to[i] = static_cast<float>(a * cosines[i] + b * sines[i]);
      to[i + pairs] = static_cast<float>(b * cosines[i] - a * sines[i]);
    }
  }
}

void predict_next(const PredictionRule& rule, const RopeTable& rope, const float* window, std::uint32_t heads,
                  std::uint32_t dim, std::uint32_t count, std::uint32_t position, float* out) {
  const std::uint32_t room = rule.room();
  TANDEM_CHECK(count >= 1 && count <= room && count <= position + 1, "{} queries in a window of {}", count, room);
  std::vector<float> queries(std::size_t{count} * dim);
  for (std::uint32_t h = 0; h < heads; ++h) {
    for (std::uint32_t i = 0; i < count; ++i) {
      const std::uint32_t at = (position + 1 - count + i) % room;
      std::copy_n(window + (std::size_t{h} * room + at) * dim, dim, queries.data() + std::size_t{i} * dim);
    }
    const Vector weights = lag_weights(rule, queries.data(), count, dim);
    apply_lag_weights(rule, weights, queries.data(), count, dim, true, out + std::size_t{h} * dim);
  }
  const std::uint32_t next = position + 1;
  if (!rule.pre_rope) return;
  for (std::uint32_t h = 0; h < heads; ++h) tandem::rope(out + std::size_t{h} * dim, &next, rope, 1, 1);
}

void select_ahead(const PredictionRule& rule, const RopeTable& rope, const AheadWindow& window,
                  std::span<const KvSpan> spans, AttentionShape shape, std::uint32_t keep, void* k, void* v) {
  std::vector<float> query(std::size_t{shape.group} * shape.dim);
  predict_next(rule, rope, window.queries, shape.group, shape.dim, window.count, window.position, query.data());
  std::uint32_t tokens = 0;
  for (const KvSpan& one : spans) tokens += one.tokens;
  keep = std::min(keep, tokens);
  std::vector<std::uint32_t> chosen(keep);
  choose_tokens(query.data(), spans, shape, keep, chosen.data());
  const std::size_t bytes = shape.dim * size_of(shape.kv);
  std::uint32_t before = 0;  // tokens of the spans already passed
  std::size_t span = 0;
  for (std::uint32_t i = 0; i < keep; ++i) {
    while (chosen[i] >= before + spans[span].tokens) before += spans[span++].tokens;
    const std::size_t at = (chosen[i] - before) * bytes;
    std::memcpy(static_cast<char*>(k) + i * bytes, static_cast<const char*>(spans[span].k) + at, bytes);
    std::memcpy(static_cast<char*>(v) + i * bytes, static_cast<const char*>(spans[span].v) + at, bytes);
  }
}

}  // namespace tandem
