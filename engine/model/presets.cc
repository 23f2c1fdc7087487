#include "engine/model/presets.h"

#include <algorithm>

#include "engine/common/error.h"
#include "engine/model/weights.h"

namespace tandem {
namespace {

struct Preset {
  const char* name;
  const char* architecture;
  std::uint32_t layers, hidden, intermediate, q_heads, kv_heads, head_dim, vocab, max_positions;
  double theta;
  bool tied;
  double llama3_factor;  // of Llama 3's RoPE scaling; 0: plain RoPE
};

constexpr Preset kPresets[] = {
    {"llama-2-7b", "llama", 32, 4096, 11008, 32, 32, 128, 32000, 4096, 1e4, false, 0},
    {"llama-2-13b", "llama", 40, 5120, 13824, 40, 40, 128, 32000, 4096, 1e4, false, 0},
    {"llama-2-70b", "llama", 80, 8192, 28672, 64, 8, 128, 32000, 4096, 1e4, false, 0},
    {"llama-33b", "llama", 60, 6656, 17920, 52, 52, 128, 32000, 2048, 1e4, false, 0},
    {"llama-3.1-8b", "llama", 32, 4096, 14336, 32, 8, 128, 128256, 131072, 5e5, false, 8},
    {"llama-3.1-70b", "llama", 80, 8192, 28672, 64, 8, 128, 128256, 131072, 5e5, false, 8},
    {"llama-3.2-1b", "llama", 16, 2048, 8192, 32, 8, 64, 128256, 131072, 5e5, true, 32},
    {"mistral-7b", "llama", 32, 4096, 14336, 32, 8, 128, 32000, 32768, 1e4, false, 0},
    {"qwen2.5-0.5b", "qwen2", 24, 896, 4864, 14, 2, 64, 151936, 32768, 1e6, true, 0},
    {"qwen2.5-7b", "qwen2", 28, 3584, 18944, 28, 4, 128, 152064, 32768, 1e6, false, 0},
    {"qwen2.5-14b", "qwen2", 48, 5120, 13824, 40, 8, 128, 152064, 32768, 1e6, false, 0},
    {"qwen2.5-32b", "qwen2", 64, 5120, 27648, 40, 8, 128, 152064, 32768, 1e6, false, 0},
    {"qwen3-0.6b", "qwen3", 28, 1024, 3072, 16, 8, 128, 151936, 40960, 1e6, true, 0},
    {"qwen3-1.7b", "qwen3", 28, 2048, 6144, 16, 8, 128, 151936, 40960, 1e6, true, 0},
    {"qwen3-4b", "qwen3", 36, 2560, 9728, 32, 8, 128, 151936, 40960, 1e6, true, 0},
    {"qwen3-8b", "qwen3", 36, 4096, 12288, 32, 8, 128, 151936, 40960, 1e6, false, 0},
    {"qwen3-14b", "qwen3", 40, 5120, 17408, 40, 8, 128, 151936, 40960, 1e6, false, 0},
    {"qwen3-32b", "qwen3", 64, 5120, 25600, 64, 8, 128, 151936, 40960, 1e6, false, 0},
};

ModelConfig config_of(const Preset& p) {
  ModelConfig c;
  c.architecture = p.architecture;
  c.layers = p.layers;
  c.hidden = p.hidden;
  c.intermediate = p.intermediate;
  c.q_heads = p.q_heads;
  c.kv_heads = p.kv_heads;
  c.head_dim = p.head_dim;
  c.vocab = p.vocab;
  c.max_positions = p.max_positions;
  c.qk_norm = c.architecture == "qwen3";
  c.qkv_bias = c.architecture == "qwen2";
  c.rms_eps = c.architecture == "llama" ? 1e-5f : 1e-6f;
  c.rope.theta = p.theta;
  if (p.llama3_factor > 0)
    c.rope.scaling = {.type = RopeScaling::Type::llama3, .factor = p.llama3_factor, .original_positions = 8192};
  c.tied_embeddings = p.tied;
  return c;
}

}  // namespace

std::vector<std::string> preset_names() {
  std::vector<std::string> names;
  for (const Preset& preset : kPresets) names.emplace_back(preset.name);
  return names;
}

ModelConfig preset_config(const std::string& name) {
  const auto* found = std::ranges::find(kPresets, name, &Preset::name);
  if (found == std::end(kPresets))
    throw_input_error("There is no synthetic model '{}'.{} There are {}.", name, did_you_mean(name, preset_names()),
                      join_names(preset_names()));
  return config_of(*found);
}

std::uint64_t parameter_count(const ModelConfig& config) {
  ModelWeights empty;
  empty.layers.resize(config.layers);
  std::uint64_t count = 0;
  for (const WeightSlot& s : weight_slots(config, empty)) count += std::uint64_t{std::max(s.rows, 1u)} * s.cols;
  return count;
}

}  // namespace tandem
