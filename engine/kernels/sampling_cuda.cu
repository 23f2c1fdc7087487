#include "engine/common/error.h"
#include "engine/kernels/cuda/launch.cuh"
#include "engine/kernels/sampling.h"
#include "engine/kernels/sampling_kernels.cuh"

namespace tandem {

void sample_tokens_cuda(const LaunchArray<SampleRow>& rows, std::uint32_t count, std::uint32_t vocab,
                        CudaStream stream) {
  TANDEM_CHECK(vocab >= 1, "An empty vocabulary has no token to draw.");
  gpu::Launcher launch(stream);
  launch(gpu::sample_tokens_kernel, count, gpu::kSelectThreads, 0, rows, vocab);
}

}  // namespace tandem
