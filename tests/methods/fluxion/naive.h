// Fluxion's definitions written down plainly in double precision, for tests: every set of tokens is attended from
// scratch, nothing is carried from one to the next.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <utility>
#include <vector>

#include "methods/fluxion/labels.h"

namespace tandem::testing {

using Vec = std::vector<double>;

/// An upper bound of q k over keys [begin, end): the best product of each dimension.
inline double upper_bound(const Vec& q, const std::vector<Vec>& keys, std::uint32_t begin, std::uint32_t end) {
  double bound = 0;
  for (std::size_t d = 0; d < q.size(); ++d) {
    double best = -INFINITY;
    for (std::uint32_t t = begin; t < end; ++t) best = std::max(best, q[d] * keys[t][d]);
    bound += best;
  }
  return bound;
}

inline double dot(const Vec& a, const Vec& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}
inline double norm(const Vec& a) {
  return std::sqrt(dot(a, a));
}
inline Vec minus(const Vec& a, const Vec& b) {
  Vec out;
  for (std::size_t i = 0; i < a.size(); ++i) out.push_back(a[i] - b[i]);
  return out;
}

/// Random attention of one layer, with heads between flat and sharp, and sinks that draw weight but carry small values.
struct RandomLayer {
  std::uint32_t q_heads, kv_heads, dim;
  Segments segments;
  std::vector<float> q;                          // [Hq][D]
  std::vector<std::vector<float>> keys, values;  // [Hkv][tokens][D]
  std::vector<const float*> key_rows, value_rows;

  RandomLayer(std::uint32_t seed, std::uint32_t kv, std::uint32_t group, std::uint32_t d, Segments s)
      : q_heads(kv * group), kv_heads(kv), dim(d), segments(s), keys(kv), values(kv) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    q.resize(std::size_t{q_heads} * dim);
    for (std::uint32_t h = 0; h < q_heads; ++h) {
      const float sharp = 0.3f + 1.2f * static_cast<float>(random() % 4);
      for (std::uint32_t i = 0; i < dim; ++i) q[std::size_t{h} * dim + i] = sharp * normal(random);
    }
    for (std::uint32_t g = 0; g < kv_heads; ++g) {
      for (std::uint32_t t = 0; t < s.tokens; ++t) {
        const float drift = std::sin(0.05f * static_cast<float>(t)), size = t < s.sinks ? 0.2f : 1.0f;
        for (std::uint32_t i = 0; i < dim; ++i) {
          keys[g].push_back(0.7f * normal(random) + (i % 3 == 0 ? drift : 0));
          values[g].push_back(size * normal(random) + 0.5f * drift);
        }
      }
      key_rows.push_back(keys[g].data());
      value_rows.push_back(values[g].data());
    }
  }
  RandomLayer(const RandomLayer&) = delete;
  RandomLayer& operator=(const RandomLayer&) = delete;

  LayerQuery query() const { return {q_heads, kv_heads, dim, q.data(), key_rows, value_rows, segments}; }
  /// The same with its last prefill token as the query's own: what the anchor query sees.
  LayerQuery anchor() const {
    LayerQuery layer = query();
    layer.segments.tokens = segments.prefill;
    return layer;
  }
  std::vector<HostDigests> digests() const {
    std::vector<HostDigests> out;
    for (const auto& k : keys) out.emplace_back(k.data() + std::size_t{segments.sinks} * dim, segments.host(), dim);
    return out;
  }

  Vec query_of(std::uint32_t h) const { return row(q, h); }
  Vec key(std::uint32_t h, std::uint32_t t) const { return row(keys[h / (q_heads / kv_heads)], t); }
  Vec value(std::uint32_t h, std::uint32_t t) const { return row(values[h / (q_heads / kv_heads)], t); }
  Vec row(const std::vector<float>& from, std::uint32_t n) const {
    return {from.begin() + std::ptrdiff_t(n) * dim, from.begin() + std::ptrdiff_t(n + 1) * dim};
  }
  double score(std::uint32_t h, std::uint32_t t) const { return dot(query_of(h), key(h, t)) / std::sqrt(double(dim)); }

  /// Softmax attention of head h over these tokens: output and lse.
  std::pair<Vec, double> attend(std::uint32_t h, const std::vector<std::uint32_t>& tokens) const {
    double most = -1e300, sum = 0;
    for (const std::uint32_t t : tokens) most = std::max(most, score(h, t));
    Vec o(dim);
    for (const std::uint32_t t : tokens) {
      const double w = std::exp(score(h, t) - most);
      sum += w;
      const Vec v = value(h, t);
      for (std::uint32_t i = 0; i < dim; ++i) o[i] += w * v[i];
    }
    for (double& x : o) x /= sum;
    return {o, most + std::log(sum)};
  }
};

/// A layer of some model, as far as a query with these segments sees it: queries [Hq * D], keys and values by KV head
/// and token.
struct GivenLayer : RandomLayer {
  GivenLayer(const Vec& query, const std::vector<std::vector<Vec>>& k, const std::vector<std::vector<Vec>>& v,
             Segments s)
      : RandomLayer(1, static_cast<std::uint32_t>(k.size()),
                    static_cast<std::uint32_t>(query.size() / k[0][0].size() / k.size()),
                    static_cast<std::uint32_t>(k[0][0].size()), s) {
    q.assign(query.begin(), query.end());
    for (std::uint32_t g = 0; g < kv_heads; ++g) {
      for (std::uint32_t t = 0; t < s.tokens; ++t) {
        std::copy(k[g][t].begin(), k[g][t].end(), keys[g].begin() + std::ptrdiff_t(t) * dim);
        std::copy(v[g][t].begin(), v[g][t].end(), values[g].begin() + std::ptrdiff_t(t) * dim);
      }
    }
  }
};

inline std::vector<std::uint32_t> range(std::uint32_t begin, std::uint32_t end) {
  std::vector<std::uint32_t> out;
  for (std::uint32_t t = begin; t < end; ++t) out.push_back(t);
  return out;
}
inline std::vector<std::uint32_t> join(std::vector<std::uint32_t> a, const std::vector<std::uint32_t>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

/// Tokens of all segments but the host's.
inline std::vector<std::uint32_t> device_tokens(const Segments& s) {
  return join(range(0, s.sinks), range(s.window, s.tokens));
}

/// The labels by definition: for every block size and count of blocks the attended set, and from the full selection
/// downwards while it is good enough.
class NaiveLabels {
 public:
  NaiveLabels(const RandomLayer& layer, Segments segments, BudgetLimits limits)
      : layer_(layer), s_(segments), limits_(limits) {
    for (std::uint32_t h = 0; h < layer.q_heads; ++h) {
      full_.push_back(layer.attend(h, range(0, s_.tokens)));
      largest_ = std::max(largest_, norm(full_[h].first));
    }
  }

  bool good(std::uint32_t h, BudgetPolicy policy, const std::vector<std::uint32_t>& chosen) const {
    const auto [o, lse] = layer_.attend(h, join(device_tokens(s_), chosen));
    const double error = norm(minus(o, full_[h].first));
    if (policy == BudgetPolicy::fluxion) return error / largest_ <= limits_.tau;
    if (policy == BudgetPolicy::output) return error / norm(full_[h].first) <= limits_.tau;
    return std::exp(lse - full_[h].second) >= limits_.mass;
  }

  double budget(std::uint32_t h, BudgetPolicy policy, std::uint32_t block) const {
    if (good(h, policy, {})) return 0;
    std::vector<std::pair<double, std::uint32_t>> blocks;
    for (std::uint32_t begin = s_.sinks; begin < s_.window; begin += block)
      blocks.emplace_back(-bound(h, begin, std::min(begin + block, s_.window)), begin);
    std::sort(blocks.begin(), blocks.end());
    std::size_t least = blocks.size();
    while (least > 1 && good(h, policy, first(blocks, least - 1, block))) --least;
    return std::min(1.0, double(least * block) / s_.host());
  }

 private:
  double bound(std::uint32_t h, std::uint32_t begin, std::uint32_t end) const {
    const Vec q = layer_.query_of(h);
    double sum = 0;
    for (std::uint32_t i = 0; i < layer_.dim; ++i) {
      double low = 1e300, high = -1e300;
      for (std::uint32_t t = begin; t < end; ++t) {
        low = std::min(low, layer_.key(h, t)[i]);
        high = std::max(high, layer_.key(h, t)[i]);
      }
      sum += std::max(q[i] * low, q[i] * high);
    }
    return sum;
  }
  std::vector<std::uint32_t> first(const std::vector<std::pair<double, std::uint32_t>>& blocks, std::size_t n,
                                   std::uint32_t block) const {
    std::vector<std::uint32_t> tokens;
    for (std::size_t i = 0; i < n; ++i)
      tokens = join(tokens, range(blocks[i].second, std::min(blocks[i].second + block, s_.window)));
    return tokens;
  }

  const RandomLayer& layer_;
  Segments s_;
  BudgetLimits limits_;
  std::vector<std::pair<Vec, double>> full_;
  double largest_ = 0;
};

}  // namespace tandem::testing
