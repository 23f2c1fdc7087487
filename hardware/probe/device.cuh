// Device code of the GPU sections: how a kernel is started, the device's clock, and what kernels share. Another
// compiler than nvcc gets the tests' emulated GPU.
#pragma once

#ifdef __CUDACC__
#include "hardware/probe/cuda_common.h"

namespace tandem::probe {

/// Through a pointer, with arguments converted here, as the engine launches. ProbeError "CUDA failed while `what`:
/// ...".
template <class... Parameters, class... Arguments>
void launch(const char* what, void (*kernel)(Parameters...), unsigned blocks, unsigned threads, cudaStream_t stream,
            const Arguments&... arguments) {
  kernel<<<blocks, threads, 0, stream>>>(static_cast<Parameters>(arguments)...);
  cuda_check(cudaGetLastError(), what);
}

__device__ inline unsigned long long nanoseconds_now() {
  unsigned long long now = 0;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
}

}  // namespace tandem::probe
#else
#include "tests/hardware/emulated_gpu/device.cuh"
#endif

namespace tandem::probe {

/// Spins until `value` stands in *flag, in signed cyclic order, or for `limit` nanoseconds. Whether it came.
__device__ inline bool came_within(unsigned long long limit, const volatile unsigned* flag, unsigned value) {
  const unsigned long long begin = nanoseconds_now();
  while (static_cast<int>(*flag - value) < 0) {
    if (nanoseconds_now() - begin > limit) return false;
  }
  return true;
}

}  // namespace tandem::probe
