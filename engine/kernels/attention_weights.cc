#include "engine/kernels/attention_weights.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/common/error.h"
#include "engine/kernels/kernel_table.h"

namespace tandem {

float log_sum_exp(const float* scores, std::size_t n) {
  const KernelTable& table = kernels();
  const float most = table.largest(scores, static_cast<std::uint32_t>(n));
  if (most == -std::numeric_limits<float>::infinity()) return most;
  return most + std::log(table.exp_sum(scores, most, n));
}

void blend_weights(const float* scores, float lse, std::size_t n, float keep, float share, float* average) {
  if (lse == -std::numeric_limits<float>::infinity()) {  // no weights, whatever the scores
    for (std::size_t t = 0; t < n; ++t) average[t] *= keep;
    return;
  }
  kernels().blend_weights(scores, lse, n, keep, share, average);
}

std::uint32_t salient_masks(const float* averages, std::size_t stride, std::uint32_t n, std::uint32_t group,
                            float threshold, std::uint32_t* masks) {
  TANDEM_CHECK(group >= 1 && group <= 32, "A group has 1 to 32 query heads, not {}.", group);
  std::fill_n(masks, n, 0u);
  for (std::uint32_t g = 0; g < group; ++g) {
    const float* average = averages + g * stride;
    for (std::uint32_t t = 0; t < n; ++t) masks[t] |= static_cast<std::uint32_t>(average[t] > threshold) << g;
  }
  return static_cast<std::uint32_t>(n - std::count(masks, masks + n, 0u));
}

}  // namespace tandem
