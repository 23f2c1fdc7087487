#include "engine/kernels/merge.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

namespace tandem {

void merge_partials(const float* const* o, const float* const* lse, std::uint32_t parts, std::uint32_t rows,
                    std::uint32_t dim, float* out, float* out_lse) {
  constexpr float kEmpty = -std::numeric_limits<float>::infinity();
  constexpr std::size_t kBlock = 64;  // read from every part before it is written, so that out may be a part
  for (std::size_t row = 0; row < rows; ++row) {
    float most = kEmpty;
    for (std::uint32_t i = 0; i < parts; ++i) most = std::max(most, lse[i][row]);
    double total = 0;
    for (std::uint32_t i = 0; i < parts; ++i)
      if (lse[i][row] != kEmpty) total += std::exp(double{lse[i][row]} - double{most});
    for (std::size_t begin = 0; begin < dim; begin += kBlock) {
      const std::size_t count = std::min(kBlock, dim - begin), at = row * dim + begin;
      float sum[kBlock] = {};
      for (std::uint32_t i = 0; i < parts; ++i) {
        if (lse[i][row] == kEmpty) continue;
        const float weight = static_cast<float>(std::exp(double{lse[i][row]} - double{most}) / total);
        for (std::size_t d = 0; d < count; ++d) sum[d] += weight * o[i][at + d];
      }
      std::copy(sum, sum + count, out + at);
    }
    if (out_lse) out_lse[row] = most == kEmpty ? kEmpty : static_cast<float>(double{most} + std::log(total));
  }
}

}  // namespace tandem
