#include "engine/mechanisms/query_drift/kernels/drift.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace tandem {

float mean_cosine(const float* a, const float* b, std::uint32_t group, std::uint32_t dim) {
  float sum = 0;
  for (std::uint32_t g = 0; g < group; ++g) {
    float ab = 0, aa = 0, bb = 0;
    for (std::size_t d = std::size_t{g} * dim; d < (std::size_t{g} + 1) * dim; ++d) {
      ab += a[d] * b[d];
      aa += a[d] * a[d];
      bb += b[d] * b[d];
    }
    if (aa > 0 && bb > 0) sum += ab / std::sqrt(aa * bb);
  }
  return sum / static_cast<float>(group);
}

void part_by_drift(const HeadDrift& head, std::uint32_t group, std::uint32_t dim) {
  const bool urgent = head.first != 0 || !(mean_cosine(head.query, head.previous, group, dim) >= head.least);
  std::copy_n(head.missing, 1 + head.missing[0], urgent ? head.now : head.later);
  (urgent ? head.later : head.now)[0] = 0;
  std::copy_n(head.query, std::size_t{group} * dim, head.previous);
}

}  // namespace tandem
