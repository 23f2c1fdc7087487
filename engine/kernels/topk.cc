#include "engine/kernels/topk.h"

#include <algorithm>
#include <functional>
#include <vector>

namespace tandem {

void top_k(const float* scores, std::uint32_t n, std::uint32_t k, std::uint32_t* out) {
  if (k == 0) return;
  if (k >= n) {
    for (std::uint32_t i = 0; i < n; ++i) out[i] = i;
    return;
  }
  static thread_local std::vector<float> sorted;
  sorted.assign(scores, scores + n);
  std::nth_element(sorted.begin(), sorted.begin() + (k - 1), sorted.end(), std::greater<>());
  const float threshold = sorted[k - 1];
  const auto above = std::count_if(sorted.begin(), sorted.begin() + (k - 1), [&](float s) { return s > threshold; });
  std::uint32_t ties = k - static_cast<std::uint32_t>(above);
  for (std::uint32_t i = 0, chosen = 0; chosen < k; ++i) {
    if (scores[i] > threshold || (scores[i] == threshold && ties > 0 && ties--)) out[chosen++] = i;
  }
}

}  // namespace tandem
