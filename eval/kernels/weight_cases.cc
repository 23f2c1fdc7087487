// Cases of what follows attention weights: averages, column sums, sums of exponentials.
#include <algorithm>
#include <cmath>
#include <fmt/core.h>

#include "engine/kernels/attention_weights.h"
#include "eval/kernels/case.h"

namespace tandem::eval {
namespace {

KernelCase blend_weights_case(std::uint32_t heads, std::uint32_t n, std::uint32_t queries) {
  KernelCase one{queries == 1 ? "blend_weights" : "column_sums",
                 fmt::format("{} heads, {} tokens, {} quer{}", heads, n, queries, queries == 1 ? "y" : "ies")};
  one.bytes = 4.0 * heads * n * (queries + 2.0);
  one.tolerance = 2e-6 * std::max(1.0, queries / 16.0);  // sums of so many weights
  const float share = queries == 1 ? 0.1f : 1.0f / static_cast<float>(queries);
  const float keep = queries == 1 ? 0.9f : 1.0f;
  one.set_up = [=](CaseMemory& memory, PreparedCase& prepared) {
    const auto scores = case_normals(std::size_t{heads} * queries * n, 1, 2);
    const auto before = case_normals(std::size_t{heads} * n, 2);
    std::vector<float> sums(std::size_t{heads} * queries);
    for (std::size_t row = 0; row < sums.size(); ++row) sums[row] = log_sum_exp(&scores[row * n], n);
    const float* const at = memory.input(scores);
    const float* const lse = memory.input(sums);
    float* const average = memory.input(before);
    const WeightBlend* const device = memory.input(generated(heads, [=](std::size_t head) {
      return WeightBlend{at + head * queries * n, lse + head * queries, average + head * n, n, n, queries};
    }));
    prepared.run = [=, &memory] {
      if (memory.cuda()) return blend_weights_cuda(device, heads, n, keep, share, memory.stream());
      for (std::size_t row = 0; row < std::size_t{heads} * queries; ++row)
        blend_weights(at + row * n, lse[row], n, keep, share, average + row / queries * n);
    };
    prepared.result = [=, &memory] { return memory.read(average, std::size_t{heads} * n); };
    prepared.expected = [=] {
      std::vector<double> expected(before.begin(), before.end());
      for (std::size_t row = 0; row < std::size_t{heads} * queries; ++row)
        for (std::size_t t = 0; t < n; ++t) {
          double& average_of = expected[row / queries * n + t];
          average_of =
              double{keep} * average_of + double{share} * std::exp(double{scores[row * n + t]} - double{sums[row]});
        }
      return expected;
    };
  };
  return one;
}

// A head's scores to the logarithm of their sum.
KernelCase log_sum_exp_case(std::uint32_t rows, std::uint32_t n) {
  KernelCase one{"log_sum_exp", fmt::format("{} rows of {}", rows, n)};
  one.bytes = 4.0 * rows * n;
  one.tolerance = 1e-5;
  one.threaded = true;
  one.set_up = [=](CaseMemory& memory, PreparedCase& prepared) {
    const auto scores = case_normals(std::size_t{rows} * n, 1, 5);
    const float* const at = memory.input(scores);
    float* const out = memory.output<float>(rows);
    const ScoreRow* const device = memory.input(generated(rows, [=](std::size_t row) {
      return ScoreRow{at + row * n, n, out + row};
    }));
    prepared.run = [=, &memory] {
      if (memory.cuda()) return log_sum_exp_cuda(device, rows, memory.stream());
      memory.pool().parallel_for(rows, [&](std::size_t row) { out[row] = log_sum_exp(at + row * n, n); });
    };
    prepared.result = [=, &memory] { return memory.read(out, rows); };
    prepared.expected = [=] {
      std::vector<double> expected(rows);
      for (std::size_t row = 0; row < rows; ++row) {
        for (std::size_t t = 0; t < n; ++t) expected[row] += std::exp(double{scores[row * n + t]});
        expected[row] = std::log(expected[row]);
      }
      return expected;
    };
  };
  return one;
}

}  // namespace

void append_weight_cases(CaseSize size, const TakeCase& take) {
  constexpr std::uint32_t kK = 1024;
  if (size == CaseSize::bench) {
    take(blend_weights_case(32, 32 * kK, 1));
    take(blend_weights_case(32, 8 * kK, 64));
    take(log_sum_exp_case(2048, 8 * kK));
    return;
  }
  for (const std::uint32_t n : {1u, 77u, 600u}) {
    take(blend_weights_case(3, n, 1));
    take(blend_weights_case(2, n, 5));
    take(log_sum_exp_case(3, n));
  }
}

}  // namespace tandem::eval
