#include "engine/kernels/attention.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <limits>
#include <vector>

#include "engine/common/error.h"
#include "engine/kernels/kernel_table.h"
#include "engine/kernels/scratch.h"

namespace tandem {
namespace {

struct AttentionScratch;

std::size_t token_count(std::span<const KvSpan> spans) {
  std::size_t tokens = 0;
  for (const KvSpan& span : spans) tokens += span.tokens;
  return tokens;
}

void check(const AttentionShape& shape) {
  TANDEM_CHECK(shape.group >= 1 && shape.group <= 32, "A group has 1 to 32 query heads, not {}.", shape.group);
}

}  // namespace

void partial_attention(const float* q, std::span<const KvSpan> spans, AttentionShape shape, float* o, float* lse,
                       float* scores, std::size_t stride) {
  const std::size_t end = spans.size();
  partial_attention_of_parts(q, spans, {&end, 1}, shape, o, lse, scores, stride);
}

void partial_attention_of_parts(const float* q, std::span<const KvSpan> spans, std::span<const std::size_t> ends,
                                AttentionShape shape, float* o, float* lse, float* scores, std::size_t stride) {
  check(shape);
  TANDEM_CHECK(!ends.empty() && ends.back() == spans.size() && std::is_sorted(ends.begin(), ends.end()),
               "{} parts of {} spans", ends.size(), spans.size());
  const std::uint32_t all = shape.group == 32 ? ~0u : (1u << shape.group) - 1;
  if (scores != nullptr)
    for (const KvSpan& span : spans)
      TANDEM_CHECK((span.head_mask & all) == all, "Scores of a span that only heads {:#x} attend.", span.head_mask);
  kernels().partial_attention(q, spans.data(), ends.data(), ends.size(), shape, o, lse, scores,
                              scores != nullptr && stride == 0 ? token_count(spans) : stride,
                              aligned_scratch<AttentionScratch>(partial_scratch_floats(shape.group, shape.dim)));
}

void token_scores(const float* q, std::span<const KvSpan> spans, AttentionShape shape, float* scores) {
  const std::size_t tokens = token_count(spans);
  kernels().token_scores(q, spans.data(), spans.size(), shape, scores, tokens,
                         aligned_scratch<AttentionScratch>(partial_scratch_floats(shape.group, shape.dim)));
}

void prefill_attention(ThreadPool& pool, const float* q, std::span<const PrefillKv> kv, std::uint32_t first_position,
                       std::uint32_t n, std::uint32_t q_heads, std::uint32_t kv_heads, std::uint32_t dim, float* out) {
  TANDEM_CHECK(kv_heads > 0 && q_heads > 0 && q_heads % kv_heads == 0 && kv.size() == kv_heads,
               "{} query heads over {} KV heads, with KV of {}.", q_heads, kv_heads, kv.size());
  const std::size_t pages = (std::size_t{first_position} + n + kPrefillPageTokens - 1) / kPrefillPageTokens;
  for (const PrefillKv& head : kv)
    TANDEM_CHECK(head.type == kv[0].type && head.k_pages.size() >= pages && head.v_pages.size() >= pages,
                 "{} K and {} V pages of {} where {} are needed.", head.k_pages.size(), head.v_pages.size(),
                 to_string(head.type), pages);
  constexpr std::uint32_t kTileRows = 192;  // 32 blocks of 6 rows, 12 tiles of 16
  const std::uint32_t group = q_heads / kv_heads;
  const std::uint32_t tile_queries = std::max(1u, kTileRows / group);
  const std::uint32_t tiles = (n + tile_queries - 1) / tile_queries;
  const KernelTable& table = kernels();
  pool.parallel_for(std::size_t{tiles} * kv_heads, [&](std::size_t task) {
    const std::uint32_t head = static_cast<std::uint32_t>(task % kv_heads);
    const std::uint32_t tile = tiles - 1 - static_cast<std::uint32_t>(task / kv_heads);  // the longest first
    const std::uint32_t query = tile * tile_queries;
    const std::uint32_t queries = std::min(tile_queries, n - query);
    const std::size_t stride = std::size_t{q_heads} * dim;
    const std::size_t offset = stride * query + std::size_t{head} * group * dim;
    table.prefill_tile({.q = q + offset,
                        .query_stride = stride,
                        .k_pages = kv[head].k_pages.data(),
                        .v_pages = kv[head].v_pages.data(),
                        .kv = kv[head].type,
                        .first_position = first_position + query,
                        .queries = queries,
                        .group = group,
                        .dim = dim,
                        .out = out + offset,
                        .scratch = aligned_scratch<AttentionScratch>(prefill_scratch_floats(queries * group, dim))});
  });
}

void merge_partials(const float* const* o, const float* const* lse, std::uint32_t parts, std::uint32_t rows,
                    std::uint32_t dim, float* out, float* out_lse) {
  constexpr float kEmpty = -std::numeric_limits<float>::infinity();
  constexpr std::size_t kBlock = 64;  // read from every part before it is written, so that out may be a part
  std::vector<double> shares(parts);
  for (std::size_t row = 0; row < rows; ++row) {
    float most = kEmpty;
    std::uint32_t some = 0, last = 0;  // parts with tokens, and the last of them
    for (std::uint32_t i = 0; i < parts; ++i) {
      if (lse[i][row] == kEmpty) continue;
      most = std::max(most, lse[i][row]);
      ++some;
      last = i;
    }
    float* const to = out + row * dim;
    if (some <= 1) {
      if (some == 1)
        std::memmove(to, o[last] + row * dim, dim * sizeof(float));
      else
        std::fill_n(to, dim, 0.0f);
      if (out_lse) out_lse[row] = most;
      continue;
    }
    double total = 0;
    for (std::uint32_t i = 0; i < parts; ++i) {
      if (lse[i][row] == kEmpty) continue;
      shares[i] = std::exp(double{lse[i][row]} - double{most});
      total += shares[i];
    }
    for (std::size_t begin = 0; begin < dim; begin += kBlock) {
      const std::size_t count = std::min(kBlock, dim - begin), at = row * dim + begin;
      float sum[kBlock] = {};
      for (std::uint32_t i = 0; i < parts; ++i) {
        if (lse[i][row] == kEmpty) continue;
        const auto weight = static_cast<float>(shares[i] / total);
        for (std::size_t d = 0; d < count; ++d) sum[d] += weight * o[i][at + d];
      }
      std::copy_n(sum, count, to + begin);
    }
    if (out_lse) out_lse[row] = static_cast<float>(double{most} + std::log(total));
  }
}

}  // namespace tandem
