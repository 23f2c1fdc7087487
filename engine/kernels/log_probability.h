// How likely a model finds a given token.
#pragma once

#include <cstdint>

namespace tandem {

/// ln softmax(logits)[token], accumulated in double precision in the order of the vocabulary: the same bits with every
/// instruction set. vocab >= 1, token < vocab.
double log_probability(const float* logits /*[vocab]*/, std::uint32_t vocab, std::uint32_t token);

}  // namespace tandem
