#include "methods/fluxion/labels.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "engine/common/error.h"
#include "engine/kernels/attention.h"
#include "engine/kernels/digest.h"

namespace tandem {
namespace {

constexpr double kNothing = -std::numeric_limits<double>::infinity();
constexpr std::uint32_t kPage = 16;

std::uint32_t blocks_of(std::uint32_t tokens, std::uint32_t block) {
  return (tokens + block - 1) / block;
}

AttentionPart attend(const float* scores, const float* values, std::uint32_t tokens, std::uint32_t dim) {
  AttentionPart part{std::vector<double>(dim), kNothing};
  if (tokens == 0) return part;
  const double most = *std::max_element(scores, scores + tokens);
  double sum = 0;
  for (std::uint32_t t = 0; t < tokens; ++t) {
    const double weight = std::exp(scores[t] - most);
    sum += weight;
    for (std::uint32_t d = 0; d < dim; ++d) part.o[d] += weight * values[std::size_t{t} * dim + d];
  }
  for (double& x : part.o) x /= sum;
  part.lse = most + std::log(sum);
  return part;
}

AttentionPart merge(std::initializer_list<const AttentionPart*> parts, std::uint32_t dim) {
  AttentionPart all{std::vector<double>(dim), kNothing};
  double most = kNothing, sum = 0;
  for (const AttentionPart* part : parts) most = std::max(most, part->lse);
  if (most == kNothing) return all;
  for (const AttentionPart* part : parts) {
    const double weight = std::exp(part->lse - most);
    sum += weight;
    for (std::uint32_t d = 0; d < dim; ++d) all.o[d] += weight * part->o[d];
  }
  for (double& x : all.o) x /= sum;
  all.lse = most + std::log(sum);
  return all;
}

/// Unnormalised attention: sums of weights and of weighted values.
struct Sums {
  explicit Sums(std::uint32_t dim) : o(dim) {}
  std::vector<double> o;
  double weight = 0;
};

double error_of(const Sums& sums, const AttentionPart& full) {
  double square = 0;
  for (std::size_t d = 0; d < sums.o.size(); ++d) {
    const double off = sums.o[d] / sums.weight - full.o[d];
    square += off * off;
  }
  return std::sqrt(square);
}

/// The device's share, in units of the whole attention.
Sums device_sums(const HeadAttention& head) {
  Sums sums(static_cast<std::uint32_t>(head.full.o.size()));
  sums.weight = std::exp(head.device.lse - head.full.lse);
  for (std::size_t d = 0; d < sums.o.size(); ++d) sums.o[d] = sums.weight * head.device.o[d];
  return sums;
}

/// Watches a head's output while blocks come in, and remembers per limit and policy the last count that was not good
/// enough.
class BudgetWatch {
 public:
  BudgetWatch(const HeadAttention& head, std::span<const BudgetLimits> limits, double largest_output)
      : full_(head.full) {
    limits_.reserve(limits.size());
    for (const BudgetLimits& l : limits)
      limits_.push_back({l.tau * largest_output, l.tau * head.full.norm(), l.mass, {-1, -1, -1}});
  }

  /// |o - o_h| and the share of the attention that was captured, after n blocks.
  void see(std::uint32_t n, double error, double mass) {
    // Written so that a NaN (every weight so far is 0) is not good enough.
    for (Limit& limit : limits_) {
      if (!(error <= limit.fluxion)) limit.last_bad[0] = n;
      if (!(error <= limit.output)) limit.last_bad[1] = n;
      if (!(mass >= limit.mass)) limit.last_bad[2] = n;
    }
  }
  /// `sums`: over everything attended so far, in shares of the whole attention.
  void see(std::uint32_t n, const Sums& sums) { see(n, error_of(sums, full_), sums.weight); }
  std::int64_t last_bad(std::size_t limit, std::size_t policy) const {  // -1: none
    return limits_[limit].last_bad[policy];
  }

 private:
  struct Limit {
    double fluxion = 0, output = 0, mass = 0;
    std::array<std::int64_t, kBudgetPolicies> last_bad;  // by BudgetPolicy
  };
  const AttentionPart& full_;
  std::vector<Limit> limits_;
};

std::vector<std::uint32_t> by_score(const std::vector<float>& scores) {
  std::vector<std::uint32_t> order(scores.size());
  std::iota(order.begin(), order.end(), 0u);
  std::sort(order.begin(), order.end(),
            [&](std::uint32_t a, std::uint32_t b) { return scores[a] != scores[b] ? scores[a] > scores[b] : a < b; });
  return order;
}

/// Weighted sums of the host's tokens, by token and by block of any size.
class HostSums {
 public:
  HostSums(const HeadAttention& head, const float* values, std::uint32_t dim)
      : values_(values), dim_(dim), tokens_(static_cast<std::uint32_t>(head.host_scores.size())), unit_(head.full.lse) {
    weights_.reserve(tokens_);
    for (const float score : head.host_scores) weights_.push_back(std::exp(score - unit_));
    pages_.assign(std::size_t{blocks_of(tokens_, kPage)} * (dim + 1), 0);
    for (std::uint32_t t = 0; t < tokens_; ++t) add_token(t, &pages_[std::size_t{t / kPage} * (dim + 1)]);
  }

  void add(std::uint32_t block, std::uint32_t index, Sums& sums) const {
    if (block == 1) {
      const double weight = weights_[index];
      sums.weight += weight;
      const float* value = values_ + std::size_t{index} * dim_;
      for (std::uint32_t d = 0; d < dim_; ++d) sums.o[d] += weight * value[d];
      return;
    }
    const std::uint32_t pages = block / kPage, end = std::min((index + 1) * pages, blocks_of(tokens_, kPage));
    for (std::uint32_t page = index * pages; page < end; ++page) {
      const double* sum = &pages_[std::size_t{page} * (dim_ + 1)];
      for (std::uint32_t d = 0; d < dim_; ++d) sums.o[d] += sum[d];
      sums.weight += sum[dim_];
    }
  }

 private:
  void add_token(std::uint32_t token, double* sum) const {
    const float* value = values_ + std::size_t{token} * dim_;
    for (std::uint32_t d = 0; d < dim_; ++d) sum[d] += weights_[token] * value[d];
    sum[dim_] += weights_[token];
  }

  const float* values_;
  std::uint32_t dim_, tokens_;
  double unit_;
  std::vector<double> weights_;  // shares of the whole attention
  std::vector<double> pages_;    // [pages][D + 1], the last one the weight
};

}  // namespace

Segments fluxion_segments(std::uint32_t prefill, std::uint32_t tokens, std::uint32_t sinks, std::uint32_t window) {
  const std::uint32_t begin = blocks_of(std::min(sinks, prefill), kPage) * kPage;
  const std::uint32_t end = prefill > window ? (prefill - window) / kPage * kPage : 0;
  if (begin >= end) return {prefill, prefill, prefill, tokens};
  return {begin, end, prefill, tokens};
}

double AttentionPart::norm() const {
  return std::sqrt(std::inner_product(o.begin(), o.end(), o.begin(), 0.0));
}

std::vector<HeadAttention> attend_heads(const LayerQuery& layer) {
  const Segments& at = layer.segments;
  const std::uint32_t group = layer.q_heads / layer.kv_heads, dim = layer.dim;
  std::vector<HeadAttention> heads(layer.q_heads);
  std::vector<float> scores(std::size_t{group} * at.tokens);
  for (std::uint32_t g = 0; g < layer.kv_heads; ++g) {
    const KvSpan span{layer.keys[g], layer.values[g], at.tokens, 0};
    token_scores(layer.q + std::size_t{g} * group * dim, {&span, 1}, {group, dim, DType::f32}, scores.data());
    for (std::uint32_t i = 0; i < group; ++i) {
      HeadAttention& head = heads[g * group + i];
      const float* own = scores.data() + std::size_t{i} * at.tokens;
      const auto part = [&](std::uint32_t begin, std::uint32_t end) {
        return attend(own + begin, layer.values[g] + std::size_t{begin} * dim, end - begin, dim);
      };
      head.sinks = part(0, at.sinks);
      head.host = part(at.sinks, at.window);
      head.local = part(at.window, at.prefill);
      head.fresh = part(at.prefill, at.tokens);
      head.device = merge({&head.sinks, &head.local, &head.fresh}, dim);
      head.full = merge({&head.device, &head.host}, dim);
      head.host_scores.assign(own + at.sinks, own + at.window);
    }
  }
  return heads;
}

std::vector<HeadAttention> attend_host(const HostQuery& layer) {
  const std::uint32_t group = layer.q_heads / layer.kv_heads, dim = layer.dim;
  std::vector<HeadAttention> heads(layer.q_heads);
  std::vector<float> scores(std::size_t{group} * layer.tokens);
  for (std::uint32_t g = 0; g < layer.kv_heads; ++g) {
    const KvSpan span{layer.keys[g], layer.values[g], layer.tokens, 0};
    token_scores(layer.q + std::size_t{g} * group * dim, {&span, 1}, {group, dim, DType::f32}, scores.data());
    for (std::uint32_t i = 0; i < group; ++i) {
      const std::size_t h = std::size_t{g} * group + i;
      const float* own = scores.data() + std::size_t{i} * layer.tokens;
      HeadAttention& head = heads[h];
      head.sinks = head.local = head.fresh = {std::vector<double>(dim), kNothing};
      head.host = attend(own, layer.values[g], layer.tokens, dim);
      head.device = {{layer.device_o + h * dim, layer.device_o + (h + 1) * dim}, layer.device_lse[h]};
      head.full = merge({&head.device, &head.host}, dim);
      head.host_scores.assign(own, own + layer.tokens);
    }
  }
  return heads;
}

HostDigests::HostDigests(const float* host_keys, std::uint32_t tokens, std::uint32_t dim) : dim_(dim) {
  for (std::size_t i = 0; i < levels_.size(); ++i) {
    const std::uint32_t block = kLabelBlocks[i + 1];
    Level& level = levels_[i];
    level.blocks = blocks_of(tokens, block);
    level.low.resize(std::size_t{level.blocks} * dim);
    level.high.resize(level.low.size());
    for (std::uint32_t b = 0; b < level.blocks; ++b) {
      const std::size_t at = std::size_t{b} * dim;
      build_digest(host_keys + at * block, DType::f32, std::min(block, tokens - b * block), dim, level.low.data() + at,
                   level.high.data() + at);
    }
  }
}

std::vector<float> HostDigests::scores(const float* q, std::uint32_t block) const {
  const auto found = std::find(kLabelBlocks.begin() + 1, kLabelBlocks.end(), block);
  TANDEM_CHECK(found != kLabelBlocks.end(), "no digests of {} tokens", block);
  const Level& level = levels_[static_cast<std::size_t>(found - kLabelBlocks.begin()) - 1];
  std::vector<float> scores(level.blocks);
  score_blocks(q, level.low.data(), level.high.data(), level.blocks, {1, dim_, DType::f32}, scores.data());
  return scores;
}

HeadProperties HeadLabels::properties(BudgetLine line) const {
  if (line == BudgetLine::cover) return cover();
  double mean_x = 0, mean_y = 0, xy = 0, xx = 0;
  for (std::size_t i = 0; i < kLabelBlocks.size(); ++i) {
    mean_x += std::log2(kLabelBlocks[i]) / double(kLabelBlocks.size());
    mean_y += double(budgets[i]) / double(kLabelBlocks.size());
  }
  for (std::size_t i = 0; i < kLabelBlocks.size(); ++i) {
    const double x = std::log2(kLabelBlocks[i]) - mean_x;
    xy += x * (double(budgets[i]) - mean_y);
    xx += x * x;
  }
  return {budgets[0], static_cast<float>(xy / xx), streaming};
}

/// The least covering line goes through two of the points: it is an edge of their upper hull.
HeadProperties HeadLabels::cover() const {
  HeadProperties best{1, 0, streaming};
  double least = std::numeric_limits<double>::infinity();
  for (std::size_t a = 1; a < kLabelBlocks.size(); ++a) {
    for (std::size_t b = a + 1; b < kLabelBlocks.size(); ++b) {
      const double at = std::log2(kLabelBlocks[a]),
                   slope = (double{budgets[b]} - budgets[a]) / (std::log2(kLabelBlocks[b]) - at);
      double sum = 0;
      bool covers = true;
      for (std::size_t i = 1; i < kLabelBlocks.size(); ++i) {
        const double here = budgets[a] + slope * (std::log2(kLabelBlocks[i]) - at);
        covers = covers && here >= budgets[i] - 1e-7;
        sum += here;
      }
      if (!covers || sum >= least) continue;
      least = sum;
      best = {static_cast<float>(budgets[a] - slope * at), static_cast<float>(slope), streaming};
    }
  }
  return best;
}

double selection_error(const HeadAttention& head, const float* q, const float* host_values, const HostDigests& digests,
                       std::uint32_t block, std::uint32_t chosen) {
  const auto dim = static_cast<std::uint32_t>(head.full.o.size());
  Sums sums = device_sums(head);
  if (chosen > 0) {
    const HostSums host(head, host_values, dim);
    const std::vector<std::uint32_t> order = by_score(digests.scores(q, block));
    if (chosen >= order.size()) return 0;
    for (std::uint32_t n = 0; n < chosen; ++n) host.add(block, order[n], sums);
  }
  return error_of(sums, head.full);
}

std::vector<PolicyLabels> label_head(const HeadAttention& head, const float* q, const float* host_values,
                                     const HostDigests& digests, std::span<const BudgetLimits> limits,
                                     double largest_output) {
  const auto tokens = static_cast<std::uint32_t>(head.host_scores.size()), dim = std::uint32_t(head.full.o.size());
  TANDEM_CHECK(tokens > 0, "there is nothing to choose from");
  std::vector<PolicyLabels> labels(limits.size());
  const HostSums host(head, host_values, dim);
  const Sums device = device_sums(head);

  BudgetWatch nothing(head, limits, largest_output);
  double square = 0;
  for (std::uint32_t d = 0; d < dim; ++d)
    square += (head.device.o[d] - head.full.o[d]) * (head.device.o[d] - head.full.o[d]);
  nothing.see(0, std::sqrt(square), device.weight);
  for (std::size_t l = 0; l < limits.size(); ++l) {
    for (std::size_t p = 0; p < kBudgetPolicies; ++p) labels[l][p].streaming = nothing.last_bad(l, p) < 0;
  }

  for (std::size_t i = 0; i < kLabelBlocks.size(); ++i) {
    const std::uint32_t block = kLabelBlocks[i];
    const std::vector<std::uint32_t> order = by_score(block == 1 ? head.host_scores : digests.scores(q, block));
    BudgetWatch watch(head, limits, largest_output);
    Sums sums = device;
    // All blocks together are exact, whatever rounding says: the last one is not looked at.
    for (std::uint32_t n = 1; n < order.size(); ++n) {
      host.add(block, order[n - 1], sums);
      watch.see(n, sums);
    }
    for (std::size_t l = 0; l < limits.size(); ++l) {
      for (std::size_t p = 0; p < kBudgetPolicies; ++p) {
        const std::int64_t needed = std::max<std::int64_t>(watch.last_bad(l, p) + 1, 1);
        HeadLabels& own = labels[l][p];
        own.budgets[i] = own.streaming ? 0 : static_cast<float>(std::min(1.0, double(needed) * block / tokens));
      }
    }
  }
  return labels;
}

std::vector<std::vector<PolicyLabels>> label_heads(const LayerQuery& layer, std::span<const HeadAttention> heads,
                                                   std::span<const HostDigests> digests,
                                                   std::span<const BudgetLimits> limits) {
  double largest = 0;
  for (const HeadAttention& head : heads) largest = std::max(largest, head.full.norm());
  std::vector<std::vector<PolicyLabels>> labels(limits.size(), std::vector<PolicyLabels>(layer.q_heads));
  for (std::uint32_t h = 0; h < layer.q_heads; ++h) {
    const std::uint32_t g = h / (layer.q_heads / layer.kv_heads);
    const auto own =
        label_head(heads[h], layer.q + std::size_t{h} * layer.dim,
                   layer.values[g] + std::size_t{layer.segments.sinks} * layer.dim, digests[g], limits, largest);
    for (std::size_t l = 0; l < limits.size(); ++l) labels[l][h] = own[l];
  }
  return labels;
}

std::vector<PolicyLabels> label_heads(const LayerQuery& layer, std::span<const HeadAttention> heads,
                                      std::span<const HostDigests> digests, const BudgetLimits& limits) {
  return std::move(label_heads(layer, heads, digests, std::span(&limits, 1)).front());
}

}  // namespace tandem
