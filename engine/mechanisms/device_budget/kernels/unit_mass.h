// Attention mass of runs of tokens, decayed from step to step (article on long-context serving, "Eviction policies").
// Sums are of floats, which devices round differently.
#pragma once

#include <cstddef>
#include <cstdint>

#include "engine/device/cuda/launch_array.h"
#include "engine/device/cuda/runtime.h"  // CudaStream

namespace tandem {

/// One row's scores in one layer, and the mass that they add to.
struct MassRow {
  const float* scores = nullptr;  // [head][stride], before the softmax
  const float* lse = nullptr;     // [head]; -infinity: no weights
  float* mass = nullptr;          // [units]
  std::size_t stride = 0;
  std::uint32_t tokens = 0;  // token 0 is the first of unit 0
};

/// mass[u] = keep * mass[u] + share * sum over heads and the unit's tokens of exp(score - lse).
void add_unit_mass(const MassRow& row, std::uint32_t heads, std::uint32_t unit_tokens, float keep, float share);
/// The same on the GPU, for many rows at once. All that they name is device memory. most_units: of any row.
void add_unit_mass_cuda(const LaunchArray<MassRow>& rows /*[count]*/, std::uint32_t count, std::uint32_t most_units,
                        std::uint32_t heads, std::uint32_t unit_tokens, float keep, float share, CudaStream stream);

}  // namespace tandem
