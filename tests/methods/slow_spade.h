// AsyncSpade's rule in double precision, for the tests of the method and of its sessions.
#pragma once

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <vector>

#include "engine/mechanisms/cache_rank/kernels/query_prediction.h"
#include "methods/registry.h"
#include "tests/engine/runtime/slow_model.h"
#include "tests/engine/runtime/tiny.h"

namespace tandem::testing {

/// Prompts of a ragged batch.
inline const std::vector<std::vector<std::int32_t>> kRagged = {random_prompt(301, 1), random_prompt(30, 2),
                                                               random_prompt(170, 3), random_prompt(2, 4)};

inline std::unique_ptr<Device> with_peer(std::vector<ScheduleOp>* schedule = nullptr) {
  SimOptions options;
  options.schedule = schedule;
  return make_sim_device(load_profile("asyncspade-a100"), options);
}

/// The rule in double precision, but for the regression's weights, which query_prediction_test.cc checks.
class SlowSpade {
 public:
  using Vector = SlowModel::Vector;
  using Keys = std::vector<std::vector<Vector>>;
  SlowSpade(const Model& model, const PredictionRule& rule, std::uint32_t budget, std::uint32_t theta)
      : c_(model.config),
        rule_(rule),
        budget_(budget),
        theta_(theta),
        slow_(model),
        seen_(heads()),
        next_(heads()),
        queries_(std::size_t{c_.layers} * c_.q_heads) {}

  Vector step(std::int32_t token, bool decodes) {
    if (decodes) ++generated_;
    ++tokens_;
    const SlowModel::Look look = [&](std::uint32_t layer, const Vector&, const Vector& q, const Keys& keys,
                                     const Keys&) { after_query(layer, q, keys); };
    const SlowModel::Visible visible = [&](std::uint32_t layer, std::uint32_t h, const Vector&,
                                           const std::vector<Vector>&) {
      return seen_[layer * c_.kv_heads + h / size()];
    };
    return decodes ? slow_.step(token, visible, look) : slow_.step(token, {}, look);
  }
  double closest = INFINITY;  // of a chosen token's score to the best that was not chosen

 private:
  std::size_t heads() const { return std::size_t{c_.layers} * c_.kv_heads; }
  std::uint32_t size() const { return c_.q_heads / c_.kv_heads; }

  /// Of one head: the last queries, oldest first, unrotated where the rule says so.
  std::vector<float> window(std::uint32_t layer, std::uint32_t h) const {
    const std::vector<Vector>& all = queries_[layer * c_.q_heads + h];
    const std::size_t count = std::min<std::size_t>(all.size(), rule_.room());
    std::vector<float> out;
    for (std::size_t i = all.size() - count; i < all.size(); ++i) {
      const Vector q = rule_.pre_rope ? rotated(all[i], -double(i)) : all[i];
      for (const double x : q) out.push_back(float(x));
    }
    return out;
  }
  Vector rotated(Vector q, double position) const {
    const std::uint32_t half = c_.head_dim / 2;
    for (std::uint32_t i = 0; i < half; ++i) {
      const double angle = position * std::pow(c_.rope.theta, -2.0 * i / c_.head_dim);
      const double a = q[i], b = q[half + i];
      q[i] = a * std::cos(angle) - b * std::sin(angle);
      q[half + i] = b * std::cos(angle) + a * std::sin(angle);
    }
    return q;
  }
  void after_query(std::uint32_t layer, const Vector& q, const Keys& keys) {
    const std::size_t tokens = keys[0].size();
    for (std::uint32_t g = 0; g < c_.kv_heads; ++g) {  // what the step before chose, and the newest page
      std::vector<bool>& seen = seen_[layer * c_.kv_heads + g];
      const bool dense = generated_ <= theta_;
      seen.assign(tokens, dense);
      for (std::size_t t = (tokens - 1) / 16 * 16; t < tokens; ++t) seen[t] = true;
      for (const std::size_t t : next_[layer * c_.kv_heads + g]) seen[t] = true;
    }
    for (std::uint32_t h = 0; h < c_.q_heads; ++h)
      queries_[layer * c_.q_heads + h].emplace_back(q.begin() + h * c_.head_dim, q.begin() + (h + 1) * c_.head_dim);
    for (std::uint32_t g = 0; g < c_.kv_heads; ++g) choose(layer, g, keys[g], tokens);
  }
  /// For the step with one token more.
  void choose(std::uint32_t layer, std::uint32_t g, const std::vector<Vector>& keys, std::size_t tokens) {
    std::vector<std::size_t>& next = next_[layer * c_.kv_heads + g];
    next.clear();
    const std::size_t end = tokens / 16 * 16, newest = tokens + 1 - end;
    const std::size_t keep = std::min(end, budget_ - std::min<std::size_t>(budget_, newest));
    std::vector<double> score(end, -INFINITY);
    for (std::uint32_t h = g * size(); h < (g + 1) * size(); ++h) {
      const std::vector<float> past = window(layer, h);
      const auto count = std::uint32_t(past.size() / c_.head_dim);
      const Vector weights = lag_weights(rule_, past.data(), count, c_.head_dim);
      Vector predicted(c_.head_dim);
      for (std::size_t i = 0; i < weights.size(); ++i) {
        for (std::uint32_t d = 0; d < c_.head_dim; ++d)
          predicted[d] +=
              weights[i] * double(past[(count - 1 - i - (rule_.weights == LagWeights::alg1)) * c_.head_dim + d]);
      }
      if (weights.empty()) predicted.assign(past.end() - c_.head_dim, past.end());
      if (rule_.pre_rope) predicted = rotated(predicted, double(tokens));
      for (std::size_t t = 0; t < end; ++t) {
        double dot = 0;
        for (std::uint32_t d = 0; d < c_.head_dim; ++d) dot += predicted[d] * keys[t][d];
        score[t] = std::max(score[t], dot);
      }
    }
    std::vector<std::size_t> order(end);
    std::iota(order.begin(), order.end(), 0u);
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return score[a] > score[b]; });
    if (keep > 0 && keep < end && generated_ > 0)
      closest = std::min(closest, score[order[keep - 1]] - score[order[keep]]);
    next.assign(order.begin(), order.begin() + std::ptrdiff_t(keep));
  }

  const ModelConfig& c_;
  PredictionRule rule_;
  std::size_t budget_, theta_, tokens_ = 0, generated_ = 0;
  SlowModel slow_;
  std::vector<std::vector<bool>> seen_;         // [layer][kv head]
  std::vector<std::vector<std::size_t>> next_;  // the same
  std::vector<std::vector<Vector>> queries_;    // [layer][query head][token]
};

}  // namespace tandem::testing
