#include "engine/kernels/head_features.h"

#include <algorithm>
#include <cmath>

namespace tandem {
namespace {

double dot(const float* a, const float* b, std::uint32_t n) {
  double sum = 0;
  for (std::uint32_t i = 0; i < n; ++i) sum += double{a[i]} * double{b[i]};
  return sum;
}

double norm(const float* a, std::uint32_t n) {
  return std::sqrt(dot(a, a, n));
}

double ratio(double a, double b) {
  return b == 0 ? 0 : a / b;
}

}  // namespace

void step_features(const StepFeatures& step, const HeadShape& shape) {
  const std::uint32_t dim = shape.dim, group = shape.q_heads / shape.kv_heads;
  double largest = 0;
  for (std::uint32_t h = 0; h < shape.q_heads; ++h)
    largest = std::max(largest, norm(step.device_o + std::size_t{h} * dim, dim));
  std::copy_n(step.known, std::size_t{shape.q_heads} * kFeatures, step.out);
  for (std::uint32_t h = 0; h < shape.q_heads; ++h) {
    const std::size_t at = std::size_t{h} * dim;
    float* row = step.out + std::size_t{h} * kFeatures;
    const float* q = step.q + at;
    const double length = norm(q, dim), variance = double{row[kScores + 1]};
    const double mean =
        ratio(dot(q, step.mean_key + std::size_t{h / group} * dim, dim), length * std::sqrt(static_cast<double>(dim)));
    row[kHostTokens] = static_cast<float>(step.host_tokens);
    row[kDeviceTokens] = static_cast<float>(step.device_tokens);
    row[kMeanScore] = static_cast<float>(mean);
    row[kSinkLse] = std::max(step.sink_lse[h], kEmptyLse);
    row[kHostLse] = static_cast<float>(std::log(double(std::max(step.host_tokens, 1u))) + length * mean +
                                       0.5 * length * length * variance);
    row[kLocalLse] = std::max(step.local_lse[h], kEmptyLse);
    row[kSinkOutput] = static_cast<float>(norm(step.sink_o + at, dim));
    row[kLocalOutput] = static_cast<float>(norm(step.local_o + at, dim));
    row[kQueryNorm] = static_cast<float>(length);
    row[kCosine] = static_cast<float>(ratio(dot(q, step.anchor + at, dim), length * double{row[kAnchorNorm]}));
    row[kLargestOutput] = static_cast<float>(largest);
  }
}

}  // namespace tandem
