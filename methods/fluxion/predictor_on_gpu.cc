#include "methods/fluxion/predictor_on_gpu.h"

#include <utility>

#include "engine/kernels/attention.h"

namespace tandem {

StepFeatures KnownOnGpu::layer(LaunchContext& ctx, std::span<const PrefillStatistics> layers, std::uint32_t layer) {
  const PrefillStatistics& own = layers[layer];
  const std::size_t each = own.known.size() + own.anchor.size() + own.mean_key.size();
  if (memory_.bytes() == 0) {
    std::vector<float> values;
    values.reserve(layers.size() * each);
    for (const PrefillStatistics& one : layers)
      for (const std::vector<float>* part : {&one.known, &one.anchor, &one.mean_key})
        values.insert(values.end(), part->begin(), part->end());
    CudaMemory memory(values.size() * sizeof(float));
    cuda_copy(memory.as<>(), ctx.upload(values), memory.bytes(), ctx.stream());
    memory_ = std::move(memory);
  }
  StepFeatures step;
  step.known = memory_.as<float>() + layer * each;
  step.anchor = step.known + own.known.size();
  step.mean_key = step.anchor + own.anchor.size();
  return step;
}

void PredictorOnGpu::load(LaunchContext& ctx) {
  std::vector<NetworkLayer> layers;
  HeadNetwork network = predictor_.network(layers);
  std::vector<float> numbers;
  numbers.reserve(predictor_.bytes() / sizeof(float));
  const auto add = [&](const float* from, std::size_t count) {
    numbers.insert(numbers.end(), from, from + count);
    return numbers.size() - count;
  };
  const std::size_t mean = add(network.mean, network.inputs), scale = add(network.scale, network.inputs);
  std::vector<std::size_t> weights, biases;
  weights.reserve(layers.size());
  biases.reserve(layers.size());
  for (const NetworkLayer& layer : layers) {
    weights.push_back(numbers.size());
    for (std::uint32_t in = 0; in < layer.in; ++in)
      for (std::uint32_t out = 0; out < layer.out; ++out)
        numbers.push_back(layer.weight[std::size_t{out} * layer.in + in]);
    biases.push_back(add(layer.bias, layer.out));
  }
  numbers_ = CudaMemory(numbers.size() * sizeof(float));
  const auto* const base = numbers_.as<float>();
  for (std::size_t i = 0; i < layers.size(); ++i) {
    layers[i].weight = base + weights[i];
    layers[i].bias = base + biases[i];
  }
  layers_ = CudaMemory(layers.size() * sizeof(NetworkLayer));
  cuda_copy(numbers_.as<>(), ctx.upload(numbers), numbers_.bytes(), ctx.stream());
  cuda_copy(layers_.as<>(), ctx.upload(layers), layers_.bytes(), ctx.stream());
  network.mean = base + mean;
  network.scale = base + scale;
  network.layers = layers_.as<NetworkLayer>();
  network_ = network;
  cuda_wait(ctx.stream());  // once: other engines' streams may read it from here on
}

void PredictorOnGpu::predict(LaunchContext& ctx, const ModelShape& shape, std::span<const PredictedRow> rows,
                             float* out) {
  std::call_once(loaded_, [&] { load(ctx); });
  const std::uint32_t heads = shape.q_heads, first = rows.front().view.row, all = rows.back().view.row + 1 - first;
  const std::size_t width = std::size_t{heads} * shape.head_dim;
  const HeadView& from = rows.front().view;
  auto* const device = ctx.scratch<float>(all * width);  // rows between these among them
  const std::vector<const float*> parts = {from.apart[0].out, from.apart[1].out, from.rest.out},
                                  sums = {from.apart[0].lse, from.apart[1].lse, from.rest.lse};
  merge_partials_cuda(ctx.pass(parts), ctx.pass(sums), static_cast<std::uint32_t>(parts.size()), all * heads,
                      shape.head_dim, device, nullptr, ctx.stream());

  auto* const features = ctx.scratch<float>(rows.size() * heads * kFeatures);
  std::vector<StepFeatures> steps;
  steps.reserve(rows.size());
  for (const PredictedRow& row : rows) {
    StepFeatures& step = steps.emplace_back(row.known);
    step.host_tokens = row.host_tokens;
    step.device_tokens = row.view.tokens - row.host_tokens;
    step.q = row.view.query;
    step.sink_o = row.view.apart[0].out;
    step.sink_lse = row.view.apart[0].lse;
    step.local_o = row.view.apart[1].out;
    step.local_lse = row.view.apart[1].lse;
    step.device_o = device + (row.view.row - first) * width;
    step.out = features + (steps.size() - 1) * heads * kFeatures;
  }
  step_features_cuda(ctx.upload(steps), static_cast<std::uint32_t>(steps.size()),
                     {heads, shape.kv_heads, shape.head_dim}, ctx.stream());
  for (std::size_t begin = 0; begin < rows.size();) {  // rows that lie side by side
    std::size_t end = begin + 1;
    while (end < rows.size() && rows[end].view.row == rows[end - 1].view.row + 1) ++end;
    predict_heads_cuda(network_, features + begin * heads * kFeatures, static_cast<std::uint32_t>(end - begin) * heads,
                       out + std::size_t{rows[begin].view.row} * heads * kHeadOutputs, ctx.stream());
    begin = end;
  }
}

}  // namespace tandem
