// y = x W^T + bias.
#pragma once

#include <cstdint>

#include "engine/kernels/tensor.h"
#include "engine/kernels/thread_pool.h"

namespace tandem {

/// Decoding: few rows, bound by reading the weights. Each weight row is read from memory once for up to eight rows of x
/// (four before AVX-512). The bits of a row of y depend on that row of x alone: not on n, on the other rows, or on the
/// number of threads. Shapes: out = w.rows, in = w.cols. y must not overlap x.
///
/// Each task reads four parts of its weight rows side by side, each as one long stream. Measured before weights were
/// fetched to the second-level cache first (linear_cpu.cc has what that gained on Zen 4): on one Zen 5 core with bf16
/// weights and in = 896 to 14336 that is 0.98 to 1.0 of a pure read for n = 1, 0.88 to 1.06 for n = 2, 0.70 to 1.0 for
/// n = 4, and 0.53 to 0.60 for n = 8, where multiply-adds alone would allow 0.87. What lost, for n = 1 and in = 14336:
/// four neighbouring rows 0.74 to 0.82, one row at a time 0.59, slices of one row 0.56 to 0.75.
void linear(ThreadPool& pool, const float* x /*[n][in]*/, const MatrixView& w /*[out][in]*/,
            const float* bias /*[out] or nullptr*/, float* y /*[n][out]*/, std::uint32_t n);

/// Prefill: many rows, bound by arithmetic. The bits of a row depend on that row of x alone, as above, but may differ
/// from those of linear(). y must not overlap x.
/// Not OpenBLAS (0.3.21): there the bits of a row depend on how many rows there are. 720 products were computed once
/// whole and once in part. The part had other bits in 168 of them with the SkylakeX and Cooperlake kernels, and in 690
/// with Haswell and Zen. Our rate divided by OpenBLAS's, 512 x 2048 x 4096 in f32, one thread:
///   Zen 5   1.2 to its Haswell kernels, which it chooses there; 0.70 to SkylakeX
///   Zen 4   0.95 to its Cooperlake kernels, which it chooses there; 0.93 to SkylakeX and Zen, 0.90 to Haswell
void linear_prefill(ThreadPool& pool, const float* x /*[n][in]*/, const MatrixView& w /*[out][in]*/,
                    const float* bias /*[out] or nullptr*/, float* y /*[n][out]*/, std::uint32_t n);

/// Prefill with x rounded to bf16 (nearest, ties to even) and products accumulated in f32: for models stored in bf16,
/// whose reference implementations round so too. Relative to linear_prefill() each element of x is off by up to 2^-8 of
/// itself. The bits of a row depend on that row of x alone; between instruction sets the results differ by the rounding
/// of the sums, and numbers below 2^-126 may count as 0. w of any type; only bf16 on a CPU with AVX512_BF16 is faster
/// than linear_prefill(). y must not overlap x.
///
/// The weights are packed anew in each call, which takes about 1.5 % of the time of 512 rows where they are in the
/// second-level cache; packed copies at load would double the memory of the weights. Speed on one Zen 5 core, the
/// rounding of x included, n = 512 (out x in): 4864 x 896 396 GFLOP/s, 896 x 4864 378, 14336 x 4096 398; PyTorch 2.15
/// in turns with it 381, 372, 385, and oneDNN 2.6.3 0.93 to 1.08 times as long, both with x already rounded. Not
/// oneDNN, then: no faster, and it brings OpenMP threads and OpenCL. Not OpenBLAS: Debian's build has no bf16 product.
void linear_prefill_bf16(ThreadPool& pool, const float* x /*[n][in]*/, const MatrixView& w /*[out][in]*/,
                         const float* bias /*[out] or nullptr*/, float* y /*[n][out]*/, std::uint32_t n);

}  // namespace tandem
