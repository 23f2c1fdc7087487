// Rotary position embedding, the rotate-half convention of Llama and Qwen: dimension i < D/2 is paired with i + D/2.
#pragma once

#include <cstdint>
#include <vector>

namespace tandem {

struct RopeTable {
  /// head_dim is even. inverse_frequency[i] = theta^(-2i / head_dim).
  RopeTable(std::uint32_t head_dim, double theta);
  std::uint32_t head_dim;
  std::vector<double> inverse_frequency;  // [head_dim / 2]
};

/// Rotates each head of each row in place by the angles position * inverse_frequency. The angle is computed in float64,
/// so it is right to 1e-9 at a million tokens; transformers multiplies in float32, whose angle at 1M is off by up to
/// 0.03 rad in the fastest dimension pairs. Below 8K tokens both agree to 2.5e-4 rad.
void rope(float* x /*[n][heads][D]*/, const std::uint32_t* positions /*[n]*/, const RopeTable& table, std::uint32_t n,
          std::uint32_t heads);

void rope_reference(float* x /*[n][heads][D]*/, const std::uint32_t* positions /*[n]*/, const RopeTable& table,
                    std::uint32_t n, std::uint32_t heads);

}  // namespace tandem
