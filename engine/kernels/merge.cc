#include "engine/kernels/merge.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <limits>
#include <vector>

namespace tandem {

void merge_partials(const float* const* o, const float* const* lse, std::uint32_t parts, std::uint32_t rows,
                    std::uint32_t dim, float* out, float* out_lse) {
  constexpr float kEmpty = -std::numeric_limits<float>::infinity();
  constexpr std::size_t kBlock = 64;  // read from every part before it is written, so that out may be a part
  std::vector<double> shares(parts);
  for (std::size_t row = 0; row < rows; ++row) {
    float most = kEmpty;
    std::uint32_t some = 0, last = 0;  // parts with tokens, and the last of them
    for (std::uint32_t i = 0; i < parts; ++i) {
      if (lse[i][row] == kEmpty) continue;
      most = std::max(most, lse[i][row]);
      ++some;
      last = i;
    }
    float* const to = out + row * dim;
    if (some <= 1) {
      if (some == 1)
        std::memmove(to, o[last] + row * dim, dim * sizeof(float));
      else
        std::fill_n(to, dim, 0.0f);
      if (out_lse) out_lse[row] = most;
      continue;
    }
    double total = 0;
    for (std::uint32_t i = 0; i < parts; ++i) {
      if (lse[i][row] == kEmpty) continue;
      shares[i] = std::exp(double{lse[i][row]} - double{most});
      total += shares[i];
    }
    for (std::size_t begin = 0; begin < dim; begin += kBlock) {
      const std::size_t count = std::min(kBlock, dim - begin), at = row * dim + begin;
      float sum[kBlock] = {};
      for (std::uint32_t i = 0; i < parts; ++i) {
        if (lse[i][row] == kEmpty) continue;
        const auto weight = static_cast<float>(shares[i] / total);
        for (std::size_t d = 0; d < count; ++d) sum[d] += weight * o[i][at + d];
      }
      std::copy_n(sum, count, to + begin);
    }
    if (out_lse) out_lse[row] = static_cast<float>(double{most} + std::log(total));
  }
}

}  // namespace tandem
