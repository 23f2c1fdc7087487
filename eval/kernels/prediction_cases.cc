// Cases of a selection that is made a step ahead: windows of queries, the prediction from them, the choice of tokens
// and their packing.
#include <algorithm>
#include <cmath>
#include <fmt/format.h>

#include "engine/mechanisms/cache_rank/kernels/query_prediction.h"
#include "eval/kernels/case.h"

namespace tandem::eval {
namespace {

using Vector = std::vector<double>;

std::string name_of(const PredictionRule& rule) {
  constexpr const char* kNames[] = {"ridge-softmax", "eq2", "alg1", "raw"};
  return fmt::format("W {}, {}{}{}", rule.window, kNames[static_cast<int>(rule.weights)],
                     rule.all_windows ? "" : ", one window", rule.pre_rope ? ", before RoPE" : "");
}

PredictionRule rule_of(LagWeights weights, std::uint32_t window, bool all_windows = true, bool pre_rope = false) {
  return {.weights = weights, .all_windows = all_windows, .window = window, .pre_rope = pre_rope};
}

/// Of an odd number of dimensions it is one that nobody uses.
RopeTable rope_of(std::uint32_t dim) {
  RopeTable rope(dim + dim % 2, 1e4);
  rope.scale = 1.1;
  return rope;
}

/// The rotation by `turns` times the token's angles, 1 or -1, and `scale`.
Vector rotated(const float* x, const RopeTable& rope, double position, double turns, double scale) {
  const std::size_t pairs = rope.inverse_frequency.size();
  Vector out(2 * pairs);
  for (std::size_t i = 0; i < pairs; ++i) {
    const double angle = turns * rope.inverse_frequency[i] * position, a = double{x[i]}, b = double{x[i + pairs]};
    out[i] = scale * (a * std::cos(angle) - b * std::sin(angle));
    out[i + pairs] = scale * (b * std::cos(angle) + a * std::sin(angle));
  }
  return out;
}

// ---- the prediction's oracle: Gaussian elimination, gradient descent, and appendix C written out

Vector softmax(Vector x) {
  double sum = 0;
  for (double& v : x) sum += v = std::exp(v);
  for (double& v : x) v /= sum;
  return x;
}

struct LagProblem {
  std::vector<Vector> gram;  // of Q_{t-1} .. Q_{t-n}
  Vector target;             // with Q_t
  double ridge = 0;

  Vector ridge_solution(std::size_t k) const {
    std::vector<Vector> a(k, Vector(k + 1));
    for (std::size_t i = 0; i < k; ++i) {
      std::copy_n(gram[i].begin(), k, a[i].begin());
      a[i][i] += ridge;
      a[i][k] = target[i];
    }
    for (std::size_t c = 0; c < k; ++c) {
      for (std::size_t r = c + 1; r < k; ++r)
        if (std::fabs(a[r][c]) > std::fabs(a[c][c])) std::swap(a[r], a[c]);
      for (std::size_t r = 0; r < k; ++r) {
        const double factor = a[r][c] / a[c][c];
        for (std::size_t j = c; j <= k && r != c; ++j) a[r][j] -= factor * a[c][j];
      }
    }
    Vector x(k);
    for (std::size_t i = 0; i < k; ++i) x[i] = a[i][k] / a[i][i];
    return x;
  }
  double objective(const Vector& omega, Vector& gradient) const {
    const Vector p = softmax(omega);
    Vector inner(p.size());
    double sum = 0, mean = 0;
    for (std::size_t i = 0; i < p.size(); ++i) {
      for (std::size_t j = 0; j < p.size(); ++j) inner[i] += gram[i][j] * p[j];
      sum += p[i] * (inner[i] - 2 * target[i]) + ridge * omega[i] * omega[i];
      inner[i] -= target[i];
      mean += p[i] * inner[i];
    }
    gradient.resize(p.size());
    for (std::size_t i = 0; i < p.size(); ++i) gradient[i] = 2 * p[i] * (inner[i] - mean) + 2 * ridge * omega[i];
    return sum;
  }
  Vector descend(std::size_t k) const {
    Vector omega(k), gradient, ignored;
    double value = objective(omega, gradient), rate = 1e-2;
    for (int step = 0; step < 20000 && rate > 1e-14; ++step) {
      Vector next = omega;
      for (std::size_t i = 0; i < k; ++i) next[i] -= rate * gradient[i];
      const double reached = objective(next, ignored);
      rate *= reached < value ? 1.2 : 0.5;
      if (reached >= value) continue;
      omega = next;
      gradient = ignored;
      value = reached;
    }
    return softmax(omega);
  }
};

/// What stands for the next query; `queries`: oldest first, without their rotation where the rule says so.
Vector predicted(const PredictionRule& rule, const std::vector<const float*>& queries, std::uint32_t dim) {
  const bool alg1 = rule.weights == LagWeights::alg1;
  const std::size_t count = queries.size(), n = std::min<std::size_t>(rule.window - (alg1 ? 1 : 0), count - 1);
  const auto lag = [&](std::size_t i) { return queries[count - 1 - i]; };
  Vector out(lag(0), lag(0) + dim);
  if (n == 0) return out;
  LagProblem problem{std::vector<Vector>(n, Vector(n)), Vector(n), 0};
  for (std::size_t i = 0; i < n; ++i) {
    const auto dot = [&](const float* other) {
      double sum = 0;
      for (std::uint32_t d = 0; d < dim; ++d) sum += double{lag(i + 1)[d]} * double{other[d]};
      return sum;
    };
    for (std::size_t j = 0; j < n; ++j) problem.gram[i][j] = dot(lag(j + 1));
    problem.target[i] = dot(lag(0));
    problem.ridge += rule.epsilon * problem.gram[i][i] / static_cast<double>(n);
  }
  Vector lags(n);
  if (alg1) {
    Vector solution = problem.ridge_solution(n);
    std::reverse(solution.begin(), solution.end());
    for (double& x : solution) x = -x;
    const Vector base = softmax(solution);
    for (std::size_t j = rule.all_windows ? 1 : n + 1; j <= n + 1; ++j) {
      const std::size_t taken = std::min(j, n);
      Vector masked(n);
      std::copy_n(base.begin(), taken, masked.begin());
      const Vector weights = softmax(masked);
      for (std::size_t i = 0; i < taken; ++i)
        lags[taken - 1 - i] += weights[i] / static_cast<double>(rule.all_windows ? n + 1 : 1);
    }
  } else {
    for (std::size_t k = rule.all_windows ? 1 : n; k <= n; ++k) {
      Vector x = rule.weights == LagWeights::eq2 ? problem.descend(k) : problem.ridge_solution(k);
      if (rule.weights == LagWeights::ridge_softmax) x = softmax(x);
      for (std::size_t i = 0; i < k; ++i) lags[i] += x[i] / static_cast<double>(rule.all_windows ? n : 1);
    }
  }
  std::fill(out.begin(), out.end(), 0.0);
  for (std::size_t i = 0; i < n; ++i)
    for (std::uint32_t d = 0; d < dim; ++d) out[d] += lags[i] * double{lag(i + (alg1 ? 1 : 0))[d]};
  return out;
}

KernelCase predict_case(const PredictionRule& rule, std::uint32_t windows, std::uint32_t heads, std::uint32_t dim,
                        std::uint32_t known) {
  KernelCase one{"predict_next", fmt::format("{} windows of {} heads, D {}, {} queries, {}", windows, heads, dim, known,
                                             name_of(rule))};
  const std::uint32_t room = rule.room();
  one.bytes = 4.0 * windows * heads * dim * (known + 1.0);
  one.flops = 1.0 * windows * heads * known * known * dim;
  one.tolerance = rule.weights == LagWeights::eq2 ? 2e-5 : 5e-6;
  one.threaded = true;
  one.set_up = [=](CaseMemory& memory, PreparedCase& prepared) {
    const RopeTable rope = rope_of(dim);
    const std::size_t per_window = std::size_t{heads} * room * dim, all_heads = std::size_t{windows} * heads;
    // Queries that change slowly, as those of consecutive tokens do; window w's newest is at position 40 + w.
    auto queries = case_normals(windows * per_window, 1);
    const auto at = [=](std::size_t head, std::size_t before) {  // the newest is 0 before; heads of all windows
      return (head * room + (40 + head / heads + room - before) % room) * dim;
    };
    for (std::size_t head = 0; head < all_heads; ++head)
      for (std::size_t before = known - 1; before-- > 0;)
        for (std::size_t d = 0; d < dim; ++d)
          queries[at(head, before) + d] =
              0.5f * queries[at(head, before) + d] + 0.8f * queries[at(head, before + 1) + d];
    const float* const window = memory.input(queries).target;
    float* const out = memory.result<float>(all_heads * dim);
    const auto list = memory.input(generated(windows, [=](std::size_t w) {
      return QueryWindow{window + w * per_window, known, 40 + static_cast<std::uint32_t>(w), out + w * heads * dim};
    }));
    const DeviceRope table{memory.input(rope.inverse_frequency).target, rope.scale};
    double* const weights = memory.output<double>(prediction_scratch(rule, windows, heads));
    prepared.run = [=, &memory] {
      if (memory.cuda())
        return predict_next_cuda(rule, table, list.target, windows, heads, dim, weights, memory.stream());
      memory.each(windows, [&](std::size_t w) {
        predict_next(rule, rope, list[w].queries, heads, dim, known, list[w].position, list[w].out);
      });
    };
    prepared.expected = [=] {
      Vector expected;
      for (std::size_t head = 0; head < all_heads; ++head) {
        std::vector<const float*> oldest_first;
        for (std::size_t before = known; before-- > 0;) oldest_first.push_back(&queries[at(head, before)]);
        Vector next = predicted(rule, oldest_first, dim);
        if (rule.pre_rope) {
          const std::vector<float> narrow(next.begin(), next.end());
          const std::size_t row = head / heads;
          next = rotated(narrow.data(), rope, 41.0 + static_cast<double>(row), 1, rope.scale);
        }
        append(expected, next);
      }
      return expected;
    };
  };
  return one;
}

KernelCase push_case(bool pre_rope, std::uint32_t windows, std::uint32_t heads, std::uint32_t dim) {
  const PredictionRule rule = rule_of(LagWeights::ridge_softmax, 4, true, pre_rope);
  KernelCase one{"push_queries",
                 fmt::format("{} windows of {} heads, D {}{}", windows, heads, dim, pre_rope ? ", before RoPE" : "")};
  one.bytes = 8.0 * windows * heads * dim;
  one.tolerance = 2e-6;
  one.threaded = true;
  one.set_up = [=](CaseMemory& memory, PreparedCase& prepared) {
    const RopeTable rope = rope_of(dim);
    const std::size_t width = std::size_t{heads} * dim, per_window = rule.room() * width;
    const auto queries = memory.normals(windows * width, 1);
    const std::vector<float> zeros(windows * per_window);
    float* const window = memory.result_at(memory.input(zeros).target, zeros.size());
    const auto list = memory.input(generated(windows, [=](std::size_t w) {
      return QueryPush{queries.target + w * width, window + w * per_window, 77777 * static_cast<std::uint32_t>(w) + 3};
    }));
    const DeviceRope table{memory.input(rope.inverse_frequency).target, rope.scale};
    prepared.run = [=, &memory] {
      if (memory.cuda()) return push_queries_cuda(rule, table, list.target, windows, heads, dim, memory.stream());
      memory.each(windows, [&](std::size_t w) {
        push_query(rule, rope, list[w].q, heads, dim, list[w].position, list[w].window);
      });
    };
    prepared.expected = [=] {
      Vector expected(windows * per_window);
      for (std::size_t i = 0; i < std::size_t{windows} * heads; ++i) {
        const float* const from = &queries[i * dim];
        const std::uint32_t position = list[i / heads].position;
        const Vector kept = pre_rope ? rotated(from, rope, position, -1, 1 / rope.scale) : Vector(from, from + dim);
        std::ranges::copy(kept, &expected[(i * rule.room() + position % rule.room()) * dim]);
      }
      return expected;
    };
  };
  return one;
}

}  // namespace

void append_prediction_cases(CaseSize size, const TakeCase& take) {
  if (size == CaseSize::bench) {
    take(push_case(true, 36, 32, 128));
    take(predict_case(rule_of(LagWeights::ridge_softmax, 16), 36, 32, 128, 17));
    take(predict_case(rule_of(LagWeights::eq2, 16), 36, 32, 128, 17));
    return;
  }
  for (const bool pre_rope : {false, true}) take(push_case(pre_rope, 3, 2, 20));
  take(push_case(false, 1, 3, 5));
  for (const LagWeights weights : {LagWeights::ridge_softmax, LagWeights::raw, LagWeights::alg1}) {
    take(predict_case(rule_of(weights, 1), 2, 2, 24, 2));
    take(predict_case(rule_of(weights, 16), 2, 2, 24, 17));
    take(predict_case(rule_of(weights, 32), 1, 1, 128, 33));
    take(predict_case(rule_of(weights, 16, false), 1, 2, 24, 17));
    take(predict_case(rule_of(weights, 8, true, true), 2, 1, 24, 5));
    take(predict_case(rule_of(weights, 8), 1, 1, 7, 1));
  }
  take(predict_case(rule_of(LagWeights::eq2, 5), 2, 2, 16, 6));
  take(predict_case(rule_of(LagWeights::eq2, 4, false, true), 1, 2, 16, 4));
  take(predict_case(rule_of(LagWeights::eq2, 4), 1, 1, 8, 1));
  take(predict_case(rule_of(LagWeights::eq2, 16), 1, 2, 24, 17));
  take(predict_case(rule_of(LagWeights::eq2, 32), 1, 1, 64, 33));  // the largest window
}

}  // namespace tandem::eval
