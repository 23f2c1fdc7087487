#include "engine/kernels/head_network.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "engine/common/error.h"
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

}  // namespace tandem
