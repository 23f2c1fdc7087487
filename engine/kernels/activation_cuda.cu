// Elementwise kernels: four neighbours per thread and step.
#include "engine/kernels/activation.h"
#include "engine/kernels/convert.h"
#include "engine/kernels/cuda/launch.cuh"
#include "engine/kernels/embedding.h"

namespace tandem::gpu {

__device__ __forceinline__ float silu(float x) {
  return x / (1.0f + __expf(-x));
}

/// gridDim.y rows; rows of gate and up lie in_stride floats apart.
template <bool fours>
__global__ void __launch_bounds__(256) swiglu_kernel(const float* gate, const float* up, std::size_t in_stride,
                                                     void* out, DType out_type, std::uint32_t d) {
  const std::size_t in = blockIdx.y * in_stride, to = std::size_t{blockIdx.y} * d;
  if constexpr (fours) {
    const std::uint32_t i = 4 * (blockIdx.x * blockDim.x + threadIdx.x);
    if (i >= d) return;
    const float4 g = load_vector<float4>(gate + in + i), u = load_vector<float4>(up + in + i);
    store_4(out, out_type, to + i, make_float4(silu(g.x) * u.x, silu(g.y) * u.y, silu(g.z) * u.z, silu(g.w) * u.w));
  } else {
    const std::uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < d) store_1(out, out_type, to + i, silu(gate[in + i]) * up[in + i]);
  }
}

/// Four elements of any type to any other.
__global__ void __launch_bounds__(256)
    convert_kernel(const void* in, DType in_type, void* out, DType out_type, std::size_t n, bool fours) {
  const std::size_t i = 4 * (std::size_t{blockIdx.x} * blockDim.x + threadIdx.x);
  if (fours && i + 4 <= n) {
    store_4(out, out_type, i, load_4(in, in_type, i));
    return;
  }
  for (std::size_t j = i; j < i + 4 && j < n; ++j) store_1(out, out_type, j, load_1(in, in_type, j));
}

/// A block per token. A token outside the table makes a row of NaN: what is wrong shows, and nothing is read from where
/// nothing is.
__global__ void __launch_bounds__(256)
    embed_kernel(const void* table, DType type, std::uint32_t rows, std::uint32_t cols, const std::int32_t* tokens,
                 float* out, bool fours) {
  const std::int32_t token = tokens[blockIdx.x];
  const bool known = token >= 0 && static_cast<std::uint32_t>(token) < rows;
  const std::size_t from = known ? static_cast<std::size_t>(token) * cols : 0, to = std::size_t{blockIdx.x} * cols;
  const float nothing = __uint_as_float(0x7fc00000u);
  if (fours) {
    for (std::uint32_t i = 4 * threadIdx.x; i < cols; i += 4 * blockDim.x)
      store_vector(out + to + i,
                   known ? load_4(table, type, from + i) : make_float4(nothing, nothing, nothing, nothing));
  } else {
    for (std::uint32_t i = threadIdx.x; i < cols; i += blockDim.x)
      out[to + i] = known ? load_1(table, type, from + i) : nothing;
  }
}

}  // namespace tandem::gpu

namespace tandem {
using namespace gpu;

void swiglu_cuda(const float* gate, const float* up, std::size_t in_stride, void* out, DType out_type, std::uint32_t n,
                 std::uint32_t d, CudaStream stream) {
  const bool fours =
      in_fours(gate, DType::f32, d) && in_fours(up, DType::f32, d) && in_stride % 4 == 0 && in_fours(out, out_type, d);
  // A grid has at most 65535 rows.
  for (std::uint32_t row = 0; row < n; row += kMaxGridRows) {
    const std::uint32_t rows = n - row < kMaxGridRows ? n - row : kMaxGridRows;
    launch(stream, fours ? swiglu_kernel<true> : swiglu_kernel<false>, dim3(blocks_for(d, fours ? 1024 : 256), rows),
           256, 0, gate + row * in_stride, up + row * in_stride, in_stride,
           static_cast<char*>(out) + std::size_t{row} * d * size_of(out_type), out_type, d);
  }
}

void convert_cuda(const void* in, DType in_type, void* out, DType out_type, std::size_t n, CudaStream stream) {
  launch(stream, convert_kernel, blocks_for(n, 1024), 256, 0, in, in_type, out, out_type, n,
         in_fours(in, in_type, 0) && in_fours(out, out_type, 0));
}

void embed_cuda(const MatrixView& table, const std::int32_t* tokens, float* out, std::uint32_t n, CudaStream stream) {
  const bool fours = in_fours(table.data, table.type, table.cols) && in_fours(out, DType::f32, table.cols);
  launch(stream, embed_kernel, n, threads_for(table.cols, fours ? 4 : 1, 256), 0, table.data, table.type, table.rows,
         table.cols, tokens, out, fours);
}

}  // namespace tandem
