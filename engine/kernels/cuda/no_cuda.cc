// The kernels' twins in a build without CUDA: they say so.
#include "engine/device/cuda/runtime.h"
#include "engine/kernels/activation.h"
#include "engine/kernels/argmax.h"
#include "engine/kernels/convert.h"
#include "engine/kernels/embedding.h"
#include "engine/kernels/gather.h"
#include "engine/kernels/linear_gpu.h"
#include "engine/kernels/norm.h"
#include "engine/kernels/qkv.h"
#include "engine/kernels/sampling.h"

namespace tandem {
namespace {

[[noreturn]] void refuse() {
  throw InputError(cuda_missing());
}

}  // namespace

void rms_norm_cuda(const float*, const MatrixView&, float, void*, DType, std::uint32_t, std::uint32_t, CudaStream) {
  refuse();
}
void swiglu_cuda(const float*, const float*, std::size_t, void*, DType, std::uint32_t, std::uint32_t, CudaStream) {
  refuse();
}
void convert_cuda(const void*, DType, void*, DType, std::size_t, CudaStream) {
  refuse();
}
void embed_cuda(const MatrixView&, const std::int32_t*, float*, std::uint32_t, CudaStream) {
  refuse();
}
void prepare_qkv_cuda(const float*, const QkvShape&, const QkvWeights&, const LaunchArray<QkvToken>&, float*,
                      const KvPlaces&, std::uint32_t, CudaStream) {
  refuse();
}
std::size_t choose_scratch_bytes(std::uint32_t, std::uint32_t) {
  refuse();
}
void sample_tokens_cuda(const LaunchArray<SampleRow>&, std::uint32_t, std::uint32_t, CudaStream) {
  refuse();
}
struct LinearCuda::State {};
LinearCuda::LinearCuda() {
  refuse();
}
LinearCuda::~LinearCuda() = default;
void LinearCuda::operator()(const void*, const MatrixView&, const float*, void*, DType, std::uint32_t, CudaStream) {
  refuse();
}
void LinearCuda::add(const void*, const MatrixView&, float*, std::uint32_t, CudaStream) {
  refuse();
}

void gather_cuda(const Pieces&, GatherWay, CudaStream) {
  refuse();
}
void gather_lists_cuda(const LaunchArray<Pieces>&, std::uint32_t, std::size_t, CudaStream) {
  refuse();
}
void choose_cuda(const float*, std::uint32_t, std::uint32_t, const std::int32_t*, TopTwo*, std::int32_t*, double*,
                 void*, CudaStream) {
  refuse();
}

}  // namespace tandem
