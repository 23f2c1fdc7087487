// Shape of a model, read from a Hugging Face folder's config.json (and generation_config.json for stop tokens) as
// transformers reads it, defaults included. docs/model_folder.md lists what the files state twice.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "engine/model/rope_scaling.h"

namespace tandem {

struct ModelConfig {
  std::string architecture;  // "llama", "qwen2" or "qwen3"
  std::uint32_t layers = 0, hidden = 0, intermediate = 0, q_heads = 0, kv_heads = 0, head_dim = 0, vocab = 0;
  std::uint32_t max_positions = 0;  // stretched ones included
  float rms_eps = 0;
  RopeConfig rope;
  bool qk_norm = false;   // RMSNorm of each head of Q and K before RoPE (Qwen3)
  bool qkv_bias = false;  // of the Q, K and V projections (Qwen2)
  bool tied_embeddings = false;
  std::vector<std::int32_t> stop_tokens;
  std::int32_t bos = -1;  // -1: none
};

/// InputError naming file, field and value for anything missing, mistyped, out of range or not supported.
ModelConfig load_config(const std::filesystem::path& folder);

}  // namespace tandem
