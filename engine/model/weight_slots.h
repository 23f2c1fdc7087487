// The tensors of a model: their names in files, their shapes, and where their views go.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/model/weights.h"

namespace tandem {

struct WeightSlot {
  std::string name;  // of the tensor in the file
  MatrixView* view;
  std::uint32_t rows, cols;  // rows == 0: a vector of cols
  bool is_bias = false;      // kept in memory as f32
};

/// Tensor names of Llama, Qwen2 (which adds biases) and Qwen3 (q_norm and k_norm), and the shapes they must have.
/// `weights.layers` has its final size.
std::vector<WeightSlot> weight_slots(const ModelConfig& config, ModelWeights& weights);

}  // namespace tandem
