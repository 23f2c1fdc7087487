// Joins partial attention results over disjoint sets of tokens (Dao et al. 2023, Flash-Decoding; Ye et al. 2025,
// FlashInfer §2.2).
#pragma once

#include <cstdint>

#include "engine/device/cuda/launch_array.h"
#include "engine/device/cuda/runtime.h"  // CudaStream

namespace tandem {

/// out = sum_i exp(lse_i - lse) o_i with lse = ln sum_i exp(lse_i), row by row, parts in the order given. A part with
/// lse = -infinity is ignored whatever its o; where all are, out = 0 and out_lse = -infinity. Where one part is left,
/// out and out_lse are that part's, bit for bit. out may be one of the inputs' o, and out_lse one of the inputs' lse.
void merge_partials(const float* const* o /*[parts] -> [rows][D]*/, const float* const* lse /*[parts] -> [rows]*/,
                    std::uint32_t parts, std::uint32_t rows, std::uint32_t dim, float* out /*[rows][D]*/,
                    float* out_lse /*[rows] or nullptr*/);

/// Rows for which the last part counts: of every `per_bit` rows together one bit, the lowest of the first word first.
/// per_bit 0: all.
struct LastPart {
  LaunchArray<std::uint32_t> bits;
  std::uint32_t per_bit = 0;
};

/// The same on the GPU. The parts are device memory or pinned: a partial result that the CPU wrote is read over the
/// link where it lies, each number once where there are up to 512 parts. Where the last part does not count it is not
/// read.
void merge_partials_cuda(const LaunchArray<const float*>& o /*[parts] -> [rows][D]*/,
                         const LaunchArray<const float*>& lse /*[parts] -> [rows]*/, std::uint32_t parts,
                         std::uint32_t rows, std::uint32_t dim, float* out /*[rows][D]*/,
                         float* out_lse /*[rows] or nullptr*/, CudaStream stream, const LastPart& last = {});

}  // namespace tandem
