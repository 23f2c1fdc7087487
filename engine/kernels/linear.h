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

/// The oracle: float64 accumulation in index order.
void linear_reference(const float* x /*[n][in]*/, const MatrixView& w /*[out][in]*/,
                      const float* bias /*[out] or nullptr*/, float* y /*[n][out]*/, std::uint32_t n);

}  // namespace tandem
