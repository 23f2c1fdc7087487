#include "engine/kernels/head_network.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "engine/common/error.h"
#include "engine/kernels/head_features.h"
#include "engine/kernels/linear.h"

namespace tandem {

void predict_heads(const HeadNetwork& network, const float* features, std::uint32_t n, float* out) {
  TANDEM_CHECK(network.count >= 1 && network.layers[network.count - 1].out == kHeadOutputs,
               "a network of {} layers without three outputs", network.count);
  static ThreadPool one(1);  // a few rows: handing them out would take longer than the work
  std::vector<float> x(std::size_t{n} * network.inputs), y;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const std::size_t f = i % network.inputs;
    x[i] = std::clamp((features[i] - network.mean[f]) * network.scale[f], -kFeatureCut, kFeatureCut);
  }
  for (std::uint32_t i = 0; i < network.count; ++i) {
    const NetworkLayer& layer = network.layers[i];
    y.assign(std::size_t{n} * layer.out, 0);
    linear(one, x.data(), {layer.weight, DType::f32, layer.out, layer.in}, layer.bias, y.data(), n);
    if (i + 1 < network.count) {
      for (float& v : y) v = std::max(v, 0.0f);
    }
    std::swap(x, y);
  }
  for (std::uint32_t r = 0; r < n; ++r, out += kHeadOutputs) {
    const float* said = x.data() + std::size_t{r} * kHeadOutputs;
    const bool known = std::isfinite(said[0]) && std::isfinite(said[1]);
    out[0] = known ? said[0] : 1;
    out[1] = known ? said[1] : 0;
    out[2] = known && said[2] > 0 ? 1 : 0;
  }
}

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
