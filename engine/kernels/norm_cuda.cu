#include "engine/common/error.h"
#include "engine/kernels/norm.h"
#include "engine/kernels/norm_kernels.cuh"

namespace tandem {

void rms_norm_cuda(const float* x, const MatrixView& weight, float eps, void* y, DType y_type, std::uint32_t n,
                   std::uint32_t d, CudaStream stream) {
  TANDEM_CHECK(weight.rows == 1 && weight.cols == d, "The norm weight is {}x{} for rows of {}.", weight.rows,
               weight.cols, d);
  const bool fours =
      gpu::in_fours(x, DType::f32, d) && gpu::in_fours(weight.data, weight.type, d) && gpu::in_fours(y, y_type, d);
  gpu::Launcher launch(stream);
  launch(fours ? gpu::rms_norm_kernel<true> : gpu::rms_norm_kernel<false>, n, gpu::threads_for(d, fours ? 8 : 2), 0, x,
         weight.data, weight.type, eps, y, y_type, d);
}

}  // namespace tandem
