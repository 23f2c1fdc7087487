// How far queries have moved since the step before, and whose missing blocks that makes urgent (FreeKV, arXiv
// 2505.13109, section 3). Exact on every device but for the cosines, which are sums of floats.
#pragma once

#include <cstdint>

#include "engine/device/cuda/launch_array.h"
#include "engine/device/cuda/runtime.h"  // CudaStream

namespace tandem {

/// Of one KV head. Lists of blocks are a count, then numbers in ascending order.
struct HeadDrift {
  const float* query = nullptr;                    // [group][D]
  float* previous = nullptr;                       // [group][D], becomes the query
  const std::uint32_t* missing = nullptr;          // [1 + its count]
  std::uint32_t *now = nullptr, *later = nullptr;  // [1 + missing[0]] each: one gets what is missing, the other nothing
  float least = 0;  // the mean over the group of cos(query, previous) below which it is now; above 1: always
};

/// Mean cosine of a group's queries to those of before. A query of nothing but zeros is like none.
float mean_cosine(const float* a /*[group][dim]*/, const float* b /*[group][dim]*/, std::uint32_t group,
                  std::uint32_t dim);
void part_by_drift(const HeadDrift& head, std::uint32_t group, std::uint32_t dim);
/// The same on the GPU, for many heads at once. All that they name is device memory.
void part_by_drift_cuda(const LaunchArray<HeadDrift>& heads /*[count]*/, std::uint32_t count, std::uint32_t group,
                        std::uint32_t dim, CudaStream stream);

}  // namespace tandem
