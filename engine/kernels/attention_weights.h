// Attention weights of single tokens: averages that follow them through a decode, and the choice of the salient ones
// (HGCA, papers: section 3.2).
#pragma once

#include <cstddef>
#include <cstdint>

namespace tandem {

/// ln sum_t exp(scores[t]); -infinity for none.
float log_sum_exp(const float* scores /*[n]*/, std::size_t n);

/// average[t] = keep * average[t] + share * exp(scores[t] - lse): a weight of a softmax with this `lse` goes into a
/// moving average (keep = 1 - share) or into a mean (keep = 1). Bits of a token do not depend on its neighbours.
void blend_weights(const float* scores /*[n]*/, float lse, std::size_t n, float keep, float share,
                   float* average /*[n]*/);

/// masks[t]: bit g is set where averages[g][t] > threshold. Returns the number of tokens with a bit set.
std::uint32_t salient_masks(const float* averages /*[group][stride]*/, std::size_t stride, std::uint32_t n,
                            std::uint32_t group, float threshold, std::uint32_t* masks /*[n]*/);

}  // namespace tandem
