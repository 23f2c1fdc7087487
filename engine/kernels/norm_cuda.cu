// RMSNorm.
#include "engine/common/error.h"
#include "engine/kernels/cuda/launch.cuh"
#include "engine/kernels/norm.h"

namespace tandem::gpu {

/// A block per row, which each thread reads a second time from the first-level cache. x and y may be the same.
template <bool fours>
__global__ void __launch_bounds__(1024) rms_norm_kernel(const float* x, const void* weight, DType weight_type,
                                                        float eps, void* y, DType y_type, std::uint32_t d) {
  TANDEM_SHARED(float, scratch, kWarp);
  const std::size_t row = std::size_t{blockIdx.x} * d;
  float squares = 0;
  if constexpr (fours) {
    for (std::uint32_t i = 4 * threadIdx.x; i < d; i += 4 * blockDim.x) {
      const float4 v = load_vector<float4>(x + row + i);
      squares += v.x * v.x + v.y * v.y + v.z * v.z + v.w * v.w;
    }
  } else {
    for (std::uint32_t i = threadIdx.x; i < d; i += blockDim.x) squares += x[row + i] * x[row + i];
  }
  const float scale = 1.0f / sqrtf(block_sum(squares, scratch) / static_cast<float>(d) + eps);
  if constexpr (fours) {
    for (std::uint32_t i = 4 * threadIdx.x; i < d; i += 4 * blockDim.x) {
      const float4 v = load_vector<float4>(x + row + i), w = load_4(weight, weight_type, i);
      store_4(y, y_type, row + i,
              make_float4(v.x * scale * w.x, v.y * scale * w.y, v.z * scale * w.z, v.w * scale * w.w));
    }
  } else {
    for (std::uint32_t i = threadIdx.x; i < d; i += blockDim.x)
      store_1(y, y_type, row + i, x[row + i] * scale * load_1(weight, weight_type, i));
  }
}

}  // namespace tandem::gpu

namespace tandem {
using namespace gpu;

void rms_norm_cuda(const float* x, const MatrixView& weight, float eps, void* y, DType y_type, std::uint32_t n,
                   std::uint32_t d, CudaStream stream) {
  TANDEM_CHECK(weight.rows == 1 && weight.cols == d, "The norm weight is {}x{} for rows of {}.", weight.rows,
               weight.cols, d);
  const bool fours = in_fours(x, DType::f32, d) && in_fours(weight.data, weight.type, d) && in_fours(y, y_type, d);
  launch(stream, fours ? rms_norm_kernel<true> : rms_norm_kernel<false>, n, threads_for(d, fours ? 8 : 2), 0, x,
         weight.data, weight.type, eps, y, y_type, d);
}

}  // namespace tandem
