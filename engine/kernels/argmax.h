// Greedy choice of the next token, and how clear it was.
#pragma once

#include <cstdint>

namespace tandem {

/// The largest and the second largest logit; ties go to the lower index. NaN counts as -infinity. A vocabulary of one
/// has second = -1 and second_logit = -infinity.
struct TopTwo {
  std::int32_t best = -1;
  float best_logit = 0;
  std::int32_t second = -1;
  float second_logit = 0;
};

/// vocab >= 1.
TopTwo top_two(const float* logits /*[vocab]*/, std::uint32_t vocab);

}  // namespace tandem
