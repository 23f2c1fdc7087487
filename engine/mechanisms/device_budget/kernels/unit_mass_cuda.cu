// A block of threads per row and unit.
#include "engine/kernels/cuda/launch.cuh"
#include "engine/mechanisms/device_budget/kernels/unit_mass.h"

namespace tandem::gpu {

constexpr unsigned kMassThreads = 128;

__global__ void __launch_bounds__(kMassThreads)
    add_unit_mass_kernel(const __grid_constant__ LaunchArray<MassRow> rows, std::uint32_t heads,
                         std::uint32_t unit_tokens, float keep, float share) {
  TANDEM_SHARED(float, scratch, kWarp);
  const MassRow row = rows[blockIdx.y];
  const std::uint32_t first = blockIdx.x * unit_tokens;
  if (first >= row.tokens) return;
  const std::uint32_t count = min(row.tokens - first, unit_tokens);
  float sum = 0.0f;
  for (std::uint32_t i = threadIdx.x; i < heads * count; i += kMassThreads) {
    const std::uint32_t head = i / count;
    const float lse = row.lse[head];
    if (lse > -__builtin_huge_valf()) sum += expf(row.scores[head * row.stride + first + i % count] - lse);
  }
  sum = block_sum(sum, scratch);
  if (threadIdx.x == 0) row.mass[blockIdx.x] = keep * row.mass[blockIdx.x] + share * sum;
}

}  // namespace tandem::gpu

namespace tandem {
using namespace gpu;

void add_unit_mass_cuda(const LaunchArray<MassRow>& rows, std::uint32_t count, std::uint32_t most_units,
                        std::uint32_t heads, std::uint32_t unit_tokens, float keep, float share, CudaStream stream) {
  launch(stream, add_unit_mass_kernel, dim3(most_units, count), kMassThreads, 0, rows, heads, unit_tokens, keep, share);
}

}  // namespace tandem
