// y = x W^T + bias.
#pragma once

#include <cstdint>

#include "engine/kernels/tensor.h"
#include "engine/kernels/thread_pool.h"

namespace tandem {

/// Decoding: few rows, bound by reading the weights. Each weight row is read from memory once for all n rows. The bits
/// of a row of y depend on that row of x alone: not on n, on the other rows, or on the number of threads.
/// Shapes: out = w.rows, in = w.cols. y must not overlap x.
void linear(ThreadPool& pool, const float* x /*[n][in]*/, const MatrixView& w /*[out][in]*/,
            const float* bias /*[out] or nullptr*/, float* y /*[n][out]*/, std::uint32_t n);

/// Prefill: many rows, bound by arithmetic. The bits of a row depend on that row of x alone, as above, but may differ
/// from those of linear(). y must not overlap x.
/// Not OpenBLAS: Debian's serial build (0.3.21) hands one buffer to two threads that call it at once and returns wrong
/// products (up to 4 % of 16 x 64 x 64 products with four callers). Speed on one Zen 5 core, 512 x 2048 x 4096 in f32:
/// 170 GFLOP/s here; OpenBLAS 134 with the Haswell kernels that it chooses there, 237 with its SkylakeX kernels.
void linear_prefill(ThreadPool& pool, const float* x /*[n][in]*/, const MatrixView& w /*[out][in]*/,
                    const float* bias /*[out] or nullptr*/, float* y /*[n][out]*/, std::uint32_t n);

/// Prefill with x rounded to bf16 (nearest, ties to even) and products accumulated in f32: for models stored in bf16,
/// whose reference implementations round so too. Relative to linear_prefill() each element of x is off by up to 2^-9 of
/// itself. The bits of a row depend on that row of x alone; between instruction sets the results differ by the rounding
/// of the sums, and numbers below 2^-126 may count as 0. w of any type; only bf16 on a CPU with AVX512_BF16 is faster
/// than linear_prefill(). y must not overlap x.
void linear_prefill_bf16(ThreadPool& pool, const float* x /*[n][in]*/, const MatrixView& w /*[out][in]*/,
                         const float* bias /*[out] or nullptr*/, float* y /*[n][out]*/, std::uint32_t n);

/// The oracle: float64 accumulation in index order.
void linear_reference(const float* x /*[n][in]*/, const MatrixView& w /*[out][in]*/,
                      const float* bias /*[out] or nullptr*/, float* y /*[n][out]*/, std::uint32_t n);

}  // namespace tandem
