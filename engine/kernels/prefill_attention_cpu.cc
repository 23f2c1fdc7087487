// Causal attention of a tile of queries: a row per (query, head of the group), token tiles of 64, online softmax (Dao
// et al. 2022). K is packed transposed and V as it is, so that both products are the same small matrix kernel.
#include "engine/kernels/kernels_cpu.h"
#include "engine/kernels/matrix_cpu.h"
#include "engine/kernels/vec.h"

namespace tandem::TANDEM_ISA_NAMESPACE {
namespace {

constexpr uint32_t kTokens = kPrefillTileTokens;
constexpr uint32_t kPage = 16;

}  // namespace

void prefill_tile(const PrefillTile& tile) {
  const uint32_t dim = tile.dim, group = tile.group, rows = tile.queries * group;
  const size_t padded = padded_dim(dim);
  float* queries = tile.scratch;                        // [rows][padded], scaled
  float* sums = queries + rows * padded;                // [rows][padded]
  float* keys = sums + rows * padded;                   // [dim][kTokens]
  float* values = keys + padded * kTokens;              // [kTokens][padded]
  float* weights = values + padded * kTokens;           // [rows][kTokens]: scores, then exp(score - m)
  float* reference = weights + size_t{rows} * kTokens;  // [rows]: m, the largest score so far
  float* totals = reference + rows;                     // [rows]
  float* key = totals + rows;                           // [padded]

  const float scale = 1.0f / __builtin_sqrtf(static_cast<float>(dim));
  for (uint32_t r = 0; r < rows; ++r) {
    const float* q = tile.q + tile.query_stride * (r / group) + size_t{dim} * (r % group);
    float* query = queries + r * padded;
    for (uint32_t d = 0; d < padded; ++d) query[d] = sums[r * padded + d] = 0.0f;
    if (tile.kv == DType::bf16)
      round_to_bf16(q, dim, query);
    else
      __builtin_memcpy(query, q, dim * sizeof(float));
    for (uint32_t d = 0; d < dim; ++d) query[d] *= scale;
    reference[r] = -kInfinity;
    totals[r] = 0.0f;
  }

  const uint32_t tokens = tile.first_position + tile.queries;  // seen by the last query
  for (uint32_t from = 0; from < tokens; from += kTokens) {
    const uint32_t count = tokens - from < kTokens ? tokens - from : kTokens;
    for (uint32_t t = 0; t < kTokens; ++t) {
      float* value = values + padded * t;
      for (uint32_t d = 0; d < padded; ++d) key[d] = value[d] = 0.0f;
      if (t < count) {  // slots beyond are not read
        const size_t at = size_t{dim} * ((from + t) % kPage);
        widen(tile.k_pages[(from + t) / kPage], tile.kv, at, dim, key);
        widen(tile.v_pages[(from + t) / kPage], tile.kv, at, dim, value);
      }
      for (uint32_t d = 0; d < dim; ++d) keys[size_t{kTokens} * d + t] = key[d];
    }
    multiply(queries, padded, keys, kTokens, weights, kTokens, rows, kTokens, dim, false);

    for (uint32_t r = 0; r < rows; ++r) {
      float* p = weights + size_t{kTokens} * r;
      const uint32_t limit = tile.first_position + r / group + 1;  // tokens that this row attends
      const uint32_t visible = limit <= from ? 0 : limit - from < kTokens ? limit - from : kTokens;
      for (uint32_t t = visible; t < kTokens; ++t) p[t] = -kInfinity;
      vf most = splat(reference[r]);
      for (uint32_t t = 0; t < kTokens; t += kWidth) {
        const vf score = minimum(load(p + t), splat(3.402823466e+38f));  // an overflowed score stays comparable
        store(p + t, score);
        most = maximum(score, most);
      }
      const float largest = maximum_of(most);
      if (largest > reference[r]) {
        const float factor = exp(splat(reference[r] - largest))[0];
        for (uint32_t d = 0; d < padded; ++d) sums[r * padded + d] *= factor;
        totals[r] *= factor;
        reference[r] = largest;
      }
      const vf offset = splat(largest == -kInfinity ? 0.0f : largest);
      vf total = {};
      for (uint32_t t = 0; t < kTokens; t += kWidth) {
        const vf weight = exp(load(p + t) - offset);
        store(p + t, weight);
        total += weight;
      }
      totals[r] += sum(total);
    }
    multiply(weights, kTokens, values, padded, sums, padded, rows, static_cast<uint32_t>(padded), kTokens, true);
  }

  for (uint32_t r = 0; r < rows; ++r) {
    const float inverse = totals[r] == 0.0f ? 0.0f : 1.0f / totals[r];
    float* out = tile.out + tile.query_stride * (r / group) + size_t{dim} * (r % group);
    for (uint32_t d = 0; d < dim; ++d) out[d] = sums[r * padded + d] * inverse;
  }
}

}  // namespace tandem::TANDEM_ISA_NAMESPACE
