// The oracles: plain loops in float64.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "engine/common/error.h"
#include "engine/kernels/attention.h"
#include "engine/kernels/convert.h"

namespace tandem {
namespace {

constexpr double kDoubleInfinity = std::numeric_limits<double>::infinity();

struct Token {
  const void* k;
  const void* v;
  std::size_t index;  // in both
};

// What the kernels take a query for: rounded where keys are bf16.
std::vector<double> query_of(const float* q, std::size_t dim, DType kv) {
  std::vector<double> query(dim);
  for (std::size_t d = 0; d < dim; ++d)
    query[d] = double{kv == DType::bf16 ? bf16_to_float(float_to_bf16(q[d])) : q[d]};
  return query;
}

/// `row` has room for a vector.
double score(const std::vector<double>& q, const Token& token, DType kv, std::vector<float>& row) {
  const std::size_t dim = q.size();
  to_f32(token.k, kv, token.index * dim, dim, row.data());
  double dot = 0;
  for (std::size_t d = 0; d < dim; ++d) dot += q[d] * double{row[d]};
  return dot / std::sqrt(static_cast<double>(dim));
}

double attend(const float* q, const std::vector<Token>& tokens, std::size_t dim, DType kv, float* o) {
  const std::vector<double> query = query_of(q, dim, kv);
  std::vector<double> scores(tokens.size()), sum(dim, 0.0);
  std::vector<float> row(dim);
  double most = -kDoubleInfinity, total = 0;
  for (std::size_t t = 0; t < tokens.size(); ++t) {
    scores[t] = score(query, tokens[t], kv, row);
    most = std::max(most, scores[t]);
  }
  if (most == -kDoubleInfinity) {
    std::fill(o, o + dim, 0.0f);
    return -kDoubleInfinity;
  }
  for (std::size_t t = 0; t < tokens.size(); ++t) {
    const double weight = std::exp(scores[t] - most);
    total += weight;
    to_f32(tokens[t].v, kv, tokens[t].index * dim, dim, row.data());
    for (std::size_t d = 0; d < dim; ++d) sum[d] += weight * double{row[d]};
  }
  for (std::size_t d = 0; d < dim; ++d) o[d] = static_cast<float>(sum[d] / total);
  return most + std::log(total);
}

}  // namespace

void partial_attention_reference(const float* q, std::span<const KvSpan> spans, AttentionShape shape, float* o,
                                 float* lse) {
  const std::size_t dim = shape.dim;
  for (std::size_t h = 0; h < shape.group; ++h) {
    std::vector<Token> tokens;
    for (const KvSpan& span : spans) {
      if ((span.head_mask >> h & 1u) == 0) continue;
      for (std::size_t t = 0; t < span.tokens; ++t) tokens.push_back({span.k, span.v, t});
    }
    lse[h] = static_cast<float>(attend(q + h * dim, tokens, dim, shape.kv, o + h * dim));
  }
}

void token_scores_reference(const float* q, std::span<const KvSpan> spans, AttentionShape shape, float* scores) {
  constexpr double kLargest = std::numeric_limits<float>::max();
  std::vector<float> row(shape.dim);
  for (std::size_t h = 0; h < shape.group; ++h) {
    const std::vector<double> query = query_of(q + h * shape.dim, shape.dim, shape.kv);
    for (const KvSpan& span : spans)
      for (std::size_t t = 0; t < span.tokens; ++t)
        *scores++ = static_cast<float>(std::fmin(score(query, {span.k, span.v, t}, shape.kv, row), kLargest));
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
        tokens.push_back({pages.k_pages[page], pages.v_pages[page], slot});
      }
      attend(q + (i * q_heads + h) * dim, tokens, dim, pages.type, out + (i * q_heads + h) * dim);
    }
  }
}

}  // namespace tandem
