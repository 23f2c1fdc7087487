// Cases of matrix products with stored weights, and of the choice of a token from logits: the two best of a row, and
// the log probability of a given one.
#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <limits>

#include "engine/kernels/linear.h"
#include "engine/kernels/linear_gpu.h"
#include "engine/kernels/pointwise.h"
#include "engine/kernels/sampling.h"
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
    const bool adds = what == Added::result, as_stored = memory.cuda() && !adds;
    const auto x = rounded(case_normals(x_count, 21, 0.5f), type);
    const auto w = rounded(case_normals(std::size_t{out} * in, 22, 0.2f), type);
    const auto bias = memory.normals(out, 23), sums = memory.normals(adds ? y_count : 0, 24);
    const MatrixView weights = memory.matrix(w, type, out, in);
    const float* const added = what == Added::bias ? bias.target : nullptr;
    const void* const rows = memory.stored(x, memory.cuda() ? type : DType::f32);
    void* const y = memory.bytes(y_count * (as_stored ? size_of(y_type) : sizeof(float)));
    // A whole oracle of many rows takes a minute.
    const std::vector<std::size_t> seen = sampled(y_count, std::size_t{1} << 16, 97);
    prepared.run = [=, &memory, on_gpu = memory.cuda() ? std::make_shared<LinearCuda>() : nullptr] {
      if (memory.cuda()) {
        if (adds) return on_gpu->add(rows, weights, sums.target, n, memory.stream());
        return (*on_gpu)(rows, weights, added, y, y_type, n, memory.stream());
      }
      const auto product = n <= 16 ? linear : type == DType::bf16 ? linear_prefill_bf16 : linear_prefill;
      product(memory.pool(), static_cast<const float*>(rows), weights, added, static_cast<float*>(y), n);
      if (adds) add(sums.target, static_cast<const float*>(y), y_count);
    };
    prepared.result = [=, &memory] {
      if (as_stored) return rows_of(memory.read_stored(y, y_type, y_count), seen, 1);
      return rounded(rows_of(memory.read(adds ? sums.target : static_cast<const float*>(y), y_count), seen, 1), y_type);
    };
    prepared.expected = [=] {
      return generated(seen.size(), [&](std::size_t i) {
        const std::size_t row = seen[i] / out, column = seen[i] % out;
        double sum = what == Added::bias ? double{bias[column]} : adds ? double{sums[seen[i]]} : 0;
        for (std::size_t j = 0; j < in; ++j) sum += double{x[row * in + j]} * double{w[column * in + j]};
        return sum;
      });
    };
  };
  return one;
}

// Results: best, its logit, second, its logit, the log probability of a given token, of each row.
KernelCase choose_case(std::uint32_t n, std::uint32_t vocab, const char* kind) {
  KernelCase one{"choose", fmt::format("n {}, vocabulary {}, {}", n, vocab, kind)};
  one.bytes = static_cast<double>(n) * vocab * 4;
  one.tolerance = 1e-6;
  one.set_up = [=, what = std::string(kind)](CaseMemory& memory, PreparedCase& prepared) {
    auto logits = case_normals(std::size_t{n} * vocab, 13, 4);
    std::vector<std::int32_t> tokens(n);
    for (std::uint32_t i = 0; i < n; ++i) tokens[i] = static_cast<std::int32_t>(i * 7919u % vocab);
    for (float& logit : logits) {
      if (what == "ties") logit = std::round(logit);
      if (what == "mostly -inf" && logit < 4) logit = -std::numeric_limits<float>::infinity();
    }
    if (what == "mostly -inf")
      for (std::uint32_t i = 0; i < n; ++i) logits[std::size_t{i} * vocab + static_cast<std::size_t>(tokens[i])] = 1;
    const auto x = memory.input(std::move(logits));
    const auto ids = memory.input(std::move(tokens));
    TopTwo* const top = memory.output<TopTwo>(n);
    double* const log_probabilities = memory.output<double>(n);
    void* const scratch = memory.cuda() ? memory.bytes(choose_scratch_bytes(n, vocab)) : nullptr;
    prepared.run = [=, &memory] {
      if (memory.cuda())
        return choose_cuda(x.target, n, vocab, ids.target, top, nullptr, log_probabilities, scratch, memory.stream());
      for (std::size_t i = 0; i < n; ++i) {
        top[i] = top_two(x.target + i * vocab, vocab);
        log_probabilities[i] = log_probability(x.target + i * vocab, vocab, static_cast<std::uint32_t>(ids[i]));
      }
    };
    prepared.result = [=, &memory] {
      std::vector<float> result;
      const auto tops = memory.read(top, n);
      const auto logs = memory.read(log_probabilities, n);
      for (std::size_t i = 0; i < n; ++i)
        result.insert(result.end(),
                      {static_cast<float>(tops[i].best), tops[i].best_logit, static_cast<float>(tops[i].second),
                       tops[i].second_logit, static_cast<float>(logs[i])});
      return result;
    };
    prepared.expected = [=] {
      std::vector<double> expected;
      for (std::size_t row = 0; row < n; ++row) {
        const auto own = std::span(x.host()).subspan(row * vocab, vocab);
        std::size_t best = 0, second = vocab;
        for (std::size_t i = 1; i < vocab; ++i)
          if (own[i] > own[best]) best = i;
        for (std::size_t i = 0; i < vocab; ++i)
          if (i != best && (second == vocab || own[i] > own[second])) second = i;
        double sum = 0;
        for (const float logit : own) sum += std::exp(double{logit} - double{own[best]});
        const bool alone = second == vocab;
        expected.insert(expected.end(),
                        {static_cast<double>(best), double{own[best]}, alone ? -1.0 : static_cast<double>(second),
                         alone ? -std::numeric_limits<double>::infinity() : double{own[second]},
                         double{own[static_cast<std::size_t>(ids[row])]} - double{own[best]} - std::log(sum)});
      }
      return expected;
    };
  };
  return one;
}

}  // namespace

void append_linear_cases(CaseSize size, const TakeCase& take) {
  constexpr DType kF32 = DType::f32, kF16 = DType::f16, kBf16 = DType::bf16;
  if (size == CaseSize::bench) {
    for (const std::uint32_t n : {1u, 16u}) take(choose_case(n, 151936, "random"));
    for (const std::uint32_t n : {1u, 8u, 16u, 512u}) {
      take(linear_case(n, 4096, 14336, kBf16, kF32));
      take(linear_case(n, 14336, 4096, kBf16, kF32));
    }
    take(linear_case(1, 4096, 6144, kBf16, kF32, Added::bias));
    take(linear_case(8, 14336, 4096, kBf16, kF32, Added::result));
    take(linear_case(8, 14336, 4096, kBf16, kBf16));
    return;
  }
  for (const char* kind : {"random", "ties", "mostly -inf"})
    for (const std::uint32_t vocab : {2u, 31u, 8192u, 20000u}) take(choose_case(3, vocab, kind));
  take(choose_case(2, 1, "random"));
  for (const DType type : {kF32, kF16, kBf16}) {
    for (const std::uint32_t n : {1u, 5u, 33u}) {
      take(linear_case(n, 64, 40, type, kF32, Added::bias));
      take(linear_case(n, 72, 24, type, kF32, Added::result));
      take(linear_case(n, 72, 24, type, type));
    }
  }
}

}  // namespace tandem::eval
