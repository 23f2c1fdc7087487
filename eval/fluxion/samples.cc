#include "eval/fluxion/samples.h"

#include <algorithm>
#include <fmt/format.h>
#include <numeric>
#include <random>

#include "engine/common/error.h"
#include "eval/heads/capture.h"
#include "methods/fluxion/features.h"
#include "methods/registry.h"

namespace tandem::eval {
namespace {

constexpr std::size_t kAnchorBlocks = kLabelBlocks.size() - 1;

std::vector<float> floats(const std::vector<HeadAttention>& heads, const AttentionPart HeadAttention::*part) {
  std::vector<float> out;
  for (const HeadAttention& head : heads) {
    for (const double x : (head.*part).o) out.push_back(static_cast<float>(x));
  }
  return out;
}

std::vector<float> lses(const std::vector<HeadAttention>& heads, const AttentionPart HeadAttention::*part) {
  std::vector<float> out;
  out.reserve(heads.size());
  for (const HeadAttention& head : heads) out.push_back(static_cast<float>((head.*part).lse));
  return out;
}

/// Everything of one layer of one prompt that its steps need.
struct LayerContext {
  std::vector<const float*> keys, values;  // [Hkv] -> [tokens][D]
  std::vector<HostDigests> digests;        // [Hkv]
  PrefillStatistics prefill;
  std::vector<std::vector<PolicyLabels>> anchor;  // [tau][Hq]
};

/// Rows of one prompt, filled layer by layer and step by step, each by one task.
struct Sampler {
  const ModelShape& shape;
  const HeadCapture& capture;
  const Segments prefill;
  const CollectOptions& options;
  const std::vector<std::uint32_t> steps;
  std::vector<LayerContext> layers = std::vector<LayerContext>(shape.layers);
  FluxionSamples out = {};

  FluxionSamples run(ThreadPool& pool) {
    const std::size_t rows = steps.size() * shape.layers * shape.q_heads;
    out.rows = static_cast<std::uint32_t>(rows);
    out.steps.resize(rows);
    out.features.resize(rows * kFeatures);
    out.taus = options.taus.size();
    const std::size_t labels = rows * out.taus * kBudgetPolicies;
    out.anchor_budgets.resize(labels * kAnchorBlocks);
    out.budgets.resize(labels * kLabelBlocks.size());
    out.slopes.resize(labels);
    out.streaming.resize(labels);
    pool.parallel_for(shape.layers, [&](std::size_t layer) { prepare(static_cast<std::uint32_t>(layer)); });
    pool.parallel_for(steps.size() * shape.layers,
                      [&](std::size_t i) { sample(i / shape.layers, static_cast<std::uint32_t>(i % shape.layers)); });
    return std::move(out);
  }

  /// The layer's query at `position`, the first captured one being the anchor's.
  LayerQuery query(std::uint32_t layer, std::uint32_t position) const {
    Segments at = prefill;
    at.tokens = position + 1;
    return {shape.q_heads,
            shape.kv_heads,
            shape.head_dim,
            capture.query(layer, position + 1 - prefill.prefill),
            layers[layer].keys,
            layers[layer].values,
            at};
  }

  void prepare(std::uint32_t layer) {
    LayerContext& context = layers[layer];
    for (std::uint32_t g = 0; g < shape.kv_heads; ++g) {
      context.keys.push_back(capture.keys(layer, g));
      context.values.push_back(capture.values(layer, g));
      context.digests.emplace_back(context.keys[g] + std::size_t{prefill.sinks} * shape.head_dim, prefill.host(),
                                   shape.head_dim);
    }
    const LayerQuery anchor = query(layer, prefill.prefill - 1);
    const std::vector<BudgetLimits> limits = options.limits();
    context.prefill = prefill_statistics(layer, anchor, context.digests, limits.front());
    context.anchor = label_heads(anchor, attend_heads(anchor), context.digests, limits);
  }

  void sample(std::size_t i, std::uint32_t layer) {
    const LayerContext& context = layers[layer];
    const LayerQuery now = query(layer, prefill.prefill + steps[i]);
    const std::vector<HeadAttention> heads = attend_heads(now);
    const auto labels = label_heads(now, heads, context.digests, options.limits());
    const auto sink_o = floats(heads, &HeadAttention::sinks), local_o = floats(heads, &HeadAttention::local),
               device_o = floats(heads, &HeadAttention::device), sink_lse = lses(heads, &HeadAttention::sinks),
               local_lse = lses(heads, &HeadAttention::local);
    const std::size_t first = (i * shape.layers + layer) * shape.q_heads;
    features(context.prefill,
             {.host_tokens = now.segments.host(),
              .device_tokens = now.segments.device(),
              .q = now.q,
              .sink_o = sink_o.data(),
              .sink_lse = sink_lse.data(),
              .local_o = local_o.data(),
              .local_lse = local_lse.data(),
              .device_o = device_o.data()},
             out.features.data() + first * kFeatures);
    for (std::uint32_t h = 0; h < shape.q_heads; ++h) {
      out.steps[first + h] = static_cast<std::int32_t>(steps[i]);
      for (std::size_t n = 0; n < labels.size() * kBudgetPolicies; ++n) {
        const std::size_t tau = n / kBudgetPolicies, p = n % kBudgetPolicies;
        const HeadLabels &own = labels[tau][h][p], &anchor = context.anchor[tau][h][p];
        const std::size_t at = (first + h) * labels.size() * kBudgetPolicies + n;
        std::copy(own.budgets.begin(), own.budgets.end(), out.budgets.data() + at * kLabelBlocks.size());
        std::copy(anchor.budgets.begin() + 1, anchor.budgets.end(), out.anchor_budgets.data() + at * kAnchorBlocks);
        out.slopes[at] = own.properties().slope;
        out.streaming[at] = own.streaming ? 1 : 0;
      }
    }
  }
};

/// Adds tensors to a safetensors file, in the order in which they come.
class SafetensorsText {
 public:
  template <class T>
  void add(const char* name, const char* dtype, const std::vector<std::size_t>& shape, const std::vector<T>& values) {
    const std::size_t begin = body_.size();
    body_.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
    header_ += fmt::format("{}\"{}\":{{\"dtype\":\"{}\",\"shape\":[{}],\"data_offsets\":[{},{}]}}",
                           header_.empty() ? "" : ",", name, dtype, fmt::join(shape, ","), begin, body_.size());
  }
  std::string text() const {
    std::string header = "{" + header_ + "}";
    header.resize((header.size() + 7) / 8 * 8, ' ');  // so that the numbers behind it are aligned
    std::string out;
    for (std::size_t i = 0; i < 8; ++i) out.push_back(static_cast<char>(header.size() >> (8 * i) & 0xFF));
    return out + header + body_;
  }

 private:
  std::string header_, body_;
};

}  // namespace

std::vector<BudgetLimits> CollectOptions::limits() const {
  std::vector<BudgetLimits> out;
  out.reserve(taus.size());
  for (const double tau : taus) out.push_back({tau, mass});
  return out;
}

std::string FluxionSamples::bytes() const {
  SafetensorsText file;
  const std::size_t n = rows;
  file.add("features", "F32", {n, kFeatures}, features);
  file.add("anchor_budgets", "F32", {n, taus, kBudgetPolicies, kAnchorBlocks}, anchor_budgets);
  file.add("budgets", "F32", {n, taus, kBudgetPolicies, kLabelBlocks.size()}, budgets);
  file.add("slopes", "F32", {n, taus, kBudgetPolicies}, slopes);
  file.add("steps", "I32", {n}, steps);
  file.add("streaming", "U8", {n, taus, kBudgetPolicies}, streaming);
  return file.text();
}

std::vector<std::uint32_t> sampled_steps(const CollectOptions& options, std::uint64_t prompt) {
  std::vector<std::uint32_t> all(options.decode_steps);
  std::iota(all.begin(), all.end(), 0u);
  std::mt19937_64 random(options.seed * 0x9E3779B97F4A7C15ull + prompt);
  for (std::uint32_t i = 0; i < options.steps; ++i) std::swap(all[i], all[i + random() % (all.size() - i)]);
  all.resize(options.steps);
  std::sort(all.begin(), all.end());
  return all;
}

FluxionSamples collect_samples(Engine& engine, ThreadPool& pool, const std::string& name,
                               const std::vector<std::int32_t>& tokens, std::uint64_t prompt,
                               const CollectOptions& options) {
  // The engine leaves a prompt's last token to the first decode step.
  const auto prefill = static_cast<std::uint32_t>(tokens.size() - 1);
  const Segments segments = fluxion_segments(prefill, prefill, options.sinks, options.window);
  if (segments.host() == 0) {
    throw_input_error(
        "Prompt '{}' has {} tokens, and sinks ({}) and window ({}) keep all of them on the device, so there is nothing "
        "to choose from: give longer --lengths.",
        name, tokens.size(), options.sinks, options.window);
  }
  const std::vector<std::uint32_t> steps = sampled_steps(options, prompt);
  const std::uint32_t decoded = steps.back() + 1;
  HeadCapture capture(engine.shape(), prefill + decoded, prefill - 1);
  {
    const Observation observation(engine, capture);
    const auto full = make_method("full");
    const auto prefix = engine.prefill(tokens);
    const DecodeRequest request{prefix.get(), decoded};
    try {
      const DecodeResult result = engine.decode(*full, {&request, 1});
      TANDEM_CHECK(result.sequences[0].tokens.size() == decoded, "a prompt ended early");
    } catch (...) {
      engine.release(*prefix);
      throw;
    }
    engine.release(*prefix);
  }
  const ModelShape shape = engine.shape();
  return Sampler{shape, capture, segments, options, steps}.run(pool);
}

}  // namespace tandem::eval
