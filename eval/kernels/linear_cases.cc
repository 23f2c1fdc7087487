// Cases of matrix products with stored weights.
#include <algorithm>
#include <fmt/core.h>

#include "engine/kernels/convert.h"
#include "engine/kernels/linear.h"
#include "engine/kernels/linear_gpu.h"
#include "engine/kernels/pointwise.h"
#include "eval/kernels/case.h"

namespace tandem::eval {
namespace {

/// What comes to a product beside it: nothing, a bias of its columns, or what is in the result already.
enum class Added : std::uint8_t { nothing, bias, result };

// x as the weights are stored. On the CPU x is f32 with the same values; linear_prefill_bf16 for many rows of bf16.
KernelCase linear_case(std::uint32_t n, std::uint32_t in, std::uint32_t out, DType type, DType y_type,
                       Added what = Added::nothing) {
  KernelCase one{n > 16 ? "linear_prefill" : "linear",
                 fmt::format("n {}, {} to {}, {}, result {}{}", n, in, out, to_string(type), to_string(y_type),
                             what == Added::bias     ? ", bias"
                             : what == Added::result ? ", added"
                                                     : "")};
  const std::size_t x_count = std::size_t{n} * in, y_count = std::size_t{n} * out;
  one.bytes = static_cast<double>(std::size_t{out} * in * size_of(type)) +
              static_cast<double>(x_count * size_of(type) + y_count * size_of(y_type));
  if (what == Added::result) one.bytes += static_cast<double>(y_count * sizeof(float));
  one.cpu_bytes = static_cast<double>(std::size_t{out} * in * size_of(type) +
                                      4 * (x_count + y_count * (what == Added::result ? 4 : 1)));
  one.flops = 2.0 * n * in * out;
  if (n > 16) one.bound = type == DType::f32 ? Bound::f32 : Bound::bf16;
  one.threaded = true;
  // Tensor cores cut off what a sum in f32 cannot hold instead of rounding it. That errs towards one side, so that the
  // error grows with the number of terms and not with its root: 5e-4 at most of 14336 terms, simulated.
  const double summed = type == DType::f32 ? 1e-4 : 1e-4 * std::max(1.0, in / 1400.0);
  one.tolerance = summed + (y_type == DType::f32 ? 0 : y_type == DType::f16 ? 0x1p-11 : 0x1p-8);
  one.set_up = [=](CaseMemory& memory, PreparedCase& prepared) {
    const auto x = rounded(case_normals(x_count, 21, 0.5f), type), bias = case_normals(out, 23);
    const auto w = rounded(case_normals(std::size_t{out} * in, 22, 0.2f), type);
    const MatrixView weights = memory.matrix(w, type, out, in);
    const float* const added = what == Added::bias ? memory.input(bias) : nullptr;
    const auto before = what == Added::result ? case_normals(y_count, 24) : std::vector<float>();
    // A whole oracle of many rows takes a minute.
    const std::vector<std::size_t> seen = sampled(y_count, std::size_t{1} << 16, 97);
    auto expected = [=] {
      std::vector<double> sums;
      sums.reserve(seen.size());
      for (const std::size_t at : seen) {
        const std::size_t row = at / out, column = at % out;
        double sum = what == Added::bias ? double{bias[column]} : what == Added::result ? double{before[at]} : 0;
        for (std::size_t i = 0; i < in; ++i) sum += double{x[row * in + i]} * double{w[column * in + i]};
        sums.push_back(sum);
      }
      return sums;
    };
    if (!memory.cuda()) {
      const float* const rows = memory.input(x);
      float* const unrounded = memory.output<float>(y_count);
      float* const sums = what == Added::result ? memory.input(before) : nullptr;
      prepared.run = [=, &memory] {
        const auto product = n <= 16 ? linear : type == DType::bf16 ? linear_prefill_bf16 : linear_prefill;
        product(memory.pool(), rows, weights, added, unrounded, n);
        if (sums != nullptr) add(sums, unrounded, y_count);
      };
      prepared.result = [=, &memory] {
        return rounded(rows_of(memory.read(sums != nullptr ? sums : unrounded, y_count), seen, 1), y_type);
      };
      prepared.expected = std::move(expected);
      return;
    }
    const void* const rows = memory.stored(x, type);
    if (what == Added::result) {
      float* const sums = memory.input(before);
      prepared.run = [=, &memory, product = std::make_shared<LinearCuda>()] {
        product->add(rows, weights, sums, n, memory.stream());
      };
      prepared.result = [=, &memory] { return rows_of(memory.read(sums, y_count), seen, 1); };
      prepared.expected = std::move(expected);
      return;
    }
    void* const y = memory.bytes(y_count * size_of(y_type));
    prepared.run = [=, &memory, product = std::make_shared<LinearCuda>()] {
      (*product)(rows, weights, added, y, y_type, n, memory.stream());
    };
    prepared.result = [=, &memory] { return rows_of(memory.read_stored(y, y_type, y_count), seen, 1); };
    prepared.expected = std::move(expected);
  };
  return one;
}

}  // namespace

void append_linear_cases(CaseSize size, const TakeCase& take) {
  constexpr DType kF32 = DType::f32, kF16 = DType::f16, kBf16 = DType::bf16;
  if (size == CaseSize::bench) {
    for (const std::uint32_t n : {1u, 8u, 16u, 512u}) {
      take(linear_case(n, 4096, 14336, kBf16, kF32));
      take(linear_case(n, 14336, 4096, kBf16, kF32));
    }
    take(linear_case(1, 4096, 6144, kBf16, kF32, Added::bias));
    take(linear_case(8, 14336, 4096, kBf16, kF32, Added::result));
    take(linear_case(8, 14336, 4096, kBf16, kBf16));
    return;
  }
  for (const DType type : {kF32, kF16, kBf16}) {
    for (const std::uint32_t n : {1u, 5u, 33u}) {
      take(linear_case(n, 64, 40, type, kF32, Added::bias));
      take(linear_case(n, 72, 24, type, kF32, Added::result));
      take(linear_case(n, 72, 24, type, type));
    }
  }
}

}  // namespace tandem::eval
