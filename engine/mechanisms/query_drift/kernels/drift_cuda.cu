// A block of threads per KV head.
#include "engine/kernels/cuda/launch.cuh"
#include "engine/mechanisms/query_drift/kernels/drift.h"

namespace tandem::gpu {

constexpr unsigned kDriftThreads = 128;

__global__ void __launch_bounds__(kDriftThreads)
    part_by_drift_kernel(const __grid_constant__ LaunchArray<HeadDrift> heads, std::uint32_t group, std::uint32_t dim) {
  TANDEM_SHARED(float, scratch, kWarp);
  const HeadDrift head = heads[blockIdx.x];
  float sum = 0.0f;
  for (std::uint32_t g = 0; head.first == 0 && g < group; ++g) {
    float ab = 0.0f, aa = 0.0f, bb = 0.0f;
    for (std::uint32_t d = threadIdx.x; d < dim; d += kDriftThreads) {
      const float a = head.query[std::size_t{g} * dim + d], b = head.previous[std::size_t{g} * dim + d];
      ab = fmaf(a, b, ab);
      aa = fmaf(a, a, aa);
      bb = fmaf(b, b, bb);
    }
    ab = block_sum(ab, scratch);
    aa = block_sum(aa, scratch);
    bb = block_sum(bb, scratch);
    if (aa > 0.0f && bb > 0.0f) sum += ab / sqrtf(aa * bb);
  }
  const bool urgent = head.first != 0 || !(sum / static_cast<float>(group) >= head.least);
  std::uint32_t* const to = urgent ? head.now : head.later;
  const std::uint32_t count = head.missing[0];
  for (std::uint32_t i = threadIdx.x; i <= count; i += kDriftThreads) to[i] = head.missing[i];
  if (threadIdx.x == 0) (urgent ? head.later : head.now)[0] = 0;
  for (std::uint32_t i = threadIdx.x; i < group * dim; i += kDriftThreads) head.previous[i] = head.query[i];
}

}  // namespace tandem::gpu

namespace tandem {
using namespace gpu;

void part_by_drift_cuda(const LaunchArray<HeadDrift>& heads, std::uint32_t count, std::uint32_t group,
                        std::uint32_t dim, CudaStream stream) {
  launch(stream, part_by_drift_kernel, count, kDriftThreads, 0, heads, group, dim);
}

}  // namespace tandem
