// Cases of the attention mass of units, by which a device budget evicts.
#include <algorithm>
#include <cmath>
#include <fmt/format.h>

#include "engine/mechanisms/device_budget/kernels/unit_mass.h"
#include "eval/kernels/case.h"

namespace tandem::eval {
namespace {

constexpr float kKeep = 0.95F, kShare = 0.01F;

// Rows of several lengths. The last head of the last row attends nothing.
KernelCase mass_case(std::vector<std::uint32_t> tokens, std::uint32_t heads, std::uint32_t unit) {
  KernelCase one{"add_unit_mass",
                 fmt::format("{} tokens, {} heads, units of {}", fmt::join(tokens, ", "), heads, unit)};
  const auto units = [unit](std::uint32_t n) { return (n + unit - 1) / unit; };
  std::size_t stride = 0, all_tokens = 0, all_units = 0;
  for (const std::uint32_t n : tokens) {
    stride = std::max<std::size_t>(stride, n + 3);
    all_tokens += n;
    all_units += units(n);
  }
  one.bytes = 4.0 * static_cast<double>(heads * all_tokens + 2 * all_units);
  one.flops = 10.0 * heads * static_cast<double>(all_tokens);
  one.tolerance = 1e-5;
  one.threaded = true;
  one.set_up = [=](CaseMemory& memory, PreparedCase& prepared) {
    const std::size_t rows = tokens.size();
    const auto scores = memory.normals(rows * heads * stride, 1, 2), masses = memory.normals(all_units, 2);
    std::vector<float> sums(rows * heads);
    for (std::size_t i = 0; i < sums.size(); ++i) sums[i] = std::log(static_cast<float>(50 + 7 * i));
    sums.back() = -INFINITY;
    const auto lse = memory.input(std::move(sums));
    memory.result_at(masses.target, all_units);
    std::vector<MassRow> work;
    std::uint32_t most = 0;
    for (std::size_t row = 0, first = 0; row < rows; first += units(tokens[row++])) {
      work.push_back(
          {scores.target + row * heads * stride, lse.target + row * heads, masses.target + first, stride, tokens[row]});
      most = std::max(most, units(tokens[row]));
    }
    const auto there = memory.input(work);
    prepared.run = [=, &memory] {
      if (memory.cuda())
        return add_unit_mass_cuda(there.target, static_cast<std::uint32_t>(rows), most, heads, unit, kKeep, kShare,
                                  memory.stream());
      memory.each(rows, [&](std::size_t row) { add_unit_mass(there[row], heads, unit, kKeep, kShare); });
    };
    prepared.expected = [=] {
      std::vector<double> expected;
      for (std::size_t row = 0; row < rows; ++row) {
        for (std::uint32_t begin = 0; begin < tokens[row]; begin += unit) {
          double sum = 0;
          for (std::uint32_t token = begin; token < std::min(begin + unit, tokens[row]); ++token) {
            for (std::size_t head = row * heads; head < (row + 1) * heads; ++head)
              sum += head + 1 == rows * heads ? 0 : std::exp(double{scores[head * stride + token]} - double{lse[head]});
          }
          expected.push_back(double{kKeep} * double{masses[expected.size()]} + double{kShare} * sum);
        }
      }
      return expected;
    };
  };
  return one;
}

}  // namespace

void append_mass_cases(CaseSize size, const TakeCase& take) {
  if (size == CaseSize::bench) return take(mass_case({32768}, 32, 32));
  take(mass_case({100, 37}, 4, 16));
  take(mass_case({256}, 1, 256));
  take(mass_case({1, 33, 700}, 3, 32));
}

}  // namespace tandem::eval
