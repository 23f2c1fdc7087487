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
  double scale = 1;                       // of the rotated vector (YaRN)
};

/// Rotates each head of each row in place by the angles position * inverse_frequency. The angle is computed in float64
/// and is right to 1e-6 at any position. transformers multiplies in float32: with D = 128 its angle differs by up to
/// 5.1e-4 rad below 8K tokens, 8.2e-3 below 128K and 6.6e-2 below 1M (measured for theta 1e4, 5e5 and 1e6). So logits
/// agree to 1e-3 over short prompts only; over long ones this is the more exact of the two.
void rope(float* x /*[n][heads][D]*/, const std::uint32_t* positions /*[n]*/, const RopeTable& table, std::uint32_t n,
          std::uint32_t heads);

}  // namespace tandem
