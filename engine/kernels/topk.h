// Selection of the k best blocks.
#pragma once

#include <cstdint>

#include "engine/kernels/cuda/runtime.h"  // CudaStream

namespace tandem {

/// Indices of the k largest scores in ascending index order; ties go to the lower index. k >= n selects all n. Linear
/// time on average. Scores must not be NaN; infinities are fine.
void top_k(const float* scores /*[n]*/, std::uint32_t n, std::uint32_t k, std::uint32_t* out /*[min(k, n)]*/);

/// One selection of a batch on the GPU. Device memory.
struct TopKRow {
  const float* scores = nullptr;  // [group][n]
  std::uint32_t n = 0, k = 0;
  std::uint32_t* out =
      nullptr;  // [1 + min(k, n)]: the count, then indices in ascending order (a BlockSelection's list)
};
/// The same as top_k for every row, exactly. With group > 1 the score of an index is the largest of its `group` scores:
/// what a KV head selects for its query heads.
void top_k_cuda(const TopKRow* rows /*[count]*/, std::uint32_t count, std::uint32_t group, CudaStream stream);

}  // namespace tandem
