#include "engine/kernels/topk.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <vector>

#include "engine/common/error.h"

namespace tandem {

void top_k(const float* scores, std::uint32_t n, std::uint32_t k, std::uint32_t* out, std::uint32_t first) {
  if (k >= n || k <= first) {
    std::iota(out, out + std::min(k, n), 0u);
    return;
  }
  std::iota(out, out + first, 0u);
  static thread_local std::vector<float> sorted;
  // A broken model's NaN would break the order that sorting needs, so it counts as the worst score.
  const auto score = [scores](std::uint32_t i) { return std::isnan(scores[i]) ? -INFINITY : scores[i]; };
  const std::uint32_t wanted = k - first;
  sorted.resize(n - first);
  for (std::uint32_t i = first; i < n; ++i) sorted[i - first] = score(i);
  std::nth_element(sorted.begin(), sorted.begin() + (wanted - 1), sorted.end(), std::greater<>());
  const float threshold = sorted[wanted - 1];
  const auto above =
      std::count_if(sorted.begin(), sorted.begin() + (wanted - 1), [&](float s) { return s > threshold; });
  std::uint32_t ties = wanted - static_cast<std::uint32_t>(above);
  for (std::uint32_t i = first, chosen = first; chosen < k && i < n; ++i) {
    if (score(i) > threshold || (score(i) == threshold && ties > 0 && ties--)) out[chosen++] = i;
  }
}

void reduce_scores(const float* scores, std::uint32_t heads, std::uint32_t group, std::uint32_t n, Reduce reduce,
                   float* out) {
  TANDEM_CHECK(group >= 1, "The scores of a group of no heads.");
  std::fill_n(out, n, 0.0f);
  std::vector<float> of_head(n);
  for (std::uint32_t head = 0; head < heads; ++head) {
    const float* own = scores + std::size_t{head} * group * n;
    std::copy_n(own, n, of_head.begin());
    for (std::uint32_t g = 1; g < group; ++g) {
      own += n;
      for (std::uint32_t i = 0; i < n; ++i)
        of_head[i] = reduce == Reduce::max ? std::max(of_head[i], own[i]) : of_head[i] + own[i];
    }
    for (std::uint32_t i = 0; i < n; ++i)
      out[i] += reduce == Reduce::max ? of_head[i] : of_head[i] / static_cast<float>(group);
  }
}

}  // namespace tandem
