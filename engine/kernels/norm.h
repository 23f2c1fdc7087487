// Root-mean-square normalisation.
#pragma once

#include <cstddef>
#include <cstdint>

#include "engine/device/cuda/runtime.h"  // CudaStream
#include "engine/kernels/tensor.h"

namespace tandem {

/// y = x / sqrt(mean(x^2) + eps) * weight, for each row. y may be x. QK-norm is the same call with n * heads rows of
/// head_dim.
void rms_norm(const float* x /*[n][d]*/, const MatrixView& weight /*[1][d]*/, float eps, float* y /*[n][d]*/,
              std::uint32_t n, std::uint32_t d);

/// On the GPU, rounded to y_type. All pointers are device memory. y may be x with y_type f32. Rows that are aligned for
/// it are read four elements at a time. Nothing is added to x before: the product that the sum comes from does that
/// (LinearCuda::add), which saves a kernel in each layer and the sum's way through memory.
void rms_norm_cuda(const float* x /*[n][d]*/, const MatrixView& weight /*[1][d]*/, float eps, void* y /*[n][d]*/,
                   DType y_type, std::uint32_t n, std::uint32_t d, CudaStream stream);

}  // namespace tandem
