// Rows of the embedding table.
#pragma once

#include <cstdint>

#include "engine/device/cuda/runtime.h"  // CudaStream
#include "engine/kernels/tensor.h"

namespace tandem {

/// out[i] = table[tokens[i]]. Every token lies in [0, table.rows).
void embed(const MatrixView& table /*[vocab][hidden]*/, const std::int32_t* tokens /*[n]*/, float* out /*[n][hidden]*/,
           std::uint32_t n);

/// On the GPU, everything in device memory. A token outside the table makes a row of NaN.
void embed_cuda(const MatrixView& table /*[vocab][hidden]*/, const std::int32_t* tokens /*[n]*/,
                float* out /*[n][hidden]*/, std::uint32_t n, CudaStream stream);

}  // namespace tandem
