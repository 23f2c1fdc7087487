// Cases of what Fluxion says of query heads: a step's features, and the network that reads them.
#include <algorithm>
#include <cmath>
#include <fmt/format.h>

#include "engine/kernels/head_features.h"
#include "engine/kernels/head_network.h"
#include "eval/kernels/case.h"

namespace tandem::eval {
namespace {

using Vector = std::vector<double>;

// `empty`: a sequence without sinks, and a query of zeros.
KernelCase features_case(std::uint32_t rows, std::uint32_t kv_heads, std::uint32_t group, std::uint32_t dim,
                         bool empty) {
  const HeadShape shape{kv_heads * group, kv_heads, dim};
  const std::size_t heads = shape.q_heads, width = heads * dim, keys = std::size_t{kv_heads} * dim;
  KernelCase one{"step_features",
                 fmt::format("{} rows, {} heads of {}, D {}{}", rows, kv_heads, group, dim, empty ? ", empty" : "")};
  one.bytes =
      4.0 * rows *
      (5.0 * static_cast<double>(width) + static_cast<double>(keys) + 2.0 * kFeatures * static_cast<double>(heads));
  one.flops = 12.0 * rows * static_cast<double>(width);
  one.tolerance = 1e-6;
  one.threaded = true;
  one.set_up = [=](CaseMemory& memory, PreparedCase& prepared) {
    using Numbers = Input<float>;
    const Numbers known = memory.normals(rows * heads * kFeatures, 1), anchor = memory.normals(rows * width, 2),
                  mean_key = memory.normals(rows * keys, 3), local = memory.normals(rows * width, 6),
                  local_lse = memory.normals(rows * heads, 7, 4), device = memory.normals(rows * width, 8, 0.1f),
                  q = memory.normals(rows * width, 4, empty ? 0 : 1),
                  sinks = memory.normals(rows * width, 5, empty ? 0 : 2),
                  sink_lse = empty ? memory.input(std::vector<float>(rows * heads, -INFINITY))
                                   : memory.normals(rows * heads, 9, 4);
    float* const out = memory.result<float>(rows * heads * kFeatures);
    const auto tokens = [=](std::size_t row) { return static_cast<std::uint32_t>(empty ? 0 : 1000 * row + 17); };
    const auto steps = memory.input(generated(rows, [=](std::size_t row) {
      StepFeatures step;
      step.known = known.target + row * heads * kFeatures;
      step.anchor = anchor.target + row * width;
      step.mean_key = mean_key.target + row * keys;
      step.host_tokens = tokens(row);
      step.device_tokens = 300 + static_cast<std::uint32_t>(row);
      step.q = q.target + row * width;
      step.sink_o = sinks.target + row * width;
      step.sink_lse = sink_lse.target + row * heads;
      step.local_o = local.target + row * width;
      step.local_lse = local_lse.target + row * heads;
      step.device_o = device.target + row * width;
      step.out = out + row * heads * kFeatures;
      return step;
    }));
    prepared.run = [=, &memory] {
      if (memory.cuda()) return step_features_cuda(steps.target, rows, shape, memory.stream());
      memory.each(rows, [&](std::size_t row) { step_features(steps[row], shape); });
    };
    prepared.expected = [=] {
      Vector expected(known.host().begin(), known.host().end());
      const auto dot = [=](const Numbers& a, std::size_t head_a, const Numbers& b, std::size_t head_b) {
        double sum = 0;
        for (std::size_t d = 0; d < dim; ++d) sum += double{a[head_a * dim + d]} * double{b[head_b * dim + d]};
        return sum;
      };
      const auto norm = [=](const Numbers& a, std::size_t head) { return std::sqrt(dot(a, head, a, head)); };
      for (std::size_t row = 0; row < rows; ++row) {
        double largest = 0;
        for (std::size_t h = row * heads; h < (row + 1) * heads; ++h) largest = std::max(largest, norm(device, h));
        for (std::size_t h = row * heads; h < (row + 1) * heads; ++h) {
          double* const f = &expected[h * kFeatures];
          const std::size_t kv_head = row * kv_heads + h % heads / group;
          const double length = norm(q, h), root = std::sqrt(static_cast<double>(dim));
          const double score = length == 0 ? 0 : dot(q, h, mean_key, kv_head) / length / root;
          f[kHostTokens] = tokens(row);
          f[kDeviceTokens] = 300.0 + static_cast<double>(row);
          f[kMeanScore] = score;
          f[kSinkLse] = empty ? double{kEmptyLse} : double{sink_lse[h]};
          f[kHostLse] = std::log(std::max(f[kHostTokens], 1.0)) + length * score + length * length * f[kScores + 1] / 2;
          f[kLocalLse] = double{local_lse[h]};
          f[kSinkOutput] = norm(sinks, h);
          f[kLocalOutput] = norm(local, h);
          f[kQueryNorm] = length;
          f[kCosine] = length == 0 ? 0 : dot(q, h, anchor, h) / length / f[kAnchorNorm];
          f[kLargestOutput] = largest;
        }
      }
      return expected;
    };
  };
  return one;
}

// `overflow`: weights that make the first head's budget infinite.
KernelCase network_case(std::uint32_t n, std::vector<std::uint32_t> widths, bool overflow = false) {
  KernelCase one{"predict_heads",
                 fmt::format("{} heads, {}{}", n, fmt::join(widths, " - "), overflow ? ", overflow" : "")};
  widths.push_back(kHeadOutputs);
  double weights = 2.0 * widths[0];
  for (std::size_t l = 1; l < widths.size(); ++l) weights += (widths[l - 1] + 1.0) * widths[l];
  one.bytes = 4.0 * weights + 4.0 * n * (widths[0] + 3.0);
  one.flops = 2.0 * n * weights;
  if (n > 128) one.bound = Bound::f32;
  one.tolerance = 2e-5;
  one.set_up = [=](CaseMemory& memory, PreparedCase& prepared) {
    const auto features = memory.normals(std::size_t{n} * widths[0], 1, 4), mean = memory.normals(widths[0], 2),
               scale = memory.normals(widths[0], 3, 0.3f);
    std::vector<std::vector<float>> weight;
    std::vector<Input<float>> bias;
    std::vector<NetworkLayer> layers;
    for (std::size_t l = 1; l < widths.size(); ++l) {
      const std::uint32_t in = widths[l - 1], out = widths[l];
      weight.push_back(
          case_normals(std::size_t{in} * out, static_cast<unsigned>(10 + l), 1 / std::sqrt(static_cast<float>(in))));
      bias.push_back(memory.normals(out, static_cast<unsigned>(20 + l)));
      if (overflow)
        for (float& x : weight.back()) x *= 1e30f;
      std::vector<float> placed = weight.back();
      for (std::size_t i = 0; i < placed.size() && memory.cuda(); ++i) placed[i % in * out + i / in] = weight.back()[i];
      layers.push_back({memory.input(placed).target, bias.back().target, in, out});
    }
    const HeadNetwork network{mean.target,
                              scale.target,
                              memory.input(layers).target,
                              static_cast<std::uint32_t>(layers.size()),
                              widths[0],
                              *std::max_element(widths.begin(), widths.end())};
    float* const out = memory.result<float>(std::size_t{n} * kHeadOutputs);
    prepared.run = [=, &memory] {
      if (memory.cuda()) return predict_heads_cuda(network, features.target, n, out, memory.stream());
      predict_heads(network, features.target, n, out);
    };
    prepared.expected = [=] {
      Vector expected;
      for (std::size_t row = 0; row < n; ++row) {
        Vector x(widths[0]);
        for (std::size_t f = 0; f < x.size(); ++f)
          x[f] = std::clamp((double{features[row * x.size() + f]} - double{mean[f]}) * double{scale[f]}, -10.0, 10.0);
        for (std::size_t l = 0; l < weight.size(); ++l) {
          Vector y(bias[l].host().begin(), bias[l].host().end());
          for (std::size_t o = 0; o < y.size(); ++o) {
            for (std::size_t i = 0; i < x.size(); ++i) y[o] += double{weight[l][o * x.size() + i]} * x[i];
            if (l + 1 < weight.size()) y[o] = std::max(y[o], 0.0);
          }
          x = y;
        }
        if (overflow) x = {1, 0, 0};
        append(expected, Vector{x[0], x[1], x[2] > 0 ? 1.0 : 0.0});
      }
      return expected;
    };
  };
  return one;
}

}  // namespace

void append_head_cases(CaseSize size, const TakeCase& take) {
  if (size == CaseSize::bench) {
    take(features_case(8, 8, 4, 128, false));
    for (const std::uint32_t n : {32u, 256u, 2048u}) take(network_case(n, {kFeatures, 312, 312}));
    return;
  }
  take(features_case(3, 2, 4, 64, false));
  take(features_case(1, 3, 1, 5, false));
  take(features_case(2, 1, 7, 20, true));
  take(features_case(1, 4, 5, 64, false));  // more heads than warps
  take(network_case(3, {kFeatures, 40, 33}));
  take(network_case(5, {kFeatures, 312, 312}));
  take(network_case(1, {7}));
  take(network_case(70, {kFeatures, 20, 13, 50}));
  take(network_case(2, {5, 6, 7}, true));
}

}  // namespace tandem::eval
