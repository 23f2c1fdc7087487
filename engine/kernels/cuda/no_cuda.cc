// The kernels' twins in a build without CUDA: they say so.
#include "engine/kernels/cuda/no_cuda.h"

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

void rms_norm_cuda(const float*, const MatrixView&, float, void*, DType, std::uint32_t, std::uint32_t, CudaStream) {
  refuse_without_cuda();
}
void swiglu_cuda(const float*, const float*, std::size_t, void*, DType, std::uint32_t, std::uint32_t, CudaStream) {
  refuse_without_cuda();
}
void convert_cuda(const void*, DType, void*, DType, std::size_t, CudaStream) {
  refuse_without_cuda();
}
void embed_cuda(const MatrixView&, const std::int32_t*, float*, std::uint32_t, CudaStream) {
  refuse_without_cuda();
}
void prepare_qkv_cuda(const float*, const QkvShape&, const QkvWeights&, const LaunchArray<QkvToken>&, float*,
                      const KvPlaces&, std::uint32_t, CudaStream) {
  refuse_without_cuda();
}
std::size_t choose_scratch_bytes(std::uint32_t, std::uint32_t) {
  refuse_without_cuda();
}
void sample_tokens_cuda(const LaunchArray<SampleRow>&, std::uint32_t, std::uint32_t, CudaStream) {
  refuse_without_cuda();
}
struct LinearCuda::State {};
LinearCuda::LinearCuda() {
  refuse_without_cuda();
}
LinearCuda::~LinearCuda() = default;
void LinearCuda::operator()(const void*, const MatrixView&, const float*, void*, DType, std::uint32_t, CudaStream) {
  refuse_without_cuda();
}
void LinearCuda::add(const void*, const MatrixView&, float*, std::uint32_t, CudaStream) {
  refuse_without_cuda();
}

void gather_cuda(const Pieces&, GatherWay, CudaStream) {
  refuse_without_cuda();
}
void gather_lists_cuda(const LaunchArray<Pieces>&, std::uint32_t, std::size_t, CudaStream) {
  refuse_without_cuda();
}
void choose_cuda(const float*, std::uint32_t, std::uint32_t, const std::int32_t*, TopTwo*, std::int32_t*, double*,
                 void*, CudaStream) {
  refuse_without_cuda();
}

}  // namespace tandem
