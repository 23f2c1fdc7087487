// Elementwise kernels.
#pragma once

#include <cstddef>
#include <cstdint>

#include "engine/device/cuda/runtime.h"  // CudaStream
#include "engine/kernels/tensor.h"

namespace tandem {

/// out = gate * sigmoid(gate) * up. out may be gate or up.
void swiglu(const float* gate /*[n]*/, const float* up /*[n]*/, float* out /*[n]*/, std::size_t n);

/// x += y.
void add(float* x /*[n]*/, const float* y /*[n]*/, std::size_t n);

/// On the GPU, rounded to out_type. Rows of gate and up lie in_stride floats apart, for example as the halves of the
/// rows of one product. Device memory.
void swiglu_cuda(const float* gate /*[n][d]*/, const float* up /*[n][d]*/, std::size_t in_stride, void* out /*[n][d]*/,
                 DType out_type, std::uint32_t n, std::uint32_t d, CudaStream stream);

}  // namespace tandem
