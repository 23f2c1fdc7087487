// Conversions between float and the 16-bit stored types.
#pragma once

#include <cstddef>
#include <cstdint>

#include "engine/device/cuda/runtime.h"  // CudaStream
#include "engine/kernels/tensor.h"

namespace tandem {

float bf16_to_float(std::uint16_t bits);
float f16_to_float(std::uint16_t bits);
std::uint16_t float_to_bf16(float value);  // nearest, ties to even; NaN stays NaN
std::uint16_t float_to_f16(float value);   // nearest, ties to even; beyond 65504 -> inf; NaN stays NaN

/// Element i of an array of `type`; `data` may be unaligned.
float load_element(const void* data, DType type, std::size_t i);

/// out[0..n) = elements first .. first + n - 1 of an array of `type`, exactly.
void to_f32(const void* data, DType type, std::size_t first, std::size_t n, float* out);

/// n elements of an array of `type`, rounded as above. `out` may be unaligned.
void from_f32(const float* x, DType type, std::size_t n, void* out);

/// On the GPU, from any type to any, rounded as above. Device memory, aligned to its elements.
void convert_cuda(const void* in, DType in_type, void* out, DType out_type, std::size_t n, CudaStream stream);

}  // namespace tandem
