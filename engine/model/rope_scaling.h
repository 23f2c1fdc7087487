// Rotary frequencies: plain RoPE, and how Llama and Qwen models stretch it beyond the context they were trained on.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "engine/kernels/rope.h"

namespace tandem {

struct RopeScaling {
  enum class Type {
    none,
    linear,  // every frequency divided by `factor`
    llama3,  // Llama 3.1, 3.2: long wavelengths divided by `factor`, short ones kept, a linear blend between
    yarn,    // Qwen2.5 (Peng et al. 2023): the same by dimension, and every rotation scaled by `attention_factor`
  };
  Type type = Type::none;
  double factor = 1;                                 // by how much the context is stretched
  std::uint32_t original_positions = 0;              // context before stretching
  double low_freq_factor = 1, high_freq_factor = 4;  // llama3: wavelengths original / these bound the blend
  double beta_fast = 32, beta_slow = 1;              // yarn: turns within the original context that bound the blend
  double attention_factor = 1;                       // yarn: multiplies cosine and sine
  bool truncate = true;                              // yarn: the bounds are whole dimensions
  bool operator==(const RopeScaling&) const = default;
};

struct RopeConfig {
  double theta = 10000;
  RopeScaling scaling;
  bool operator==(const RopeConfig&) const = default;
};

/// From config.json, as transformers reads it: rope_scaling of older writers where it says anything, else
/// rope_parameters; rope_theta from there, else from beside it, else 10000. The original context is config.json's own
/// original_max_position_embeddings, else the group's, else `max_positions`. "dynamic" changes nothing up to
/// `max_positions`, where every context ends. InputError for other kinds, and for what transformers refuses or warns
/// about: a model whose positions are read wrongly answers nonsense.
RopeConfig read_rope(const nlohmann::json& config, const std::string& file, std::uint32_t max_positions);

RopeTable make_rope_table(std::uint32_t head_dim, const RopeConfig& rope);

}  // namespace tandem
