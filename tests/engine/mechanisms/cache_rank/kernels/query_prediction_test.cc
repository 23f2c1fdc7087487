// The prediction against an independent solver in double precision: Gaussian elimination with pivoting on the normal
// equations, plain gradient descent for equation 2, and the pseudo-code of appendix C written out.
#include "engine/mechanisms/cache_rank/kernels/query_prediction.h"

#include <cmath>
#include <gtest/gtest.h>
#include <random>

namespace tandem {
namespace {

using Doubles = std::vector<double>;
constexpr std::uint32_t kHeadDim = 24;

/// Queries that change slowly, as those of consecutive tokens do.
std::vector<float> slow_queries(std::uint32_t count, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> q(std::size_t{count} * kHeadDim);
  for (std::size_t i = 0; i < q.size(); ++i)
    q[i] = i < kHeadDim ? normal(random) : 0.8f * q[i - kHeadDim] + 0.5f * normal(random);
  return q;
}

Doubles softmax(Doubles x) {
  double sum = 0;
  for (double& v : x) sum += v = std::exp(v);
  for (double& v : x) v /= sum;
  return x;
}

/// One problem: Q_t and the k queries before it, newest first.
struct Problem {
  std::vector<Doubles> rows;
  Doubles target;
  double ridge;

  Problem(const std::vector<float>& q, std::uint32_t count, std::uint32_t k, std::uint32_t of_ridge, double epsilon) {
    const auto row = [&](std::uint32_t i) { return Doubles(q.begin() + i * kHeadDim, q.begin() + (i + 1) * kHeadDim); };
    target = row(count - 1);
    for (std::uint32_t i = 1; i <= k; ++i) rows.push_back(row(count - 1 - i));
    double norms = 0;
    for (std::uint32_t i = 1; i <= of_ridge; ++i) {
      for (const double x : row(count - 1 - i)) norms += x * x;
    }
    ridge = epsilon * norms / of_ridge;
  }
  Doubles solve() const {
    const std::size_t n = rows.size();
    std::vector<Doubles> a(n, Doubles(n + 1));
    for (std::size_t i = 0; i < n; ++i) {
      for (std::size_t j = 0; j < n; ++j) {
        for (std::size_t d = 0; d < kHeadDim; ++d) a[i][j] += rows[i][d] * rows[j][d];
      }
      for (std::size_t d = 0; d < kHeadDim; ++d) a[i][n] += rows[i][d] * target[d];
      a[i][i] += ridge;
    }
    for (std::size_t c = 0; c < n; ++c) {
      std::size_t pivot = c;
      for (std::size_t r = c + 1; r < n; ++r) pivot = std::abs(a[r][c]) > std::abs(a[pivot][c]) ? r : pivot;
      std::swap(a[c], a[pivot]);
      for (std::size_t r = 0; r < n; ++r) {
        if (r == c) continue;
        const double factor = a[r][c] / a[c][c];
        for (std::size_t j = c; j <= n; ++j) a[r][j] -= factor * a[c][j];
      }
    }
    Doubles x(n);
    for (std::size_t i = 0; i < n; ++i) x[i] = a[i][n] / a[i][i];
    return x;
  }
  /// Of equation 2, and its gradient.
  double objective(const Doubles& omega, Doubles* gradient = nullptr) const {
    const Doubles p = softmax(omega);
    Doubles residual(kHeadDim), inner(p.size());
    double sum = 0, mean = 0;
    for (std::size_t d = 0; d < kHeadDim; ++d) {
      residual[d] = -target[d];
      for (std::size_t i = 0; i < p.size(); ++i) residual[d] += p[i] * rows[i][d];
      sum += residual[d] * residual[d];
    }
    for (std::size_t i = 0; i < p.size(); ++i) {
      for (std::size_t d = 0; d < kHeadDim; ++d) inner[i] += rows[i][d] * residual[d];
      mean += p[i] * inner[i];
      sum += ridge * omega[i] * omega[i];
    }
    if (gradient != nullptr) {
      gradient->resize(p.size());
      for (std::size_t i = 0; i < p.size(); ++i) (*gradient)[i] = 2 * p[i] * (inner[i] - mean) + 2 * ridge * omega[i];
    }
    return sum;
  }
  Doubles descend() const {
    Doubles omega(rows.size()), gradient;
    double value = objective(omega), rate = 1e-2;
    for (int step = 0; step < 30000 && rate > 1e-14; ++step) {
      objective(omega, &gradient);
      Doubles next = omega;
      for (std::size_t i = 0; i < next.size(); ++i) next[i] -= rate * gradient[i];
      const double reached = objective(next);
      if (reached < value) {
        omega = next;
        value = reached;
        rate *= 1.2;
      } else {
        rate *= 0.5;
      }
    }
    return softmax(omega);
  }
};

PredictionRule rule_of(LagWeights weights, std::uint32_t window, bool all, double epsilon) {
  PredictionRule rule;
  rule.weights = weights;
  rule.window = window;
  rule.all_windows = all;
  rule.epsilon = epsilon;
  return rule;
}

void expect_vector_near(const Doubles& expected, const Doubles& actual, double tolerance, const std::string& what) {
  ASSERT_EQ(expected.size(), actual.size()) << what;
  for (std::size_t i = 0; i < expected.size(); ++i)
    EXPECT_NEAR(expected[i], actual[i], tolerance) << what << " lag " << i;
}

TEST(QueryPrediction, TheRidgeIsThatOfAnIndependentSolver) {
  for (std::uint32_t window = 1; window <= kMaxWindow; ++window) {
    for (const double epsilon : {1e-6, 1e-3, 0.1}) {
      const std::uint32_t count = window + 1;
      const std::vector<float> q = slow_queries(count, window);
      Doubles mean(window), soft(window);
      for (std::uint32_t k = 1; k <= window; ++k) {
        const Doubles x = Problem(q, count, k, window, epsilon).solve(), p = softmax(x);
        for (std::uint32_t i = 0; i < k; ++i) {
          mean[i] += x[i] / window;
          soft[i] += p[i] / window;
        }
      }
      const Doubles last = Problem(q, count, window, window, epsilon).solve();
      const std::string what = "W = " + std::to_string(window) + ", epsilon " + std::to_string(epsilon);
      // More queries than dimensions: the smaller the ridge, the worse the condition.
      const double tolerance = epsilon < 1e-5 ? 1e-7 : 1e-10;
      const auto weights = [&](LagWeights w, bool all) {
        return lag_weights(rule_of(w, window, all, epsilon), q.data(), count, kHeadDim);
      };
      expect_vector_near(mean, weights(LagWeights::raw, true), tolerance, what);
      expect_vector_near(soft, weights(LagWeights::ridge_softmax, true), tolerance, what);
      expect_vector_near(last, weights(LagWeights::raw, false), tolerance, what);
      expect_vector_near(softmax(last), weights(LagWeights::ridge_softmax, false), tolerance, what);
    }
  }
}

TEST(QueryPrediction, Equation2IsWhereGradientDescentEnds) {
  for (const std::uint32_t window : {1u, 2u, 5u, 16u, 32u}) {
    const std::uint32_t count = window + 1;
    const std::vector<float> q = slow_queries(count, 100 + window);
    const Doubles expected = Problem(q, count, window, window, 0.02).descend();
    expect_vector_near(expected, lag_weights(rule_of(LagWeights::eq2, window, false, 0.02), q.data(), count, kHeadDim),
                       1e-6, "W = " + std::to_string(window));
  }
  Doubles mean(4);
  const std::vector<float> q = slow_queries(5, 3);
  for (std::uint32_t k = 1; k <= 4; ++k) {
    const Doubles p = Problem(q, 5, k, 4, 0.02).descend();
    for (std::uint32_t i = 0; i < k; ++i) mean[i] += p[i] / 4;
  }
  expect_vector_near(mean, lag_weights(rule_of(LagWeights::eq2, 4, true, 0.02), q.data(), 5, kHeadDim), 1e-6,
                     "all windows");
}

/// Equation 2's largest gradient where the softmax of its arguments is `p`, beside the squared norm of Q_t. The
/// arguments are p's logarithms but for a constant, which the penalty sets: their sum is 0.
double steepest(const Problem& problem, Doubles p) {
  double mean = 0, norm = 0, most = 0;
  for (double& x : p) mean += (x = std::log(x)) / static_cast<double>(p.size());
  for (double& x : p) x -= mean;
  Doubles gradient;
  problem.objective(p, &gradient);
  for (const double x : problem.target) norm += x * x;
  for (const double g : gradient) most = std::max(most, std::abs(g));
  return most / norm;
}

// At small epsilons, the default among them, and from the smaller windows' solutions as from equal weights. (There may
// be several minima: these two need not end in the same one.)
TEST(QueryPrediction, Equation2EndsWhereTheGradientIsZero) {
  for (std::uint32_t window = 2; window <= kMaxWindow; ++window) {
    for (const double epsilon : {1e-5, 1e-3, 0.1}) {
      const std::string what = "W = " + std::to_string(window) + ", epsilon " + std::to_string(epsilon);
      const std::uint32_t count = window + 1;
      const std::vector<float> q = slow_queries(count, 40 + window), newest(q.begin() + kHeadDim, q.end());
      const Problem problem(q, count, window, window, epsilon);
      const auto weights = [&](std::uint32_t w, bool all, double e, const std::vector<float>& from) {
        return lag_weights(rule_of(LagWeights::eq2, w, all, e), from.data(), w + 1, kHeadDim);
      };
      EXPECT_LT(steepest(problem, weights(window, false, epsilon, q)), 1e-9) << what;
      // The mean over all windows less that of the smaller ones, with the same ridge, is the longest's.
      const double same = epsilon * problem.ridge / Problem(newest, window, window - 1, window - 1, epsilon).ridge;
      const Doubles smaller = weights(window - 1, true, same, newest);
      Doubles longest = weights(window, true, epsilon, q);
      for (std::uint32_t i = 0; i < window; ++i)
        longest[i] = longest[i] * window - (i + 1 < window ? smaller[i] * (window - 1) : 0);
      EXPECT_LT(steepest(problem, longest), 1e-9) << what << ", all windows";
    }
  }
}

/// Appendix C written out. q: W queries, the newest last; `last`: the candidate of the longest window alone.
Doubles pseudo_code(const std::vector<float>& q, std::uint32_t window, double epsilon, bool last) {
  Doubles predicted(kHeadDim);
  if (window == 1) {
    std::copy_n(q.begin(), kHeadDim, predicted.begin());
    return predicted;
  }
  Doubles base = Problem(q, window, window - 1, window - 1, epsilon).solve();
  base = Doubles(base.rbegin(), base.rend());
  for (double& x : base) x = -x;
  base = softmax(base);
  for (std::uint32_t j = last ? window : 1; j <= window; ++j) {
    Doubles row(window - 1);
    for (std::uint32_t k = 0; k < std::min(j, window - 1); ++k) row[k] = base[k];
    row = softmax(row);
    const std::uint32_t taken = std::min(j, window - 1), first = window - 1 - taken;  // Q_cache[-1 - j : -1]
    for (std::uint32_t k = 0; k < taken; ++k) {
      for (std::uint32_t d = 0; d < kHeadDim; ++d)
        predicted[d] += row[k] * double(q[(first + k) * kHeadDim + d]) / (last ? 1 : window);
    }
  }
  return predicted;
}

TEST(QueryPrediction, Algorithm1IsThePseudoCode) {
  for (std::uint32_t window = 1; window <= kMaxWindow; ++window) {
    const std::vector<float> q = slow_queries(window, 7 + window);
    for (const double epsilon : {1e-5, 1e-3, 0.1}) {
      for (const bool last : {false, true}) {
        const Doubles expected = pseudo_code(q, window, epsilon, last);
        const PredictionRule rule = rule_of(LagWeights::alg1, window, !last, epsilon);
        std::vector<float> out(kHeadDim);
        apply_lag_weights(rule, lag_weights(rule, q.data(), window, kHeadDim), q.data(), window, kHeadDim, true,
                          out.data());
        for (std::uint32_t d = 0; d < kHeadDim; ++d)
          EXPECT_NEAR(expected[d], double(out[d]), 1e-6) << "W = " << window << ", epsilon " << epsilon << last;
      }
    }
  }
}

TEST(QueryPrediction, WeightsFoundForOneTokenAreAppliedToTheNext) {
  const std::vector<float> q = slow_queries(5, 9);
  const PredictionRule rule = rule_of(LagWeights::raw, 3, false, 1e-3);
  const Doubles weights = lag_weights(rule, q.data(), 5, kHeadDim);
  ASSERT_EQ(weights.size(), 3u);
  std::vector<float> shifted(kHeadDim), same(kHeadDim);
  apply_lag_weights(rule, weights, q.data(), 5, kHeadDim, true, shifted.data());
  apply_lag_weights(rule, weights, q.data(), 5, kHeadDim, false, same.data());
  for (std::uint32_t d = 0; d < kHeadDim; ++d) {
    double next = 0, own = 0;
    for (std::uint32_t i = 1; i <= 3; ++i) {
      next += weights[i - 1] * double(q[(5 - i) * kHeadDim + d]);
      own += weights[i - 1] * double(q[(4 - i) * kHeadDim + d]);
    }
    EXPECT_NEAR(next, double(shifted[d]), 1e-5);
    EXPECT_NEAR(own, double(same[d]), 1e-5);
  }
}

TEST(QueryPrediction, AFewQueriesAreEnoughAndEqualOnesStayWhatTheyAre) {
  PredictionRule rule;
  std::vector<float> q = slow_queries(1, 4), out(kHeadDim);
  apply_lag_weights(rule, lag_weights(rule, q.data(), 1, kHeadDim), q.data(), 1, kHeadDim, true, out.data());
  EXPECT_EQ(out, q);
  for (int i = 0; i < 9; ++i) q.insert(q.end(), q.begin(), q.begin() + kHeadDim);
  for (const LagWeights weights : {LagWeights::ridge_softmax, LagWeights::eq2}) {  // a singular Gram matrix
    rule.weights = weights;
    apply_lag_weights(rule, lag_weights(rule, q.data(), 10, kHeadDim), q.data(), 10, kHeadDim, true, out.data());
    for (std::uint32_t d = 0; d < kHeadDim; ++d) EXPECT_NEAR(out[d], q[d], 1e-6f);
  }
  const std::vector<float> zero(10 * kHeadDim);
  apply_lag_weights(rule, lag_weights(rule, zero.data(), 10, kHeadDim), zero.data(), 10, kHeadDim, true, out.data());
  for (const float x : out) EXPECT_EQ(x, 0.0f);
}

TEST(QueryPrediction, AWindowGoesRoundAndGivesRotationsBack) {
  RopeTable rope(kHeadDim, 10000);
  rope.scale = 1.2;
  constexpr std::uint32_t kHeads = 2, kLast = 1000;
  for (const bool pre : {false, true}) {
    PredictionRule rule;
    rule.window = 4;
    rule.pre_rope = pre;
    std::vector<float> window(std::size_t{kHeads} * rule.room() * kHeadDim);
    std::vector<std::vector<float>> plain(kHeads);  // what a prediction should look at, oldest first
    for (std::uint32_t position = kLast - 6; position <= kLast; ++position) {
      const std::vector<float> unrotated = slow_queries(kHeads, position);
      std::vector<float> q = unrotated;
      tandem::rope(q.data(), &position, rope, 1, kHeads);
      push_query(rule, rope, q.data(), kHeads, kHeadDim, position, window.data());
      for (std::uint32_t h = 0; h < kHeads && position + 5 > kLast; ++h) {
        const std::vector<float>& from = pre ? unrotated : q;
        plain[h].insert(plain[h].end(), from.begin() + h * kHeadDim, from.begin() + (h + 1) * kHeadDim);
      }
    }
    std::vector<float> predicted(kHeads * kHeadDim), expected(kHeads * kHeadDim);
    predict_next(rule, rope, window.data(), kHeads, kHeadDim, 5, kLast, predicted.data());
    for (std::uint32_t h = 0; h < kHeads; ++h) {
      apply_lag_weights(rule, lag_weights(rule, plain[h].data(), 5, kHeadDim), plain[h].data(), 5, kHeadDim, true,
                        expected.data() + h * kHeadDim);
    }
    const std::uint32_t next = kLast + 1;
    if (pre) tandem::rope(expected.data(), &next, rope, 1, kHeads);
    for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(predicted[i], expected[i], 2e-5f);
  }
}

}  // namespace
}  // namespace tandem
