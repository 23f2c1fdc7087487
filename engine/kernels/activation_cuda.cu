#include "engine/kernels/activation.h"
#include "engine/kernels/activation_kernels.cuh"
#include "engine/kernels/convert.h"
#include "engine/kernels/embedding.h"

namespace tandem {

void swiglu_cuda(const float* gate, const float* up, std::size_t in_stride, void* out, DType out_type, std::uint32_t n,
                 std::uint32_t d, CudaStream stream) {
  const bool fours = gpu::in_fours(gate, DType::f32, d) && gpu::in_fours(up, DType::f32, d) && in_stride % 4 == 0 &&
                     gpu::in_fours(out, out_type, d);
  gpu::Launcher launch(stream);
  // A grid has at most 65535 rows.
  for (std::uint32_t row = 0; row < n; row += gpu::kMaxGridRows) {
    const std::uint32_t rows = n - row < gpu::kMaxGridRows ? n - row : gpu::kMaxGridRows;
    launch(fours ? gpu::swiglu_kernel<true> : gpu::swiglu_kernel<false>,
           dim3(gpu::blocks_for(d, fours ? 1024 : 256), rows), 256, 0, gate + row * in_stride, up + row * in_stride,
           in_stride, static_cast<char*>(out) + std::size_t{row} * d * size_of(out_type), out_type, d);
  }
}

void convert_cuda(const void* in, DType in_type, void* out, DType out_type, std::size_t n, CudaStream stream) {
  gpu::Launcher launch(stream);
  launch(gpu::convert_kernel, gpu::blocks_for(n, 1024), 256, 0, in, in_type, out, out_type, n,
         gpu::in_fours(in, in_type, 0) && gpu::in_fours(out, out_type, 0));
}

void embed_cuda(const MatrixView& table, const std::int32_t* tokens, float* out, std::uint32_t n, CudaStream stream) {
  const bool fours = gpu::in_fours(table.data, table.type, table.cols) && gpu::in_fours(out, DType::f32, table.cols);
  gpu::Launcher launch(stream);
  launch(gpu::embed_kernel, n, gpu::threads_for(table.cols, fours ? 4 : 1, 256), 0, table.data, table.type, table.rows,
         table.cols, tokens, out, fours);
}

}  // namespace tandem
