#include "engine/kernels/argmax.h"

#include <algorithm>
#include <limits>

#include "engine/common/error.h"
#include "engine/kernels/kernel_table.h"

namespace tandem {

TopTwo top_two(const float* logits, std::uint32_t vocab) {
  TANDEM_CHECK(vocab >= 1, "An empty vocabulary has no best token.");
  constexpr float kNone = -std::numeric_limits<float>::infinity();
  constexpr std::uint32_t kBlock = 256;
  const KernelTable& table = kernels();
  TopTwo top{-1, kNone, -1, kNone};
  for (std::uint32_t from = 0; from < vocab; from += kBlock) {
    const std::uint32_t to = std::min(from + kBlock, vocab);
    if (top.second >= 0 && table.largest(logits + from, to - from) <= top.second_logit) continue;
    for (std::uint32_t i = from; i < to; ++i) {
      const float logit = logits[i] >= kNone ? logits[i] : kNone;  // NaN
      if (top.best < 0 || logit > top.best_logit) {
        top = {static_cast<std::int32_t>(i), logit, top.best, top.best_logit};
      } else if (top.second < 0 || logit > top.second_logit) {
        top.second = static_cast<std::int32_t>(i);
        top.second_logit = logit;
      }
    }
  }
  return top;
}

}  // namespace tandem
