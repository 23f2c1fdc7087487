// Causal attention of a tile of queries: a row per (query, head of the group), token tiles of 64, online softmax (Dao
// et al. 2022). K is packed transposed and V as it is, so that both products are the same small matrix kernel; where
// KV is bf16 and the CPU multiplies pairs of bf16, both are products of pairs. The weights that multiply bf16 values
// are rounded to bf16 with every instruction set, as partial attention rounds them, and a result is divided by their
// sum.
#include "engine/kernels/kernels_cpu.h"
#include "engine/kernels/matrix_cpu.h"
#include "engine/kernels/pairs_cpu.h"
#include "engine/kernels/vec.h"

namespace tandem::TANDEM_ISA_NAMESPACE {
namespace {

constexpr uint32_t kTokens = kPrefillTileTokens;
constexpr uint32_t kPage = 16;
constexpr uint32_t kVectors = kTokens / kWidth;

const char* token_of(const void* const* pages, uint32_t token, size_t token_bytes) {
  return static_cast<const char*>(pages[token / kPage]) + token % kPage * token_bytes;
}

// Row t of a tile's keys or values as floats; zeros from `count` on.
void load_row(const PrefillTile& tile, const void* const* pages, uint32_t from, uint32_t t, uint32_t count,
              float* row) {
  if (t < count)
    widen(token_of(pages, from + t, tile.dim * (tile.kv == DType::f32 ? size_t{4} : size_t{2})), tile.kv, 0, tile.dim,
          row);
  else
    __builtin_memset(row, 0, tile.dim * sizeof(float));
}

// Scores of all rows with the tokens [from, from + count), 64 at most, in two ways. Slots beyond count are not read and
// give any finite number. Rows are padded with zeros to a multiple of kRows. Setup: what both products need meanwhile.
struct WidenedScores {
  static constexpr bool kScaled = true;  // by what prepare() was given
  static constexpr uint32_t kRows = 1;
  struct Setup {};
  static void prepare(const float* q, const PrefillTile& tile, float scale, float* query) {
    if (tile.kv == DType::bf16)
      round_to_bf16(q, tile.dim, query);
    else
      __builtin_memcpy(query, q, tile.dim * sizeof(float));
    for (uint32_t d = 0; d < tile.dim; ++d) query[d] *= scale;
  }
  static void scores(const PrefillTile& tile, const float* queries, uint32_t rows, uint32_t from, uint32_t count,
                     float* keys, float* out) {
    const uint32_t dim = tile.dim;
    const size_t padded = padded_dim(dim);
    float* key = keys + padded * kTokens;
    for (uint32_t t = 0; t < kTokens; ++t) {
      load_row(tile, tile.k_pages, from, t, count, key);
      for (uint32_t d = 0; d < dim; ++d) keys[size_t{kTokens} * d + t] = key[d];  // [dim][kTokens]
    }
    multiply(queries, padded, keys, kTokens, out, kTokens, rows, kTokens, dim, false);
  }
};

#if defined(__AVX512BF16__)
struct PairedScores {
  static constexpr bool kScaled = false;
  static constexpr uint32_t kRows = kRowStep;
  using Setup = WholeRows;
  static void prepare(const float* q, const PrefillTile& tile, float, float* query) {
    narrow(q, DType::bf16, tile.dim, query);
  }
  static void scores(const PrefillTile& tile, const float* queries, uint32_t rows, uint32_t from, uint32_t count,
                     float* keys, float* out) {
    const uint32_t dim = tile.dim;
    const size_t padded = padded_dim(dim);
    auto* packed = reinterpret_cast<__m512i*>(keys);  // [padded / 2][kPanelVectors]
    for (uint32_t d = 0; d < dim; d += 2 * kPairs) {
      const uint32_t left = dim - d;
      const __mmask32 mask = left >= 2 * kPairs ? ~0u : (1u << left) - 1;
      for (uint32_t run = 0; run < kPanelVectors; ++run) {
        __m512i tokens[kPairs];
        for (uint32_t i = 0; i < kPairs; ++i) {
          const uint32_t t = run * kPairs + i;
          tokens[i] = t < count ? _mm512_maskz_loadu_epi16(
                                      mask, token_of(tile.k_pages, from + t, dim * size_t{2}) + d * size_t{2})
                                : __m512i{};
        }
        transpose(tokens);
        for (uint32_t i = 0; i < kPairs; ++i) packed[(d / 2 + i) * kPanelVectors + run] = tokens[i];
      }
    }
    pairs_of_whole_rows(reinterpret_cast<const int32_t*>(queries), padded, packed, static_cast<uint32_t>(padded) / 2,
                        out, kTokens, rows, kPanelColumns, false, [] {});
  }
};
#endif

// Two ways to add weights times values to the sums:
//   take() packs the values of a tile into `values`, padded * kTokens floats.
//   keep() stores the weights of the tokens [t, t + 2 kWidth) in a row, over their scores, and returns the sum of what
//     it stored.
//   add() multiplies the rows with the packed values.
template <bool kRounds>
struct WidenedValues {
  static void take(const PrefillTile& tile, uint32_t from, uint32_t count, float* values) {
    const size_t padded = padded_dim(tile.dim);
    for (uint32_t t = 0; t < kTokens; ++t) {
      float* value = values + padded * t;
      for (size_t d = tile.dim; d < padded; ++d) value[d] = 0.0f;
      load_row(tile, tile.v_pages, from, t, count, value);
    }
  }
  TANDEM_INLINE vf keep(float* row, uint32_t t, vf a, vf b) {
    if (kRounds) {  // scores are never NaN
      a = number_to_bf16(a);
      b = number_to_bf16(b);
    }
    store(row + t, a);
    store(row + t + kWidth, b);
    return a + b;
  }
  static void add(const float* weights, const float* values, uint32_t rows, uint32_t padded, float* sums) {
    multiply(weights, kTokens, values, padded, sums, padded, rows, padded, kTokens, true);
  }
};

#if defined(__AVX512BF16__)
// Values of two tokens beside each other, weights too: products of pairs.
struct PairedValues {
  static constexpr uint32_t kPanelPairs = kTokens / 2;
  static void take(const PrefillTile& tile, uint32_t from, uint32_t count, float* values) {
    auto* packed = reinterpret_cast<__m512i*>(values);  // [padded / 64, rounded up][kPanelPairs][kPanelVectors]
    const __m512i low =
        _mm512_add_epi16(_mm512_set1_epi32(0x200000),
                         _mm512_set_epi32(15 * 65537, 14 * 65537, 13 * 65537, 12 * 65537, 11 * 65537, 10 * 65537,
                                          9 * 65537, 8 * 65537, 7 * 65537, 6 * 65537, 5 * 65537, 4 * 65537, 3 * 65537,
                                          2 * 65537, 65537, 0));  // words 0 of both, 1 of both, ...
    const __m512i high = _mm512_add_epi16(low, _mm512_set1_epi16(16));
    for (uint32_t d = 0; d < tile.dim; d += 2 * kPairs) {
      const uint32_t left = tile.dim - d;
      const __mmask32 mask = left >= 2 * kPairs ? ~0u : (1u << left) - 1;
      __m512i* to = packed + size_t{d / kPanelColumns} * kPanelPairs * kPanelVectors + d % kPanelColumns / kPairs;
      const auto value = [&](uint32_t t) {
        if (t >= count) return __m512i{};
        return _mm512_maskz_loadu_epi16(mask, token_of(tile.v_pages, from + t, tile.dim * size_t{2}) + d * size_t{2});
      };
      for (uint32_t pair = 0; pair < kPanelPairs; ++pair) {
        const __m512i a = value(2 * pair), b = value(2 * pair + 1);
        _mm512_storeu_si512(to + size_t{pair} * kPanelVectors, _mm512_permutex2var_epi16(a, low, b));
        _mm512_storeu_si512(to + size_t{pair} * kPanelVectors + 1, _mm512_permutex2var_epi16(a, high, b));
      }
    }
  }
  TANDEM_INLINE vf keep(float* row, uint32_t t, vf a,
                        vf b) {  // in the first half of the row
    const auto pairs = reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(b, a));
    _mm512_storeu_si512(row + t / 2, pairs);
    return reinterpret_cast<vf>(_mm512_slli_epi32(pairs, 16)) +
           reinterpret_cast<vf>(_mm512_and_epi32(pairs, _mm512_set1_epi32(static_cast<int>(0xffff0000))));
  }
  static void add(const float* weights, const float* values, uint32_t rows, uint32_t padded, float* sums) {
    for (uint32_t d = 0; d < padded; d += kPanelColumns) {
      const auto* panel = reinterpret_cast<const __m512i*>(values) + size_t{d} * kPanelPairs / kPairs;
      const uint32_t columns = padded - d < kPanelColumns ? padded - d : kPanelColumns;
      pairs_of_whole_rows(reinterpret_cast<const int32_t*>(weights), kTokens, panel, kPanelPairs, sums + d, padded,
                          rows, columns, true, [] {});
    }
  }
};
#endif

template <class Scores, class Values>
void attend_tile(const PrefillTile& tile) {
  const uint32_t dim = tile.dim, group = tile.group, rows = tile.queries * group;
  const uint32_t all_rows = (rows + Scores::kRows - 1) / Scores::kRows * Scores::kRows;
  const size_t padded = padded_dim(dim);
  float* queries = tile.scratch;                         // [all_rows][padded], as Scores prepares them
  float* sums = queries + all_rows * padded;             // [all_rows][padded]
  float* keys = sums + all_rows * padded;                // padded * (kTokens + 1), for Scores
  float* values = keys + padded * (kTokens + 1);         // [kTokens][padded]
  float* weights = values + padded * kTokens;            // [all_rows][kTokens]: scores, then exp(score - m)
  float* totals = weights + size_t{all_rows} * kTokens;  // [rows][kWidth]
  float* reference = totals + size_t{rows} * kWidth;     // [rows]: m, within kSlack of the largest score so far

  const float scale = 1.0f / __builtin_sqrtf(static_cast<float>(dim));
  const vf left = splat(Scores::kScaled ? 1.0f : scale);
  for (size_t i = 0; i < all_rows * padded; ++i) queries[i] = sums[i] = 0.0f;
  for (uint32_t r = 0; r < rows; ++r) {
    const float* q = tile.q + tile.query_stride * (r / group) + size_t{dim} * (r % group);
    float* query = queries + r * padded;
    Scores::prepare(q, tile, scale, query);
    reference[r] = -kInfinity;
    store(totals + r * kWidth, vf{});
  }

  [[maybe_unused]] const typename Scores::Setup setup;
  const uint32_t tokens = tile.first_position + tile.queries;  // seen by the last query
  for (uint32_t from = 0; from < tokens; from += kTokens) {
    const uint32_t count = tokens - from < kTokens ? tokens - from : kTokens;
    Values::take(tile, from, count, values);
    Scores::scores(tile, queries, all_rows, from, count, keys, weights);

    for (uint32_t r = 0; r < rows; ++r) {
      float* p = weights + size_t{kTokens} * r;
      const uint32_t limit = tile.first_position + r / group + 1;  // tokens that this row attends
      const uint32_t visible = limit <= from ? 0 : limit - from < kTokens ? limit - from : kTokens;
      for (uint32_t t = visible; t < kTokens; ++t) p[t] = -kInfinity;
      vf score[kVectors], most = splat(-kInfinity);
      for (uint32_t i = 0; i < kVectors; ++i) {
        score[i] = minimum(load(p + i * kWidth) * left, splat(kLargest));  // an overflowed score stays comparable
        most = maximum(score[i], most);
      }
      if (any_above(most, splat(reference[r] + kSlack))) {
        const float largest = maximum_of(most);
        const vf factor = splat(exp(splat(reference[r] - largest))[0]);  // 0 at the first token
        for (uint32_t d = 0; d < padded; d += kWidth)
          store(sums + r * padded + d, load(sums + r * padded + d) * factor);
        store(totals + r * kWidth, load(totals + r * kWidth) * factor);
        reference[r] = largest;
      }
      const vf offset = splat(reference[r] == -kInfinity ? 0.0f : reference[r]);
      vf total = load(totals + r * kWidth);
      for (uint32_t i = 0; i < kVectors; i += 2)
        total += Values::keep(p, i * kWidth, exp(score[i] - offset), exp(score[i + 1] - offset));
      store(totals + r * kWidth, total);
    }
    Values::add(weights, values, all_rows, static_cast<uint32_t>(padded), sums);
  }

  for (uint32_t r = 0; r < rows; ++r) {
    const float total = sum(load(totals + r * kWidth)), inverse = total == 0.0f ? 0.0f : 1.0f / total;
    float* out = tile.out + tile.query_stride * (r / group) + size_t{dim} * (r % group);
    for (uint32_t d = 0; d < dim; ++d) out[d] = sums[r * padded + d] * inverse;
  }
}

}  // namespace

void prefill_tile(const PrefillTile& tile) {
#if defined(__AVX512BF16__)
  if (tile.kv == DType::bf16) return attend_tile<PairedScores, PairedValues>(tile);
#endif
  if (tile.kv == DType::bf16) return attend_tile<WidenedScores, WidenedValues<true>>(tile);
  attend_tile<WidenedScores, WidenedValues<false>>(tile);
}

}  // namespace tandem::TANDEM_ISA_NAMESPACE
