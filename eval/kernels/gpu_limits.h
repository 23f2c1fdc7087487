// What a GPU attains now, for `tandem bench kernels` to set its kernels beside.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "engine/kernels/linear_gpu.h"
#include "eval/kernels/case.h"

namespace tandem::eval {

/// What is moved and multiplied: more than caches hold, and products that fill the device. `link` is at most 2 `copy`.
struct GpuLimitSizes {
  std::size_t copy = std::size_t{1} << 29, link = std::size_t{1} << 28;  // bytes
  std::uint32_t product = 8192;                                          // rows and columns of square matrices
};

/// Rates per second, each measured when it is asked for. Holds memory of the device, 1.5 GiB of it at these sizes, and
/// pinned memory once the link is asked for. Not thread-safe.
class GpuLimits {
 public:
  /// Throws CudaError where the device has no room for the copies. Keeps `pool`.
  explicit GpuLimits(ThreadPool& pool, const GpuLimitSizes& sizes = {});

  /// Of what bounds the case: bytes, of a copy within the device or over the link in the case's direction, or FLOPs. 0:
  /// not known, which f32 and f64 rates are. Throws InputError where there is no cuBLASLt, CudaError where there is no
  /// room.
  double of(const KernelCase& one);

 private:
  double copy_rate(void* to, const void* from, std::size_t bytes);
  double link_rate(Link link);
  double product_rate();

  GpuLimitSizes sizes_;
  CaseMemory memory_;
  char* copy_;            // twice the bytes of a copy
  void* host_ = nullptr;  // pinned
  // Of the product, which nothing else writes: zeros draw less power than random numbers and would be too fast.
  std::unique_ptr<LinearCuda> product_;
  const void* x_ = nullptr;
  MatrixView weights_;
  void* y_ = nullptr;
  double best_product_ = 0;
};

}  // namespace tandem::eval
