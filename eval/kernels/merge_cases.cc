// Cases of merges of partial attention, on the device and of parts that lie in pinned host memory.
#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <limits>

#include "engine/kernels/attention.h"
#include "eval/kernels/case.h"

namespace tandem::eval {
namespace {

KernelCase merge_case(std::uint32_t parts, std::uint32_t rows, std::uint32_t dim, bool on_host) {
  KernelCase one{on_host ? "merge_from_host" : "merge", fmt::format("{} parts, {} rows, D {}", parts, rows, dim)};
  // Every second part is on the host.
  one.bytes = 4.0 * rows * (dim + 1.0) * (on_host ? parts / 2 : parts + 1);
  if (on_host) one.link = Link::to_device;
  one.tolerance = 1e-5;
  one.set_up = [=](CaseMemory& memory, PreparedCase& prepared) {
    const std::size_t all = std::size_t{rows} * dim;
    std::vector<std::vector<float>> o(parts), lse(parts);
    std::vector<const float*> o_at, lse_at;
    for (std::uint32_t p = 0; p < parts; ++p) {
      o[p] = case_normals(all, 10 + p);
      lse[p] = case_normals(rows, 100 + p, 3);
      for (std::uint32_t r = 0; r < rows; r += 1 + p) {
        if (r % 3 != 0) continue;  // rows 0, 3, ... of some parts have no tokens
        lse[p][r] = -std::numeric_limits<float>::infinity();
        std::fill_n(&o[p][std::size_t{r} * dim], dim, 0.0f);
      }
      const bool pinned = on_host && p % 2 == 1;
      const auto place = [&](const std::vector<float>& values) {
        if (!pinned) return memory.input(values);
        float* const to = static_cast<float*>(memory.host_bytes(values.size() * sizeof(float)));
        std::copy(values.begin(), values.end(), to);
        return to;
      };
      o_at.push_back(place(o[p]));
      lse_at.push_back(place(lse[p]));
    }
    const float* const* const o_list = memory.input(o_at);
    const float* const* const lse_list = memory.input(lse_at);
    float* const out = memory.output<float>(all);
    float* const out_lse = memory.output<float>(rows);
    prepared.run = [=, &memory] {
      if (memory.cuda()) return merge_partials_cuda(o_list, lse_list, parts, rows, dim, out, out_lse, memory.stream());
      merge_partials(o_list, lse_list, parts, rows, dim, out, out_lse);
    };
    prepared.result = [=, &memory] {
      auto result = memory.read(out, all);
      append(result, memory.read(out_lse, rows));
      return result;
    };
    prepared.expected = [=] {
      std::vector<double> expected(all + rows);
      for (std::size_t r = 0; r < rows; ++r) {
        double total = 0;
        for (std::uint32_t p = 0; p < parts; ++p) total += std::exp(double{lse[p][r]});
        for (std::uint32_t p = 0; p < parts && total > 0; ++p)
          for (std::size_t d = 0; d < dim; ++d)
            expected[r * dim + d] += std::exp(double{lse[p][r]}) / total * double{o[p][r * dim + d]};
        expected[all + r] = std::log(total);
      }
      return expected;
    };
  };
  return one;
}

}  // namespace

void append_merge_cases(CaseSize size, const TakeCase& take) {
  if (size == CaseSize::bench) {
    take(merge_case(2, 8 * 32, 128, false));
    KernelCase on_gpu = merge_case(2, 8 * 32, 128, true);
    on_gpu.targets = {KernelTarget::cuda};
    take(std::move(on_gpu));
    return;
  }
  for (const bool on_host : {false, true}) {
    take(merge_case(1, 3, 128, on_host));
    take(merge_case(2, 4, 72, on_host));
    take(merge_case(7, 3, 256, on_host));
    take(merge_case(40, 5, 300, on_host));
    take(merge_case(600, 1, 33, on_host));
  }
}

}  // namespace tandem::eval
