// A tiny random model and an engine on a chosen device, for tests of the runtime and the methods.
#pragma once

#include <memory>
#include <random>
#include <string>
#include <vector>

#include "engine/device/emu_device.h"
#include "engine/device/profile.h"
#include "engine/device/sim_device.h"
#include "engine/runtime/engine.h"

namespace tandem::testing {

inline Model tiny_model(bool qk_norm = true, std::uint32_t layers = 2) {
  Model model;
  ModelConfig& c = model.config;
  c.architecture = qk_norm ? "qwen3" : "llama";
  c.layers = layers;
  c.hidden = 48;
  c.intermediate = 80;
  c.q_heads = 4;
  c.kv_heads = 2;
  c.head_dim = 16;
  c.vocab = 96;
  c.max_positions = 4096;
  c.rms_eps = 1e-6f;
  c.rope.theta = 10000;
  c.qk_norm = qk_norm;
  c.tied_embeddings = true;
  model.weights = random_weights(c, DType::f32, 11);
  model.name = "tiny";
  return model;
}

/// With layers enough for what a method does by default: infinigen's first two are dense, the others are read ahead in
/// two rooms by turns.
inline Model tiny_model_for(const std::string& method) {
  return tiny_model(true, method.starts_with("infinigen") ? 5 : 2);
}

inline std::vector<std::int32_t> random_prompt(std::uint32_t tokens, std::uint32_t seed, std::uint32_t vocab = 96) {
  std::mt19937 random(seed);
  std::vector<std::int32_t> out(tokens);
  for (std::int32_t& t : out) t = static_cast<std::int32_t>(random() % vocab);
  return out;
}

inline std::unique_ptr<Device> sim(std::vector<ScheduleOp>* schedule = nullptr) {
  SimOptions options;
  options.schedule = schedule;
  return make_sim_device(load_profile("fluxion-a100"), options);
}

/// Everything a test needs, in order of construction.
struct Bench {
  explicit Bench(Model m, std::unique_ptr<Device> d = sim(), EngineOptions options = {}, unsigned threads = 2)
      : model(std::move(m)),
        device(std::move(d)),
        pool(threads),
        engine(model, *device, pool, small(std::move(options), device->is_gpu())) {}
  /// An emulated GPU takes long for column sums, so there who needs them says so, and fills all its memory with NaN.
  static EngineOptions small(EngineOptions options, bool emulated) {
    options.column_sums = options.column_sums || !emulated;
    options.kv.device_bytes = options.kv.host_bytes = std::size_t{emulated ? 8u : 64u} << 20;
    return options;
  }
  /// Prefills the prompts, decodes them as one batch and gives the prefixes back.
  DecodeResult decode(Method& method, const std::vector<std::vector<std::int32_t>>& prompts, std::uint32_t new_tokens,
                      const DecodeOptions& options = {}) {
    std::vector<std::unique_ptr<Prefix>> prefixes;
    std::vector<DecodeRequest> requests;
    for (const auto& prompt : prompts) {
      prefixes.push_back(engine.prefill(prompt));
      requests.push_back({prefixes.back().get(), new_tokens});
    }
    DecodeResult result = engine.decode(method, requests, options);
    for (const auto& prefix : prefixes) engine.release(*prefix);
    return result;
  }
  Model model;
  std::unique_ptr<Device> device;
  ThreadPool pool;
  Engine engine;
};

}  // namespace tandem::testing
