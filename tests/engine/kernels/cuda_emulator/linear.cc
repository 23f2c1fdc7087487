// The emulated LinearCuda: the product by its definition.
#include "engine/kernels/convert.h"
#include "engine/kernels/linear_gpu.h"
#include "tests/engine/kernels/cuda_emulator/stream_order.h"
#include "tests/engine/kernels/cuda_emulator/streams.h"

namespace tandem {
namespace {

void product(const void* x, const MatrixView& w, const float* bias, bool adds, void* y, DType y_type, std::uint32_t n) {
  const std::size_t width = size_of(w.type);
  const cuda_emulator::Touched touched[] = {{x, n * w.cols * width, false},
                                            {w.data, std::size_t{w.rows} * w.cols * width, false},
                                            {bias, bias == nullptr ? 0 : w.rows * sizeof(float), false},
                                            {y, std::size_t{n} * w.rows * size_of(y_type), true}};
  cuda_emulator::touch(touched, nullptr);
  for (std::size_t row = 0; row < n; ++row) {
    for (std::size_t column = 0; column < w.rows; ++column) {
      double sum = bias == nullptr ? 0 : double{bias[column]};
      for (std::size_t i = 0; i < w.cols; ++i)
        sum += double{load_element(x, w.type, row * w.cols + i)} *
               double{load_element(w.data, w.type, column * w.cols + i)};
      if (adds) sum += double{static_cast<const float*>(y)[row * w.rows + column]};
      const auto value = static_cast<float>(sum);
      from_f32(&value, y_type, 1, static_cast<char*>(y) + (row * w.rows + column) * size_of(y_type));
    }
  }
}

}  // namespace

struct LinearCuda::State {};

LinearCuda::LinearCuda() = default;
LinearCuda::~LinearCuda() = default;

void LinearCuda::operator()(const void* x, const MatrixView& w, const float* bias, void* y, DType y_type,
                            std::uint32_t n, CudaStream stream) {
  if (!cuda_emulator::asked(cuda_emulator::Call::kernel)) return;
  cuda_emulator::enqueue(stream, [=] { product(x, w, bias, false, y, y_type, n); });
}

void LinearCuda::add(const void* x, const MatrixView& w, float* y, std::uint32_t n, CudaStream stream) {
  if (!cuda_emulator::asked(cuda_emulator::Call::kernel)) return;
  cuda_emulator::enqueue(stream, [=] { product(x, w, nullptr, true, y, DType::f32, n); });
}

}  // namespace tandem
