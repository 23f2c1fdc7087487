// y = x W^T + bias on the GPU, by cuBLASLt, which is loaded when it is first wanted: programs start without it.
#pragma once

#include <cstdint>
#include <memory>

#include "engine/device/cuda/runtime.h"
#include "engine/kernels/tensor.h"

namespace tandem {

/// The library's handle, its workspace (32 MiB of device memory) and the algorithms it chose, one per shape. For one
/// stream at a time, because of the workspace. Not thread-safe.
class LinearCuda {
 public:
  /// Throws InputError where cuBLASLt of CUDA 13 is not installed.
  LinearCuda();
  ~LinearCuda();
  LinearCuda(const LinearCuda&) = delete;
  LinearCuda& operator=(const LinearCuda&) = delete;

  /// All in device memory; out = w.rows, in = w.cols. x is stored as w is: bf16, f16 or f32. Products are accumulated
  /// in f32 (f32 inputs are not rounded to TF32), the bias is added before the result is rounded to y_type: f32, or w's
  /// type. y must not overlap x. Throws InputError for a shape that cuBLASLt has no algorithm for.
  void operator()(const void* x /*[n][in]*/, const MatrixView& w /*[out][in]*/, const float* bias /*[out] or nullptr*/,
                  void* y /*[n][out]*/, DType y_type, std::uint32_t n, CudaStream stream);

  /// y += x W^T, added in f32 by the product's own kernel: the residual stream. x, W, y and errors as above.
  void add(const void* x /*[n][in]*/, const MatrixView& w /*[out][in]*/, float* y /*[n][out]*/, std::uint32_t n,
           CudaStream stream);

 private:
  struct State;
  struct Result;
  void multiply(const void* x, const MatrixView& w, const Result& to, std::uint32_t n, CudaStream stream);
  std::unique_ptr<State> state_;
};

}  // namespace tandem
