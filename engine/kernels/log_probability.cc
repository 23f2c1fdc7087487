#include "engine/kernels/log_probability.h"

#include <algorithm>
#include <cmath>

#include "engine/common/error.h"

namespace tandem {

double log_probability(const float* logits, std::uint32_t vocab, std::uint32_t token) {
  TANDEM_CHECK(token < vocab, "Token {} is outside a vocabulary of {}.", token, vocab);
  const double most = *std::max_element(logits, logits + vocab);
  double sum = 0;  // at least 1: the largest logit's own term
  for (std::uint32_t i = 0; i < vocab; ++i) sum += std::exp(logits[i] - most);
  return logits[token] - most - std::log(sum);
}

}  // namespace tandem
