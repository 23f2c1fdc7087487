// Selection of the k best blocks.
#pragma once

#include <cstdint>

namespace tandem {

/// Indices of the k largest scores in ascending index order; ties go to the lower index. k >= n selects all n. Linear
/// time on average. Scores must not be NaN; infinities are fine.
void top_k(const float* scores /*[n]*/, std::uint32_t n, std::uint32_t k, std::uint32_t* out /*[min(k, n)]*/);

}  // namespace tandem
