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

/// Prefill: many rows, bound by arithmetic; OpenBLAS over fixed blocks of output columns. Results do not depend on the
/// number of threads, but the bits of a row may depend on n.
void linear_prefill(ThreadPool& pool, const float* x /*[n][in]*/, const MatrixView& w /*[out][in]*/,
                    const float* bias /*[out] or nullptr*/, float* y /*[n][out]*/, std::uint32_t n);

/// The oracle: float64 accumulation in index order.
void linear_reference(const float* x /*[n][in]*/, const MatrixView& w /*[out][in]*/,
                      const float* bias /*[out] or nullptr*/, float* y /*[n][out]*/, std::uint32_t n);

}  // namespace tandem
