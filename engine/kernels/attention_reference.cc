// The oracles: plain loops in float64.
#include <cmath>
#include <limits>
#include <vector>

#include "engine/common/error.h"
#include "engine/kernels/attention.h"

namespace tandem {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct Token {
  const float* k;
  const float* v;
};

double attend(const float* q, const std::vector<Token>& tokens, std::size_t dim, float* o) {
  std::vector<double> scores(tokens.size()), sum(dim, 0.0);
  double most = -kInfinity, total = 0;
  for (std::size_t t = 0; t < tokens.size(); ++t) {
    double dot = 0;
    for (std::size_t d = 0; d < dim; ++d) dot += double{q[d]} * double{tokens[t].k[d]};
    scores[t] = dot / std::sqrt(static_cast<double>(dim));
    most = std::max(most, scores[t]);
  }
  if (most == -kInfinity) {
    std::fill(o, o + dim, 0.0f);
    return -kInfinity;
  }
  for (std::size_t t = 0; t < tokens.size(); ++t) {
    const double weight = std::exp(scores[t] - most);
    total += weight;
    for (std::size_t d = 0; d < dim; ++d) sum[d] += weight * double{tokens[t].v[d]};
  }
  for (std::size_t d = 0; d < dim; ++d) o[d] = static_cast<float>(sum[d] / total);
  return most + std::log(total);
}

}  // namespace

void partial_attention_reference(const float* q, std::span<const KvSpan> spans, std::uint32_t group, std::uint32_t dim,
                                 float* o, float* lse) {
  for (std::uint32_t h = 0; h < group; ++h) {
    std::vector<Token> tokens;
    for (const KvSpan& span : spans) {
      if ((span.head_mask >> h & 1u) == 0) continue;
      for (std::size_t t = 0; t < span.tokens; ++t) tokens.push_back({span.k + t * dim, span.v + t * dim});
    }
    lse[h] = static_cast<float>(attend(q + std::size_t{h} * dim, tokens, dim, o + std::size_t{h} * dim));
  }
}

void prefill_attention_reference(const float* q, std::span<const PrefillKv> kv, std::uint32_t first_position,
                                 std::uint32_t n, std::uint32_t q_heads, std::uint32_t kv_heads, std::uint32_t dim,
                                 float* out) {
  TANDEM_CHECK(kv_heads > 0 && q_heads % kv_heads == 0, "{} query heads over {} KV heads.", q_heads, kv_heads);
  for (std::size_t h = 0; h < q_heads; ++h) {
    const PrefillKv& pages = kv[h / (q_heads / kv_heads)];
    std::vector<Token> tokens;
    for (std::size_t i = 0; i < n; ++i) {
      while (tokens.size() < std::size_t{first_position} + i + 1) {
        const std::size_t page = tokens.size() / kPrefillPageTokens, slot = tokens.size() % kPrefillPageTokens;
        tokens.push_back({pages.k_pages[page] + slot * dim, pages.v_pages[page] + slot * dim});
      }
      attend(q + (i * q_heads + h) * dim, tokens, dim, out + (i * q_heads + h) * dim);
    }
  }
}

}  // namespace tandem
