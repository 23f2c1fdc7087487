// How far queries have moved since the step before, and whose missing blocks that makes urgent (FreeKV, arXiv
// 2505.13109, section 3). Cosines are sums of floats, which devices
// round differently; all else is exact.
#pragma once

#include <cstdint>

#include "engine/device/cuda/launch_array.h"
#include "engine/device/cuda/runtime.h"  // CudaStream

namespace tandem {

/// Input and output for one KV head. Lists of blocks are a count, then numbers in ascending order.
struct HeadDrift {
  const float* query = nullptr;            // [group][D]
  float* previous = nullptr;               // [group][D], becomes the query; not read where `first`
  const std::uint32_t* missing = nullptr;  // [1 + its count]
  std::uint32_t* now = nullptr;            // [1 + missing[0]] what is missing, if the head is urgent; else nothing
  std::uint32_t* later = nullptr;          // the other way round
  float least = 0;                         // a head is urgent unless the mean cosine over its group is at least this
  std::uint32_t first = 0;                 // 1: no query came before, and the head is urgent
};

/// Mean cosine of a group's queries to those of before. A query of nothing but zeros is like none.
float mean_cosine(const float* a /*[group][dim]*/, const float* b /*[group][dim]*/, std::uint32_t group,
                  std::uint32_t dim);
void part_by_drift(const HeadDrift& head, std::uint32_t group, std::uint32_t dim);
/// The same on the GPU, for many heads at once. All that they name is device memory.
void part_by_drift_cuda(const LaunchArray<HeadDrift>& heads /*[count]*/, std::uint32_t count, std::uint32_t group,
                        std::uint32_t dim, CudaStream stream);

}  // namespace tandem
