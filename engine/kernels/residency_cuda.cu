#include "engine/kernels/cuda/launch.cuh"
#include "engine/kernels/residency.h"
#include "engine/kernels/residency_kernels.cuh"

namespace tandem {

void split_residents_cuda(const LaunchArray<ResidentSplit>& lists, std::uint32_t count, CudaStream stream) {
  gpu::Launcher launch(stream);
  launch(gpu::split_residents_kernel, count, gpu::kResidencyThreads, 0, lists);
}

void swap_residents_cuda(const LaunchArray<ResidentSwap>& lists, std::uint32_t count, CudaStream stream) {
  gpu::Launcher launch(stream);
  launch(gpu::swap_residents_kernel, count, gpu::kResidencyThreads, 0, lists);
}

void pages_of_residents_cuda(const LaunchArray<ResidentPages>& lists, std::uint32_t count, std::uint32_t capacity,
                             PageEntry* entries, std::uint32_t* counts, CudaStream stream) {
  gpu::Launcher launch(stream);
  launch(gpu::pages_of_residents_kernel, count, gpu::kResidencyThreads, 0, lists, capacity, entries, counts);
}

}  // namespace tandem
