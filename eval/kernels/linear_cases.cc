// Cases of matrix products with stored weights.
#include <fmt/core.h>

#include "engine/kernels/convert.h"
#include "engine/kernels/linear.h"
#include "engine/kernels/linear_gpu.h"
#include "eval/kernels/case.h"

namespace tandem::eval {
namespace {

// x as the weights are stored. On the CPU x is f32 with the same values; linear_prefill_bf16 for many rows of bf16.
KernelCase linear_case(std::uint32_t n, std::uint32_t in, std::uint32_t out, DType type, DType y_type, bool with_bias) {
  KernelCase one;
  one.kernel = n > 16 ? "linear_prefill" : "linear";
  one.shape = fmt::format("n {}, {} to {}, {}, result {}{}", n, in, out, to_string(type), to_string(y_type),
                          with_bias ? ", bias" : "");
  const std::size_t x_count = std::size_t{n} * in, y_count = std::size_t{n} * out;
  one.bytes = static_cast<double>(std::size_t{out} * in * size_of(type)) +
              static_cast<double>(x_count * size_of(type) + y_count * size_of(y_type));
  one.cpu_bytes = static_cast<double>(std::size_t{out} * in * size_of(type) + 4 * (x_count + y_count));
  one.flops = 2.0 * n * in * out;
  if (n > 16) one.bound = type == DType::f32 ? Bound::f32 : Bound::bf16;
  one.threaded = true;
  one.tolerance = 1e-4 + (y_type == DType::f32 ? 0 : y_type == DType::f16 ? 0x1p-11 : 0x1p-8);
  one.prepare = [=](CaseMemory& memory) {
    const auto x = rounded(case_normals(x_count, 21, 0.5f), type), bias = case_normals(out, 23);
    const auto w = rounded(case_normals(std::size_t{out} * in, 22, 0.2f), type);
    const MatrixView weights = memory.matrix(w, type, out, in);
    const float* const added = with_bias ? memory.input(bias) : nullptr;
    auto expected = [=] {
      std::vector<double> sums(y_count);
      for (std::size_t row = 0; row < n; ++row)
        for (std::size_t column = 0; column < out; ++column) {
          double sum = with_bias ? double{bias[column]} : 0;
          for (std::size_t i = 0; i < in; ++i) sum += double{x[row * in + i]} * double{w[column * in + i]};
          sums[row * out + column] = sum;
        }
      return sums;
    };
    PreparedCase prepared;
    if (!memory.cuda()) {
      const float* const rows = memory.input(x);
      float* const unrounded = memory.output<float>(y_count);
      prepared.run = [=, &memory] {
        const auto product = n <= 16 ? linear : type == DType::bf16 ? linear_prefill_bf16 : linear_prefill;
        product(memory.pool(), rows, weights, added, unrounded, n);
      };
      prepared.result = [=, &memory] { return rounded(memory.read(unrounded, y_count), y_type); };
      prepared.expected = std::move(expected);
      return prepared;
    }
    void* const y = memory.bytes(y_count * size_of(y_type));
    const void* const rows = memory.stored(x, type);
    prepared.run = [=, &memory, product = std::make_shared<LinearCuda>()] {
      (*product)(rows, weights, added, y, y_type, n, memory.stream());
    };
    prepared.result = [=, &memory] { return memory.read_stored(y, y_type, y_count); };
    prepared.expected = std::move(expected);
    return prepared;
  };
  return one;
}

}  // namespace

void append_linear_cases(CaseSize size, std::vector<KernelCase>& cases) {
  constexpr DType kF32 = DType::f32, kF16 = DType::f16, kBf16 = DType::bf16;
  if (size == CaseSize::bench) {
    for (const std::uint32_t n : {1u, 8u, 16u, 512u}) {
      cases.push_back(linear_case(n, 4096, 14336, kBf16, kF32, false));
      cases.push_back(linear_case(n, 14336, 4096, kBf16, kF32, false));
    }
    cases.push_back(linear_case(1, 4096, 6144, kBf16, kF32, true));
    return;
  }
  for (const DType type : {kF32, kF16, kBf16}) {
    for (const std::uint32_t n : {1u, 5u, 33u}) {
      cases.push_back(linear_case(n, 64, 40, type, kF32, true));
      cases.push_back(linear_case(n, 72, 24, type, type, false));
    }
  }
}

}  // namespace tandem::eval
