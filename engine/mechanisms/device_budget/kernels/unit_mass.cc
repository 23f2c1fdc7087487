#include "engine/mechanisms/device_budget/kernels/unit_mass.h"

#include <algorithm>
#include <cmath>

namespace tandem {

void add_unit_mass(const MassRow& row, std::uint32_t heads, std::uint32_t unit_tokens, float keep, float share) {
  for (std::uint32_t first = 0, unit = 0; first < row.tokens; first += unit_tokens, ++unit) {
    const std::uint32_t end = std::min(row.tokens, first + unit_tokens);
    float sum = 0.0f;
    for (std::uint32_t head = 0; head < heads; ++head) {
      const float lse = row.lse[head];
      if (lse == -INFINITY) continue;
      const float* const scores = row.scores + head * row.stride;
      for (std::uint32_t t = first; t < end; ++t) sum += std::exp(scores[t] - lse);
    }
    row.mass[unit] = keep * row.mass[unit] + share * sum;
  }
}

}  // namespace tandem
