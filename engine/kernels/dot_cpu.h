// Dot products of query heads with keys as they are stored. Included by *_cpu.cc alone.
//
// A dot product is one vector accumulator that runs over the dimensions from left to right and a fixed tree over its
// lanes, whatever heads and tokens are computed beside it, so its bits depend on the query and the key alone.
#pragma once

#include "engine/kernels/kernels_cpu.h"
#include "engine/kernels/vec.h"

namespace tandem::TANDEM_ISA_NAMESPACE {
namespace {

struct VectorPair {
  vf a, b;
};

// f32 queries and keys that are converted to f32, in the order of load_pair.
template <class Stored>
struct WidenedKeys {
  typedef Stored Type;
  typedef VectorPair Key;
  typedef VectorPair Query;
  static constexpr uint32_t kStep = 2 * kWidth;  // dimensions per step
  static constexpr size_t kQueryBytes = 4;
  static constexpr bool kInPairs = true;
  TANDEM_INLINE Key key(const char* p) {
    Key key;
    Type::load_pair(p, key.a, key.b);
    return key;
  }
  TANDEM_INLINE Key first_of_key(const char* p, int count) {
    if (count < kWidth) return {load_first_weights<Type>(p, count), vf{}};
    return {Type::load(p), load_first_weights<Type>(p + kWidth * Type::kBytes, count - kWidth)};
  }
  TANDEM_INLINE Query query(const char* p) { return {F32::load(p), F32::load(p + kWidth * sizeof(float))}; }
  TANDEM_INLINE vf add(const Query& query, const Key& key, vf total) {
    return fma(key.b, query.b, fma(key.a, query.a, total));
  }
};
typedef WidenedKeys<F32> DotF32;
typedef WidenedKeys<F16> DotF16;

#if defined(__AVX512BF16__)
// Pairs of bf16: half the instructions of the conversion and as much arithmetic again for free (2 x 32 products a cycle
// on Zen 5). Queries are stored as bf16.
struct DotBF16 {
  typedef BF16 Type;
  typedef __m512bh Key;
  typedef __m512bh Query;
  static constexpr uint32_t kStep = 32;
  static constexpr size_t kQueryBytes = 2;
  static constexpr bool kInPairs = false;
  TANDEM_INLINE Key key(const char* p) { return reinterpret_cast<Key>(_mm512_loadu_si512(p)); }
  TANDEM_INLINE Key first_of_key(const char* p, int count) {
    return reinterpret_cast<Key>(_mm512_maskz_loadu_epi16((1u << count) - 1, p));
  }
  TANDEM_INLINE Query query(const char* p) { return key(p); }
  TANDEM_INLINE vf add(Query query, Key key, vf total) { return _mm512_dpbf16_ps(total, query, key); }
};
#else
typedef WidenedKeys<BF16> DotBF16;
#endif

// Queries are rounded to bf16 where keys are bf16, with every instruction set: vdpbf16ps takes nothing else, and
// results should not depend on the CPU by more than the rounding of sums.
template <class Dot>
constexpr bool kRoundsQueries = __is_same(typename Dot::Type, BF16);

// The scale of scores that a prepared query does not contain yet.
template <class Dot>
TANDEM_INLINE float score_scale(uint32_t dim) {
  return kRoundsQueries<Dot> ? 1.0f / __builtin_sqrtf(static_cast<float>(dim)) : 1.0f;
}

// out: [group][padded_dim(dim)] floats; a query takes kQueryBytes per dimension of its row and is 0 beyond dim.
template <class Dot>
void prepare_queries(const float* q, uint32_t group, uint32_t dim, float* out) {
  const size_t padded = padded_dim(dim);
  const float scale = kRoundsQueries<Dot> ? 1.0f : 1.0f / __builtin_sqrtf(static_cast<float>(dim));
  for (uint32_t h = 0; h < group; ++h) {
    float* row = out + h * padded;
    const float* from = q + size_t{dim} * h;
    for (uint32_t d = 0; d < padded; ++d) row[d] = 0.0f;
    if (!Dot::kInPairs) {
      narrow(from, DType::bf16, dim, row);
      continue;
    }
    const uint32_t whole = dim / Dot::kStep * Dot::kStep;
    for (uint32_t d = 0; d < dim; d += Dot::kStep) {
      float values[Dot::kStep];
      const uint32_t count = d < whole ? Dot::kStep : dim - d;
      if (kRoundsQueries<Dot>)
        round_to_bf16(from + d, count, values);
      else
        __builtin_memcpy(values, from + d, count * sizeof(float));
      for (uint32_t i = 0; i < count; ++i) row[d + (d < whole ? Dot::Type::pair_place(i) : i)] = values[i] * scale;
    }
  }
}

// Dot products of kHeads heads with kTokens tokens, kHeads * kTokens = kWidth: lane kTokens h + t is that of head h and
// token t. Of each step of whole vectors `beside(d, i)` is called with its dimension and after multiplication i <
// kWidth.
template <class Dot, int kHeads, class Beside>
TANDEM_INLINE vf dot_heads(const char* const* q, const char* const* k, uint32_t dim, const Beside& beside) {
  constexpr int kTokens = kWidth / kHeads;
  constexpr size_t kBytes = Dot::Type::kBytes;
  vf total[kHeads][kTokens] = {};
  const auto step = [&](const typename Dot::Key(&keys)[kTokens], uint32_t d, const auto& after)
      __attribute__((always_inline)) {
    for (int h = 0; h < kHeads; ++h) {
      const typename Dot::Query query = Dot::query(q[h] + d * Dot::kQueryBytes);
      for (int t = 0; t < kTokens; ++t) {
        total[h][t] = Dot::add(query, keys[t], total[h][t]);
        after(d, h * kTokens + t);
      }
    }
  };
  typename Dot::Key keys[kTokens];
  uint32_t d = 0;
  for (; d + Dot::kStep <= dim; d += Dot::kStep) {
    for (int t = 0; t < kTokens; ++t) keys[t] = Dot::key(k[t] + d * kBytes);
    step(keys, d, beside);
  }
  if (d < dim) {
    for (int t = 0; t < kTokens; ++t) keys[t] = Dot::first_of_key(k[t] + d * kBytes, static_cast<int>(dim - d));
    step(keys, d, [](uint32_t, int) {});
  }
  constexpr int kDone = kTokens == 1 ? 0 : kTokens == 2 ? 1 : kTokens == 4 ? 2 : kTokens == 8 ? 3 : 4;  // levels
  vf of_heads[kHeads];
  for (int h = 0; h < kHeads; ++h) of_heads[h] = fold_all<kTokens>(total[h]);
  return fold_all<kHeads, kDone>(of_heads);
}

}  // namespace
}  // namespace tandem::TANDEM_ISA_NAMESPACE
