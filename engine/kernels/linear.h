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
/// from those of linear(). Not OpenBLAS: Debian's serial build (0.3.21) hands the same buffer to two threads that call
/// it at once and returns wrong products (1 to 4 % of 16 x 64 x 64 products with four callers), and on Zen 5 it uses
/// kernels without AVX-512.
void linear_prefill(ThreadPool& pool, const float* x /*[n][in]*/, const MatrixView& w /*[out][in]*/,
                    const float* bias /*[out] or nullptr*/, float* y /*[n][out]*/, std::uint32_t n);

/// The oracle: float64 accumulation in index order.
void linear_reference(const float* x /*[n][in]*/, const MatrixView& w /*[out][in]*/,
                      const float* bias /*[out] or nullptr*/, float* y /*[n][out]*/, std::uint32_t n);

}  // namespace tandem
