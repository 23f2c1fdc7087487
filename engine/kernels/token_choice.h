// The choice of single tokens by their exact scores.
#pragma once

#include <cstdint>
#include <span>

#include "engine/kernels/attention_span.h"

namespace tandem {

/// The `keep` tokens that a KV head scores best, as indices into the spans' tokens in ascending order; a token's score
/// is its largest over the group's query heads. Ties go to the lower index. Bits of a score: those of token_scores().
void choose_tokens(const float* q /*[group][D]*/, std::span<const KvSpan> spans, AttentionShape shape,
                   std::uint32_t keep, std::uint32_t* out /*[min(keep, tokens)]*/);

}  // namespace tandem
