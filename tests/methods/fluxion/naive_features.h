// The 41 features by their definitions, in double precision and by other ways than the engine's: moments from power
// sums, attention token by token, budgets set by set.
#pragma once

#include "tests/methods/fluxion/naive.h"

namespace tandem::testing {

/// Mean, variance, skewness, kurtosis through raw moments.
inline Vec moments(const Vec& x) {
  const auto raw = [&](double power) {
    double sum = 0;
    for (const double v : x) sum += std::pow(v, power);
    return sum / double(x.size());
  };
  const double a = raw(1), b = raw(2), c = raw(3), d = raw(4), variance = b - a * a;
  return {a, variance, (c - 3 * a * b + 2 * a * a * a) / std::pow(variance, 1.5),
          (d - 4 * a * c + 6 * a * a * b - 3 * a * a * a * a) / (variance * variance)};
}

inline void append(Vec& to, const Vec& more) {
  to.insert(to.end(), more.begin(), more.end());
}

/// The list of appendix A.1, in its order. `now` and `then`: the step's query and the anchor, over the same tokens,
/// each with its segments: those of the step are others once tokens were spilled.
inline Vec naive_features(std::uint32_t index, const RandomLayer& now, const RandomLayer& then, std::uint32_t h,
                          const BudgetLimits& limits, BudgetPolicy policy) {
  const Segments s = now.segments;
  Segments before = then.segments;
  before.tokens = before.prefill;
  const auto host = range(before.sinks, before.window), sinks = range(0, s.sinks);
  const double root = std::sqrt(double(now.dim));
  Vec key_norms, value_norms, z, mean_k(now.dim), mean_v(now.dim);
  for (const std::uint32_t t : host) {
    key_norms.push_back(norm(now.key(h, t)));
    value_norms.push_back(norm(now.value(h, t)));
    z.push_back(dot(then.query_of(h), now.key(h, t)) / norm(then.query_of(h)) / root);
    for (std::uint32_t i = 0; i < now.dim; ++i) {
      mean_k[i] += now.key(h, t)[i] / double(host.size());
      mean_v[i] += now.value(h, t)[i] / double(host.size());
    }
  }
  double sink_k = 0, sink_v = 0;
  for (const std::uint32_t t : sinks) {
    sink_k += norm(now.key(h, t)) / double(sinks.size());
    sink_v += norm(now.value(h, t)) / double(sinks.size());
  }
  Vec f = {double(index), double(h), double(s.host()), double(s.device()), sink_k, sink_v, norm(mean_k), norm(mean_v)};
  append(f, moments(key_norms));
  append(f, moments(value_norms));
  const double length = norm(now.query_of(h)), mu = dot(now.query_of(h), mean_k) / length / root;
  f.push_back(mu);
  append(f, moments(z));
  const auto now_sinks = now.attend(h, sinks), now_local = now.attend(h, range(s.window, s.prefill)),
             then_sinks = then.attend(h, sinks), then_host = then.attend(h, host),
             then_local = then.attend(h, range(before.window, before.prefill));
  append(f, {now_sinks.second, std::log(double(s.host())) + length * mu + length * length * moments(z)[1] / 2,
             now_local.second, then_sinks.second, then_host.second, then_local.second});
  append(f, {norm(now_sinks.first), norm(now_local.first), norm(then_sinks.first), norm(then_host.first),
             norm(then_local.first)});
  append(f, {length, norm(then.query_of(h)), dot(now.query_of(h), then.query_of(h)) / length / norm(then.query_of(h))});
  const NaiveLabels labels(then, before, limits);
  for (const std::uint32_t block : {16u, 32u, 64u, 128u}) f.push_back(labels.budget(h, policy, block));
  double most = 0, most_before = 0;
  for (std::uint32_t other = 0; other < now.q_heads; ++other) {
    most = std::max(most, norm(now.attend(other, device_tokens(s)).first));
    most_before = std::max(most_before, norm(then.attend(other, device_tokens(before)).first));
  }
  append(f, {most, most_before});
  return f;
}

}  // namespace tandem::testing
