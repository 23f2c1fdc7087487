// The heads that attend a tile, and weights times V, for partial_attention_cpu.cc. With AMX see
// attention_amx_cpu.h, whose sums have another order.
//
// An element of a head's o is one chain of multiply-adds, token after token, whatever other heads and dimensions are
// computed beside it and wherever a run of tokens begins.
//
// Where V is bf16 the weights that multiply it are rounded to bf16, with every instruction set (as queries are, see
// dot_cpu.h), and o is divided by the sum of the rounded ones: then a constant V stays what it is, and the roundings
// (2^-8 of a weight at most) average out. lse is of the weights before rounding, which is nearer to the exact one.
#pragma once

#include "engine/kernels/attention_tiles_cpu.h"
#include "engine/kernels/vec.h"

namespace tandem::TANDEM_ISA_NAMESPACE {
namespace {

constexpr uint32_t kMaxGroup = 32;

struct Head {
  float reference;    // m
  uint32_t tokens;    // so far
  vf total;           // sum of exp(score - m); lane i has the tokens of which the number is i modulo kWidth
  vf kept_total;      // the same of the weights as Values keeps them, where it rounds
  float* o;           // sum of exp(score - m) v, where Values::place puts it
  const char* query;  //
};

// The heads that attend a tile, in order.
struct Attending {
  Head* heads[kMaxGroup];
  alignas(64) float p[kMaxGroup][kTile];        // scores
  alignas(64) float weights[kMaxGroup][kTile];  // of a run of tokens, from its first token on, as Values keeps them
  uint32_t count;
  Head* spare;  // nobody's
  // The number of heads with nobody's added up to the next four, where at least `least` are beyond the last four: four
  // heads are computed together, and take less time than three do. Groups of 7 read 34 GB/s from the caches of a core
  // with a spare head, 22 without.
  uint32_t with_spares(uint32_t least) {
    uint32_t all = count;
    if (count % 4 >= least)
      for (; all % 4 != 0; ++all) heads[all] = spare;
    return all;
  }
};

// ---- two ways to multiply -------------------------------------------------------------------------------------------

// f32 weights; V is converted to f32. A step is one token.
template <class Stored>
struct WidenedValues {
  typedef Stored Type;
  typedef vf Value;
  static constexpr uint32_t kTokens = 1;  // of a step, whose weights are one number of 32 bits
  static constexpr int kTogether = 4;     // heads
  static constexpr bool kRounds = __is_same(Stored, BF16);
  static constexpr uint32_t place(uint32_t i) { return Type::pair_place(i); }
  // Stores kWidth weights and returns them as they were stored.
  TANDEM_INLINE vf keep(vf weights, float* row, uint32_t t) {
    if (kRounds) weights = number_to_bf16(weights);  // scores are never NaN
    store(row + t, weights);
    return weights;
  }
  TANDEM_INLINE vf weight(const float* p) { return splat(*p); }
  TANDEM_INLINE void load_step(const char* const* v, size_t offset, Value& a, Value& b) {
    Type::load_pair(v[0] + offset, a, b);
  }
  TANDEM_INLINE void load_last(const char* const* v, size_t offset, Value& a, Value& b) { load_step(v, offset, a, b); }
  // The first `bytes` of a pair of vectors, the rest 0; of a step of up to `tokens` tokens.
  TANDEM_INLINE void load_part(const char* const* v, uint32_t, size_t offset, size_t bytes, Value& a, Value& b) {
    char padded[8 * kWidth] = {};
    __builtin_memcpy(padded, v[0] + offset, bytes);
    Type::load_pair(padded, a, b);
  }
  TANDEM_INLINE vf add(vf weight, Value value, vf total) { return fma(weight, value, total); }
};

#if defined(__AVX512BF16__)
// bf16 weights; a step is two tokens, whose V is interleaved, at the price of a conversion. vdpbf16ps is two
// multiply-adds one after the other, that of the high halves first: there the earlier token is, and beside a token
// alone weights of 0 meet values of -0, whose product leaves any sum as it is, one that was flushed to -0 too.
struct PairedValues {
  typedef BF16 Type;
  typedef __m512bh Value;
  static constexpr uint32_t kTokens = 2;
  static constexpr int kTogether = 8;
  static constexpr bool kRounds = true;
  static constexpr uint32_t place(uint32_t i) { return i / 8 * 4 + i % 4 + i % 8 / 4 * kWidth; }
  TANDEM_INLINE vf keep(vf weights, float* row, uint32_t t) {
    const auto bits = reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(weights));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(row + t / 2), _mm256_rol_epi32(bits, 16));
    return reinterpret_cast<vf>(widen(bits) << 16);
  }
  TANDEM_INLINE __m512bh weight(const float* p) { return reinterpret_cast<__m512bh>(splat(*p)); }
  TANDEM_INLINE __m512i negative_zeros() { return _mm512_set1_epi16(static_cast<short>(0x8000)); }
  TANDEM_INLINE void interleave(__m512i first, __m512i second, Value& a, Value& b) {
    a = reinterpret_cast<Value>(_mm512_unpacklo_epi16(second, first));
    b = reinterpret_cast<Value>(_mm512_unpackhi_epi16(second, first));
  }
  TANDEM_INLINE void load_step(const char* const* v, size_t offset, Value& a, Value& b) {
    interleave(_mm512_loadu_si512(v[0] + offset), _mm512_loadu_si512(v[1] + offset), a, b);
  }
  TANDEM_INLINE void load_last(const char* const* v, size_t offset, Value& a, Value& b) {
    interleave(_mm512_loadu_si512(v[0] + offset), negative_zeros(), a, b);
  }
  TANDEM_INLINE void load_part(const char* const* v, uint32_t tokens, size_t offset, size_t bytes, Value& a, Value& b) {
    const __mmask32 mask = (1u << bytes / 2) - 1;
    interleave(_mm512_maskz_loadu_epi16(mask, v[0] + offset),
               tokens > 1 ? _mm512_maskz_loadu_epi16(mask, v[1] + offset) : negative_zeros(), a, b);
  }
  TANDEM_INLINE vf add(__m512bh weight, Value value, vf total) { return _mm512_dpbf16_ps(total, weight, value); }
};
typedef PairedValues ValuesBF16;
#else
typedef WidenedValues<BF16> ValuesBF16;
#endif

// ---- sums -----------------------------------------------------------------------------------------------------------

// o += sum over a run of `tokens` tokens of w_t v_t for kHeads heads, and kVectorPairs pairs of vectors from dimension
// d on. Every `turns` steps as much is fetched as a step reads.
template <class Values, int kHeads, int kVectorPairs>
TANDEM_INLINE void accumulate_pairs(Attending& at, uint32_t first, const char* const* v, uint32_t tokens, uint32_t d,
                                    Fetch& next, uint32_t turns) {
  constexpr int kVectors = 2 * kVectorPairs;
  constexpr size_t kPairBytes = 2 * kWidth * Values::Type::kBytes;
  vf total[kHeads][kVectors];
  for (int h = 0; h < kHeads; ++h)
    for (int i = 0; i < kVectors; ++i) total[h][i] = load(at.heads[first + h]->o + d + i * kWidth);
  const float* p = at.weights[first];
  const size_t offset = d * Values::Type::kBytes;
  typename Values::Value value[kVectors];
  constexpr size_t kBytes = kVectorPairs * kPairBytes * Values::kTokens;
  constexpr int kPieces = kBytes < kPieceBytes ? 1 : static_cast<int>(kBytes / kPieceBytes);  // fetched at a time
  constexpr int kBetween = kHeads * kVectors / kPieces;                                       // multiplications
  const uint32_t interval = turns * static_cast<uint32_t>(kPieces * kPieceBytes / kBytes);
  Fetch fetch = next;  // in registers
  const auto add = [&](bool fetches) __attribute__((always_inline)) {
    for (int h = 0; h < kHeads; ++h) {
      const auto weight = Values::weight(p + h * kTile);
      for (int i = 0; i < kVectors; ++i) {
        total[h][i] = Values::add(weight, value[i], total[h][i]);
        if ((h * kVectors + i + 1) % kBetween == 0 && fetches) fetch_piece(fetch);
      }
    }
  };
  uint32_t wait = interval, t = 0;
  for (; t + Values::kTokens <= tokens; t += Values::kTokens, ++p) {
    asm("" : "+r"(p));  // one pointer: GCC makes one for each head, and keeps those that are too many in vectors
    for (int i = 0; i < kVectorPairs; ++i)
      Values::load_step(v + t, offset + i * kPairBytes, value[2 * i], value[2 * i + 1]);
    const bool fetches = --wait == 0;
    if (fetches) wait = interval;
    add(fetches);
  }
  if (t < tokens) {
    for (int i = 0; i < kVectorPairs; ++i)
      Values::load_last(v + t, offset + i * kPairBytes, value[2 * i], value[2 * i + 1]);
    add(false);
  }
  next = fetch;
  for (int h = 0; h < kHeads; ++h)
    for (int i = 0; i < kVectors; ++i) store(at.heads[first + h]->o + d + i * kWidth, total[h][i]);
}

// The dimensions beyond the last pair of vectors, from d on, of one head.
template <class Values>
void accumulate_rest(float* o, const float* weights, const char* const* v, uint32_t tokens, uint32_t d, uint32_t dim) {
  vf low = load(o + d), high = load(o + d + kWidth);
  for (uint32_t t = 0; t < tokens; t += Values::kTokens, ++weights) {
    typename Values::Value a, b;
    Values::load_part(v + t, tokens - t, d * Values::Type::kBytes, (dim - d) * Values::Type::kBytes, a, b);
    const auto weight = Values::weight(weights);
    low = Values::add(weight, a, low);
    high = Values::add(weight, b, high);
  }
  store(o + d, low);
  store(o + d + kWidth, high);
}

template <class Values, int kHeads>
void accumulate(Attending& at, uint32_t first, const char* const* v, uint32_t tokens, uint32_t dim, Fetch& next,
                uint32_t turns) {
  constexpr int kAccumulators = kRegisters == 32 ? 16 : 8;
  constexpr int kFitting = kAccumulators / kHeads / 2, kVectorPairs = kFitting > 4 ? 4 : kFitting;
  constexpr uint32_t kPair = 2 * kWidth;
  uint32_t d = 0;
  for (; d + kVectorPairs * kPair <= dim; d += kVectorPairs * kPair)
    accumulate_pairs<Values, kHeads, kVectorPairs>(at, first, v, tokens, d, next, turns);
  if constexpr (kVectorPairs > 1)
    for (; d + kPair <= dim; d += kPair) accumulate_pairs<Values, kHeads, 1>(at, first, v, tokens, d, next, turns);
  if (d < dim)
    for (uint32_t h = first; h < first + kHeads; ++h)
      accumulate_rest<Values>(at.heads[h]->o, at.weights[h], v, tokens, d, dim);
}

// Sums times `factor`, in the order of the dimensions.
template <class Values>
void store_sums(const float* sums, float factor, uint32_t dim, float* out) {
  constexpr uint32_t kPair = 2 * kWidth;
  struct Places {
    int32_t at[kPair];
  };
  static constexpr Places kPlaces = [] {
    Places places{};
    for (uint32_t i = 0; i < kPair; ++i) places.at[i] = static_cast<int32_t>(Values::place(i));
    return places;
  }();
  vi low, high;
  __builtin_memcpy(&low, kPlaces.at, sizeof low);
  __builtin_memcpy(&high, kPlaces.at + kWidth, sizeof high);
  for (uint32_t d = 0; d < dim; d += kPair) {
    const vf a = load(sums + d) * splat(factor), b = load(sums + d + kWidth) * splat(factor);
    const vf ordered[2] = {choose_lanes(a, b, low), choose_lanes(a, b, high)};
    __builtin_memcpy(out + d, ordered, (dim - d < kPair ? dim - d : kPair) * sizeof(float));
  }
}

}  // namespace
}  // namespace tandem::TANDEM_ISA_NAMESPACE
