#include "engine/kernels/topk.h"

#include <algorithm>
#include <cmath>
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
  // A broken model's NaN would break the order that sorting needs, so it counts as the worst score.
  const auto score = [scores](std::uint32_t i) { return std::isnan(scores[i]) ? -INFINITY : scores[i]; };
  sorted.resize(n);
  for (std::uint32_t i = 0; i < n; ++i) sorted[i] = score(i);
  std::nth_element(sorted.begin(), sorted.begin() + (k - 1), sorted.end(), std::greater<>());
  const float threshold = sorted[k - 1];
  const auto above = std::count_if(sorted.begin(), sorted.begin() + (k - 1), [&](float s) { return s > threshold; });
  std::uint32_t ties = k - static_cast<std::uint32_t>(above);
  for (std::uint32_t i = 0, chosen = 0; chosen < k && i < n; ++i) {
    if (score(i) > threshold || (score(i) == threshold && ties > 0 && ties--)) out[chosen++] = i;
  }
}

}  // namespace tandem
