#include "engine/mechanisms/token_choice/kernels/token_choice.h"

#include <algorithm>
#include <vector>

#include "engine/kernels/attention.h"
#include "engine/kernels/topk.h"

namespace tandem {

void choose_tokens(const float* q, std::span<const KvSpan> spans, AttentionShape shape, std::uint32_t keep,
                   std::uint32_t* out) {
  std::uint32_t tokens = 0;
  for (const KvSpan& span : spans) tokens += span.tokens;
  std::vector<float> scores(std::size_t{shape.group} * tokens);
  token_scores(q, spans, shape, scores.data());
  for (std::size_t h = 1; h < shape.group; ++h) {
    for (std::size_t t = 0; t < tokens; ++t) scores[t] = std::max(scores[t], scores[h * tokens + t]);
  }
  top_k(scores.data(), tokens, keep, out);
}

}  // namespace tandem
