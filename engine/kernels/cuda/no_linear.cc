// LinearCuda of a build without CUDA: the constructor throws, so the other members never run.
#include "engine/device/cuda/not_built.h"
#include "engine/kernels/linear_gpu.h"

namespace tandem {

struct LinearCuda::State {};
LinearCuda::LinearCuda() {
  not_built();
}
LinearCuda::~LinearCuda() = default;
void LinearCuda::operator()(const void*, const MatrixView&, const float*, void*, DType, std::uint32_t, CudaStream) {}
void LinearCuda::add(const void*, const MatrixView&, float*, std::uint32_t, CudaStream) {}

}  // namespace tandem
