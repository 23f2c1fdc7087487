// How launch code starts a kernel, the same source under nvcc and emulated:
//
//   void foo_cuda(..., CudaStream stream) { gpu::launch(stream, foo_kernel<Bf16>, grid, block, shared_bytes, ...); }
//
// The tests compile foo_cuda.cu with an emulated Launcher, so that the choice of kernel and grid is tested too.
#pragma once

#include <cstddef>
#include <map>
#include <mutex>

#include "engine/common/error.h"
#include "engine/kernels/cuda/device.cuh"

namespace tandem::gpu {

/// A launch with more dynamic shared memory than this asks for it. Without asking a block has 48 KiB for its dynamic
/// and its static arrays together; no kernel with dynamic ones has 16 KiB of the others.
constexpr std::size_t kUnaskedShared = 32 * 1024;

/// The most shared memory that each kernel has asked for. Only ever more: a thread that asked for less between another
/// one's asking and its launch would have that launch refused.
class AskedShared {
 public:
  /// Calls ask() where the kernel has not asked for as much yet; what it throws leaves that as it was.
  template <class Ask>
  void at_least(const void* kernel, std::size_t bytes, const Ask& ask) {
    const std::lock_guard lock(mutex_);
    const auto asked = largest_.find(kernel);
    if (asked != largest_.end() && asked->second >= bytes) return;
    ask();
    largest_[kernel] = bytes;
  }

 private:
  std::mutex mutex_;
  std::map<const void*, std::size_t> largest_;
};

}  // namespace tandem::gpu

#ifdef __CUDACC__
#include "engine/device/cuda/check.cuh"
#include "engine/device/cuda/runtime.h"

namespace tandem::gpu {

class Launcher {
 public:
  explicit Launcher(CudaStream stream) : stream_(static_cast<cudaStream_t>(stream.handle)) {}

  /// Streaming multiprocessors of the current device.
  unsigned multiprocessors() const { return cuda_device().multiprocessors; }
  /// Bytes of shared memory that a block may have.
  std::size_t max_shared() const { return cuda_device().shared_bytes; }

  /// An empty grid launches nothing. Throws CudaError where the launch is refused.
  template <class... Parameters, class... Arguments>
  void operator()(void (*kernel)(Parameters...), dim3 grid, dim3 block, std::size_t dynamic_shared,
                  Arguments... arguments) {
    if (grid.x == 0 || grid.y == 0 || grid.z == 0) return;
    TANDEM_CHECK(grid.y <= kMaxGridRows && grid.z <= kMaxGridRows, "A grid of {} x {} x {} blocks.", grid.x, grid.y,
                 grid.z);
    if (dynamic_shared > kUnaskedShared) {
      const auto* const at = reinterpret_cast<const void*>(kernel);
      asked_shared().at_least(at, dynamic_shared, [&] {
        check_cuda(
            cudaFuncSetAttribute(at, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(dynamic_shared)),
            "asking for shared memory");
      });
    }
    kernel<<<grid, block, dynamic_shared, stream_>>>(static_cast<Parameters>(arguments)...);
    check_cuda(cudaGetLastError(), "launching a kernel");
  }

 private:
  /// Of the process: it uses one device.
  static AskedShared& asked_shared() {
    static AskedShared asked;
    return asked;
  }
  cudaStream_t stream_;
};

}  // namespace tandem::gpu
#else
#include "tests/engine/kernels/cuda_emulator/launcher.cuh"
#endif

namespace tandem::gpu {

/// Launches one kernel, as Launcher does.
template <class Kernel, class... Arguments>
void launch(CudaStream stream, Kernel* kernel, dim3 grid, dim3 block, std::size_t dynamic_shared,
            const Arguments&... arguments) {
  Launcher launcher(stream);
  launcher(kernel, grid, block, dynamic_shared, arguments...);
}

}  // namespace tandem::gpu
