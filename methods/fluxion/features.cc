#include "methods/fluxion/features.h"

#include <algorithm>
#include <cmath>

#include "engine/common/error.h"

namespace tandem {
namespace {

double dot(const float* a, const float* b, std::uint32_t n) {
  double sum = 0;
  for (std::uint32_t i = 0; i < n; ++i) sum += double(a[i]) * b[i];
  return sum;
}

double norm(const float* a, std::uint32_t n) {
  return std::sqrt(dot(a, a, n));
}

/// a / b, where a query of zeros makes both 0.
double ratio(double a, double b) {
  return b == 0 ? 0 : a / b;
}

float lse_feature(double lse) {
  return static_cast<float>(std::max(lse, double(kEmptyLse)));
}

/// Mean, variance, skewness and kurtosis into four columns.
void put_moments(const std::vector<double>& x, float* out) {
  const auto n = double(x.size());
  double mean = 0, m2 = 0, m3 = 0, m4 = 0;
  for (const double v : x) mean += v / n;
  for (const double v : x) {
    const double d = v - mean;
    m2 += d * d / n;
    m3 += d * d * d / n;
    m4 += d * d * d * d / n;
  }
  // Below this the values are equal but for rounding.
  const bool constant = m2 <= 1e-18 * mean * mean;
  out[0] = static_cast<float>(mean);
  out[1] = static_cast<float>(m2);
  out[2] = constant ? 0 : static_cast<float>(m3 / (m2 * std::sqrt(m2)));
  out[3] = constant ? 0 : static_cast<float>(m4 / (m2 * m2));
}

std::vector<double> row_norms(const float* rows, std::uint32_t n, std::uint32_t dim) {
  std::vector<double> norms(n);
  for (std::uint32_t i = 0; i < n; ++i) norms[i] = norm(rows + std::size_t{i} * dim, dim);
  return norms;
}

float mean_of(const std::vector<double>& x) {
  double sum = 0;
  for (const double v : x) sum += v;
  return x.empty() ? 0 : static_cast<float>(sum / double(x.size()));
}

std::vector<float> mean_row(const float* rows, std::uint32_t n, std::uint32_t dim) {
  std::vector<double> sum(dim);
  for (std::uint32_t i = 0; i < n; ++i) {
    for (std::uint32_t d = 0; d < dim; ++d) sum[d] += rows[std::size_t{i} * dim + d];
  }
  std::vector<float> mean(dim);
  for (std::uint32_t d = 0; d < dim; ++d) mean[d] = static_cast<float>(sum[d] / n);
  return mean;
}

/// The twelve columns that a KV head's query heads share.
void put_kv(const float* keys, const float* values, const Segments& at, std::uint32_t dim,
            const std::vector<float>& mean_key, float* out) {
  const std::size_t host = std::size_t{at.sinks} * dim;
  out[kSinkKeyNorm] = mean_of(row_norms(keys, at.sinks, dim));
  out[kSinkValueNorm] = mean_of(row_norms(values, at.sinks, dim));
  out[kMeanKeyNorm] = static_cast<float>(norm(mean_key.data(), dim));
  out[kMeanValueNorm] = static_cast<float>(norm(mean_row(values + host, at.host(), dim).data(), dim));
  put_moments(row_norms(keys + host, at.host(), dim), out + kKeyNorms);
  put_moments(row_norms(values + host, at.host(), dim), out + kValueNorms);
}

/// What the anchor's attention says.
void put_anchor(const HeadAttention& head, const HeadLabels& labels, double query_norm, float* out) {
  std::vector<double> z;
  z.reserve(head.host_scores.size());
  for (const float score : head.host_scores) z.push_back(ratio(score, query_norm));
  put_moments(z, out + kScores);
  out[kAnchorSinkLse] = lse_feature(head.sinks.lse);
  out[kAnchorHostLse] = lse_feature(head.host.lse);
  out[kAnchorLocalLse] = lse_feature(head.local.lse);
  out[kAnchorSinkOutput] = static_cast<float>(head.sinks.norm());
  out[kAnchorHostOutput] = static_cast<float>(head.host.norm());
  out[kAnchorLocalOutput] = static_cast<float>(head.local.norm());
  out[kAnchorNorm] = static_cast<float>(query_norm);
  std::copy(labels.budgets.begin() + 1, labels.budgets.end(), out + kAnchorBudgets);
}

}  // namespace

const std::array<std::string_view, kFeatures>& feature_names() {
  static const std::array<std::string_view, kFeatures> names = {"layer",
                                                                "head",
                                                                "host_tokens",
                                                                "device_tokens",
                                                                "sink_key_norm",
                                                                "sink_value_norm",
                                                                "mean_key_norm",
                                                                "mean_value_norm",
                                                                "key_norm_mean",
                                                                "key_norm_variance",
                                                                "key_norm_skewness",
                                                                "key_norm_kurtosis",
                                                                "value_norm_mean",
                                                                "value_norm_variance",
                                                                "value_norm_skewness",
                                                                "value_norm_kurtosis",
                                                                "score_of_mean_key",
                                                                "anchor_score_mean",
                                                                "anchor_score_variance",
                                                                "anchor_score_skewness",
                                                                "anchor_score_kurtosis",
                                                                "sink_lse",
                                                                "host_lse",
                                                                "local_lse",
                                                                "anchor_sink_lse",
                                                                "anchor_host_lse",
                                                                "anchor_local_lse",
                                                                "sink_output",
                                                                "local_output",
                                                                "anchor_sink_output",
                                                                "anchor_host_output",
                                                                "anchor_local_output",
                                                                "query_norm",
                                                                "anchor_norm",
                                                                "cosine",
                                                                "anchor_budget_16",
                                                                "anchor_budget_32",
                                                                "anchor_budget_64",
                                                                "anchor_budget_128",
                                                                "largest_device_output",
                                                                "largest_anchor_device_output"};
  return names;
}

PrefillStatistics prefill_statistics(std::uint32_t layer_index, const LayerQuery& layer,
                                     std::span<const HostDigests> digests, const BudgetLimits& limits,
                                     BudgetPolicy policy) {
  const Segments& at = layer.segments;
  const std::uint32_t dim = layer.dim, group = layer.q_heads / layer.kv_heads;
  TANDEM_CHECK(at.host() > 0 && at.tokens == at.prefill, "no host tokens, or not the anchor");
  PrefillStatistics out{layer.q_heads, layer.kv_heads, dim, {}, {}, {}, {}};
  out.known.resize(std::size_t{layer.q_heads} * kFeatures);
  out.anchor.assign(layer.q, layer.q + std::size_t{layer.q_heads} * dim);
  const std::vector<HeadAttention> heads = attend_heads(layer);
  out.labels = label_heads(layer, heads, digests, limits);
  double largest = 0;
  for (const HeadAttention& head : heads) largest = std::max(largest, head.device.norm());
  for (std::uint32_t h = 0; h < layer.q_heads; ++h) {
    const std::uint32_t g = h / group;
    float* row = out.known.data() + std::size_t{h} * kFeatures;
    if (h % group == 0) {
      const std::vector<float> mean_key = mean_row(layer.keys[g] + std::size_t{at.sinks} * dim, at.host(), dim);
      out.mean_key.insert(out.mean_key.end(), mean_key.begin(), mean_key.end());
      put_kv(layer.keys[g], layer.values[g], at, dim, mean_key, row);
    } else {
      std::copy_n(row - kFeatures, kFeatures, row);
    }
    row[kLayerIndex] = static_cast<float>(layer_index);
    row[kHeadIndex] = static_cast<float>(h);
    put_anchor(heads[h], out.labels[h][static_cast<std::size_t>(policy)],
               norm(out.anchor.data() + std::size_t{h} * dim, dim), row);
    row[kLargestAnchorOutput] = static_cast<float>(largest);
  }
  return out;
}

void features(const PrefillStatistics& prefill, StepFeatures step, float* out) {
  step.known = prefill.known.data();
  step.anchor = prefill.anchor.data();
  step.mean_key = prefill.mean_key.data();
  step.out = out;
  step_features(step, {prefill.q_heads, prefill.kv_heads, prefill.dim});
}

}  // namespace tandem
