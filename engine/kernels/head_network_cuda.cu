#include "engine/common/error.h"
#include "engine/kernels/cuda/launch.cuh"
#include "engine/kernels/head_features.h"
#include "engine/kernels/head_features_kernels.cuh"
#include "engine/kernels/head_network.h"
#include "engine/kernels/head_network_kernels.cuh"

namespace tandem {
namespace {

template <unsigned kRows>
void launch_network(gpu::Launcher& launch, const HeadNetwork& network, const float* features, std::uint32_t n,
                    float* out) {
  const std::size_t shared = std::size_t{2} * network.widest * kRows * sizeof(float);
  if (shared + 1024 > launch.max_shared())
    throw_input_error(
        "A predictor with layers of {} does not fit into the {} bytes of shared memory of the GPU's blocks.",
        network.widest, launch.max_shared());
  launch(gpu::predict_heads_kernel<kRows>, gpu::blocks_for(n, kRows),
         gpu::threads_for(network.widest, 1, gpu::kMostNetworkThreads), shared, network, features, n, out);
}

}  // namespace

void step_features_cuda(const StepFeatures* steps, std::uint32_t n, const HeadShape& shape, CudaStream stream) {
  gpu::Launcher launch(stream);
  launch(gpu::step_features_kernel, n, gpu::kFeatureThreads, 0, steps, shape);
}

void predict_heads_cuda(const HeadNetwork& network, const float* features, std::uint32_t n, float* out,
                        CudaStream stream) {
  TANDEM_CHECK(network.count >= 1, "A network without layers.");
  gpu::Launcher launch(stream);
  // 16 rows per block only where that leaves at least half of the multiprocessors with work, and where they fit.
  const bool many = n > launch.multiprocessors() * 8 &&
                    std::size_t{2} * network.widest * 16 * sizeof(float) + 1024 <= launch.max_shared();
  many ? launch_network<16>(launch, network, features, n, out) : launch_network<4>(launch, network, features, n, out);
}

}  // namespace tandem
