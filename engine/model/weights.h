// A model's weights as views into mapped files, or into memory that holds a copy of them or random ones.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <vector>

#include "engine/kernels/tensor.h"
#include "engine/model/config.h"
#include "engine/model/safetensors.h"

namespace tandem {

struct LayerWeights {
  MatrixView input_norm;              // [1][hidden]
  MatrixView q, k, v;                 // [heads * D][hidden]
  MatrixView q_bias, k_bias, v_bias;  // [1][heads * D], always f32; empty without QKV bias
  MatrixView o;                       // [hidden][Hq * D]
  MatrixView q_norm, k_norm;          // [1][D]; empty without QK-norm
  MatrixView post_norm;               // [1][hidden]
  MatrixView gate, up;                // [intermediate][hidden]
  MatrixView down;                    // [hidden][intermediate]
};

struct ModelWeights {
  MatrixView embedding;   // [vocab][hidden]
  MatrixView final_norm;  // [1][hidden]
  MatrixView lm_head;     // [vocab][hidden]; the embedding when tied
  std::vector<LayerWeights> layers;
  std::shared_ptr<const void> storage;
  std::uint64_t hash = 0;
  bool mapped = false;  // they are read from files whenever their pages are not in memory
  std::size_t bytes() const;
};

/// A tensor: its name in files, its shape, and where its view goes.
struct WeightSlot {
  std::string name;
  MatrixView* view;
  std::uint32_t rows, cols;  // rows == 0: a vector of cols
  bool is_bias = false;      // kept in memory as f32
};

/// Tensor names of Llama, Qwen2 (which adds biases) and Qwen3 (q_norm and k_norm), and the shapes they must have.
/// `weights.layers` has its final size.
std::vector<WeightSlot> weight_slots(const ModelConfig& config, ModelWeights& weights);

/// InputError naming file, tensor, shape or dtype for what does not fit the configuration.
ModelWeights load_weights(const std::filesystem::path& folder, const ModelConfig& config,
                          const WeightPlace& place = {});

/// Deterministic random weights of a usable scale; InputError where they exceed this machine's memory.
ModelWeights random_weights(const ModelConfig& config, DType type, std::uint64_t seed);

/// Views of the right sizes into address space that cannot be read: for simulating shapes.
ModelWeights shape_weights(const ModelConfig& config, DType type);

}  // namespace tandem
