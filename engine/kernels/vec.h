// The vector register of the instruction set that a *_cpu.cc is being compiled for: a few operations, nothing more.
// Included by *_cpu.cc alone. Those files are compiled several times with different flags, so nothing here or in them
// may have external linkage outside TANDEM_ISA_NAMESPACE, and they include no C++ library header: an inline function
// that the compiler emits for AVX-512 could be the copy that the linker keeps for every CPU.
#pragma once

#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>

#ifndef TANDEM_ISA_NAMESPACE
#error "vec.h belongs to files that are compiled once per instruction set"
#endif

namespace tandem::TANDEM_ISA_NAMESPACE {

#define TANDEM_INLINE static inline __attribute__((always_inline))

// TANDEM_MM(add_ps) is the intrinsic of that name for whole vectors.
#if defined(__AVX512F__)
constexpr int kWidth = 16;  // floats per vector
constexpr int kRegisters = 32;
#define TANDEM_MM(name) _mm512_##name
#elif defined(__AVX2__)
constexpr int kWidth = 8;
constexpr int kRegisters = 16;
#define TANDEM_MM(name) _mm256_##name
#else
constexpr int kWidth = 4;
constexpr int kRegisters = 16;
#define TANDEM_MM(name) _mm_##name
#endif

constexpr float kLargest = 3.402823466e+38f;
// Weights of an online softmax are exp(score - m) with m up to this much below the largest score so far. Moving m for
// each new maximum would cost a pass over the sums each time and its rounding; exp(8) = 2981 keeps far from overflow.
constexpr float kSlack = 8.0f;
constexpr float kInfinity = __builtin_inff();

typedef float vf __attribute__((vector_size(4 * kWidth)));
typedef int32_t vi __attribute__((vector_size(4 * kWidth)));
typedef vf vf_unaligned __attribute__((aligned(1), may_alias));
typedef vi vi_unaligned __attribute__((aligned(1), may_alias));

TANDEM_INLINE vf load(const float* p) {
  return *reinterpret_cast<const vf_unaligned*>(p);
}
TANDEM_INLINE void store(float* p, vf v) {
  *reinterpret_cast<vf_unaligned*>(p) = v;
}

// The first `count` < kWidth floats, the rest 0; touches nothing beyond them.
TANDEM_INLINE vf load_first(const float* p, int count) {
#if defined(__AVX512F__)
  return _mm512_maskz_loadu_ps(static_cast<__mmask16>((1u << count) - 1), p);
#else
  vf v = {};
  __builtin_memcpy(&v, p, static_cast<size_t>(count) * 4);
  return v;
#endif
}
TANDEM_INLINE void store_first(float* p, vf v, int count) {
  __builtin_memcpy(p, &v, static_cast<size_t>(count) * 4);
}

// a > b ? a : b and a < b ? a : b, which GCC makes two instructions of: b where one is NaN.
TANDEM_INLINE vf maximum(vf a, vf b) {
  return TANDEM_MM(max_ps)(a, b);
}
TANDEM_INLINE vf minimum(vf a, vf b) {
  return TANDEM_MM(min_ps)(a, b);
}
TANDEM_INLINE vf splat(float x) {
  return TANDEM_MM(set1_ps)(x);
}
TANDEM_INLINE vf fma(vf a, vf b, vf c) {
#if defined(__FMA__)
  return TANDEM_MM(fmadd_ps)(a, b, c);
#else
  return a * b + c;
#endif
}

// All lanes combined into one, by a fixed tree. combine(): of two __m256 or __m128.
template <class Combine>
TANDEM_INLINE float combine_lanes(vf v, const Combine& combine) {
#if defined(__AVX512F__)
  const __m256 half = combine(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
#elif defined(__AVX2__)
  const __m256 half = v;
#endif
#if defined(__AVX2__)
  const __m128 quarter = combine(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
#else
  const __m128 quarter = v;
#endif
  const __m128 pair = combine(quarter, _mm_movehl_ps(quarter, quarter));
  return _mm_cvtss_f32(combine(pair, _mm_movehdup_ps(pair)));
}
TANDEM_INLINE float sum(vf v) {
  return combine_lanes(
      v, [](auto a, auto b) __attribute__((always_inline)) { return a + b; });
}
TANDEM_INLINE float maximum_of(vf v) {
  return combine_lanes(
      v, [](auto a, auto b) __attribute__((always_inline)) {
        if constexpr (sizeof a == sizeof(__m128))
          return _mm_max_ps(a, b);
        else
          return _mm256_max_ps(a, b);
      });
}

TANDEM_INLINE vi lane_numbers() {
  vi lane;
  for (int i = 0; i < kWidth; ++i) lane[i] = i;
  return lane;
}
// The first `count` lanes, the rest 0.
TANDEM_INLINE vf first_lanes(vf v, uint32_t count) {
  return reinterpret_cast<vf>(reinterpret_cast<vi>(v) & (lane_numbers() < static_cast<int32_t>(count)));
}
// Lane i of v becomes lane i + by, modulo kWidth.
TANDEM_INLINE vf rotate_lanes(vf v, uint32_t by) {
  const vi from = (lane_numbers() - static_cast<int32_t>(by)) & (kWidth - 1);
#if defined(__AVX512F__)
  return _mm512_permutexvar_ps(reinterpret_cast<__m512i>(from), v);
#elif defined(__AVX2__)
  return _mm256_permutevar8x32_ps(v, reinterpret_cast<__m256i>(from));
#else
  const vi bytes = from * 0x04040404 + 0x03020100;
  return reinterpret_cast<vf>(_mm_shuffle_epi8(reinterpret_cast<__m128i>(v), reinterpret_cast<__m128i>(bytes)));
#endif
}

// Lane i is lane from[i] of a, or of b where it is kWidth or more.
TANDEM_INLINE vf choose_lanes(vf a, vf b, vi from) {
#if defined(__AVX512F__)
  return _mm512_permutex2var_ps(a, reinterpret_cast<__m512i>(from), b);
#else
  vf v = {};
  for (int i = 0; i < kWidth; ++i) v[i] = from[i] < kWidth ? a[from[i]] : b[from[i] - kWidth];
  return v;
#endif
}

// Halves of two vectors side by side, or every second quarter: those of a, then those of b.
#if defined(__AVX2__) && !defined(__AVX512F__)
TANDEM_INLINE vf low_halves(vf a, vf b) {
  return _mm256_permute2f128_ps(a, b, 0x20);
}
TANDEM_INLINE vf high_halves(vf a, vf b) {
  return _mm256_permute2f128_ps(a, b, 0x31);
}
#else
#if defined(__AVX512F__)
#define TANDEM_QUARTERS _mm512_shuffle_f32x4
#else
#define TANDEM_QUARTERS _mm_shuffle_ps
#endif
TANDEM_INLINE vf low_halves(vf a, vf b) {
  return TANDEM_QUARTERS(a, b, 0x44);
}
TANDEM_INLINE vf high_halves(vf a, vf b) {
  return TANDEM_QUARTERS(a, b, 0xee);
}
TANDEM_INLINE vf even_quarters(vf a, vf b) {
  return TANDEM_QUARTERS(a, b, 0x88);
}
TANDEM_INLINE vf odd_quarters(vf a, vf b) {
  return TANDEM_QUARTERS(a, b, 0xdd);
}
#endif

// Sums of whole vectors, several at a time: level by level, fold<L>(a, b) halves what is left of a and of b and puts
// them into one vector. Lane i of what log2(kWidth) levels make of v[0..kWidth) is the sum of v[i], by a tree that is
// the same for every i.
template <int kLevel>
TANDEM_INLINE vf fold(vf a, vf b) {
  if constexpr (kLevel == 0) return TANDEM_MM(shuffle_ps)(a, b, 0x44) + TANDEM_MM(shuffle_ps)(a, b, 0xee);
  if constexpr (kLevel == 1) return TANDEM_MM(shuffle_ps)(a, b, 0x88) + TANDEM_MM(shuffle_ps)(a, b, 0xdd);
  if constexpr (kLevel == 2) return low_halves(a, b) + high_halves(a, b);
#if defined(__AVX512F__)
  if constexpr (kLevel == 3) return even_quarters(a, b) + odd_quarters(a, b);
#endif
}
// Folds kCount vectors that have kLevel levels behind them into one.
template <int kCount, int kLevel = 0>
TANDEM_INLINE vf fold_all(vf* v) {
  if constexpr (kCount > 1) {
    for (int i = 0; i < kCount / 2; ++i) v[i] = fold<kLevel>(v[2 * i], v[2 * i + 1]);
    return fold_all<kCount / 2, kLevel + 1>(v);
  }
  return v[0];
}

// Whether a lane of a is above that of b.
TANDEM_INLINE bool any_above(vf a, vf b) {
#if defined(__AVX512F__)
  return _mm512_cmp_ps_mask(a, b, _CMP_GT_OQ) != 0;
#elif defined(__AVX2__)
  return _mm256_movemask_ps(_mm256_cmp_ps(a, b, _CMP_GT_OQ)) != 0;
#else
  return _mm_movemask_ps(_mm_cmpgt_ps(a, b)) != 0;
#endif
}

// Block j of v[i], of kCount vectors of kCount equal blocks, becomes block i of v[j].
template <int kCount>
TANDEM_INLINE void transpose_blocks(vf* v) {
  static_assert(kCount == 1 || kCount == 2 || kCount == 4);
  if constexpr (kCount == 2) {
    const vf a = v[0], b = v[1];
    v[0] = low_halves(a, b);
    v[1] = high_halves(a, b);
  }
  if constexpr (kCount == 4) {
#if defined(__AVX2__) && !defined(__AVX512F__)
    const vf a = _mm256_shuffle_ps(v[0], v[1], 0x44), b = _mm256_shuffle_ps(v[2], v[3], 0x44),
             c = _mm256_shuffle_ps(v[0], v[1], 0xee), d = _mm256_shuffle_ps(v[2], v[3], 0xee);
    v[0] = low_halves(a, b);
    v[1] = low_halves(c, d);
    v[2] = high_halves(a, b);
    v[3] = high_halves(c, d);
#else
    const vf a = low_halves(v[0], v[1]), b = low_halves(v[2], v[3]), c = high_halves(v[0], v[1]),
             d = high_halves(v[2], v[3]);
    v[0] = even_quarters(a, b);
    v[1] = odd_quarters(a, b);
    v[2] = even_quarters(c, d);
    v[3] = odd_quarters(c, d);
#endif
  }
}

// e^x within 2 ulp for x <= 88; larger x count as 88, x below -87 (also -infinity) gives 0. x = k ln 2 + r with ln 2 in
// two parts, and the Taylor polynomial of degree 7 on |r| <= ln 2 / 2, whose remainder is below 6e-9.
TANDEM_INLINE vf exp(vf x) {
  const vf bounded = minimum(maximum(x, splat(-87.0f)), splat(88.0f));
  const vf magic = splat(12582912.0f);  // 1.5 * 2^23: adding it rounds to an integer that sits in the low bits
  const vf shifted = fma(bounded, splat(1.44269504f), magic);
  const vf k = shifted - magic;
  const vf r = fma(k, splat(-1.42860677e-06f), fma(k, splat(-0.693145752f), bounded));
  vf p = splat(1.0f / 5040);
  p = fma(p, r, splat(1.0f / 720));
  p = fma(p, r, splat(1.0f / 120));
  p = fma(p, r, splat(1.0f / 24));
  p = fma(p, r, splat(1.0f / 6));
  p = fma(p, r, splat(0.5f));
  p = fma(p, r, splat(1.0f));
  p = fma(p, r, splat(1.0f));
  const vi power = (reinterpret_cast<vi>(shifted) << 23) + reinterpret_cast<vi>(splat(1.0f));
  const vf result = p * reinterpret_cast<vf>(power);
  return x < splat(-87.0f) ? vf{} : result;
}

// Stored types: loads convert exactly, stores round to nearest even.
//
// load_pair loads 2 kWidth numbers into two vectors, in an order of which pair_place tells where number i went.
template <class Type, size_t kSize>
struct InOrder {  // NOLINT(bugprone-crtp-constructor-accessibility): nobody makes one, and F32{} must stay an aggregate
  static constexpr size_t kBytes = kSize;
  TANDEM_INLINE void load_pair(const char* p, vf& a, vf& b) {
    a = Type::load(p);
    b = Type::load(p + kWidth * kBytes);
  }
  static constexpr uint32_t pair_place(uint32_t i) { return i; }
};
struct F32 : InOrder<F32, 4> {
  TANDEM_INLINE vf load(const char* p) { return *reinterpret_cast<const vf_unaligned*>(p); }
  TANDEM_INLINE void store(char* p, vf v) { *reinterpret_cast<vf_unaligned*>(p) = v; }
};
#if defined(__AVX512F__)
typedef __m256i v16bits;
#elif defined(__AVX2__)
typedef __m128i v16bits;
#else
typedef int64_t v16bits;
#endif
typedef v16bits v16bits_unaligned __attribute__((aligned(1), may_alias));

TANDEM_INLINE vi widen(v16bits bits) {
#if defined(__AVX512F__)
  return reinterpret_cast<vi>(_mm512_cvtepu16_epi32(bits));
#elif defined(__AVX2__)
  return reinterpret_cast<vi>(_mm256_cvtepu16_epi32(bits));
#else
  return reinterpret_cast<vi>(_mm_cvtepu16_epi32(_mm_cvtsi64_si128(bits)));
#endif
}
// The low halves of the lanes, which are below 2^16.
TANDEM_INLINE v16bits narrow(vi lanes) {
#if defined(__AVX512F__)
  return _mm512_cvtepi32_epi16(reinterpret_cast<__m512i>(lanes));
#elif defined(__AVX2__)
  const __m256i packed = _mm256_packus_epi32(reinterpret_cast<__m256i>(lanes), reinterpret_cast<__m256i>(lanes));
  return _mm256_castsi256_si128(_mm256_permute4x64_epi64(packed, 0x08));
#else
  const __m128i packed = _mm_packus_epi32(reinterpret_cast<__m128i>(lanes), reinterpret_cast<__m128i>(lanes));
  return _mm_cvtsi128_si64(packed);
#endif
}

// Of the bits of floats: which are NaN, as a mask.
TANDEM_INLINE vi is_nan(vi bits) {
  return (bits & 0x7fffffff) > 0x7f800000;
}

// To the nearest bf16, ties to even.
TANDEM_INLINE vf number_to_bf16(vf v) {  // which is not NaN
  const vi bits = reinterpret_cast<vi>(v);
  return reinterpret_cast<vf>((bits + 0x7fff + ((bits >> 16) & 1)) & static_cast<int32_t>(0xffff0000));
}
TANDEM_INLINE vf rounded_to_bf16(vf v) {
  const vi bits = reinterpret_cast<vi>(v);
  const vi quiet = (bits | 0x00400000) & static_cast<int32_t>(0xffff0000);
  return reinterpret_cast<vf>(is_nan(bits) ? quiet : reinterpret_cast<vi>(number_to_bf16(v)));
}

struct BF16 {
  static constexpr size_t kBytes = 2;
  // Even and odd numbers apart, which takes two instructions where natural order takes four.
  TANDEM_INLINE void load_pair(const char* p, vf& a, vf& b) {
    const vi bits = *reinterpret_cast<const vi_unaligned*>(p);
    a = reinterpret_cast<vf>(bits << 16);
    b = reinterpret_cast<vf>(bits & static_cast<int32_t>(0xffff0000));
  }
  static constexpr uint32_t pair_place(uint32_t i) { return i / 2 + i % 2 * kWidth; }
  TANDEM_INLINE vf load(const char* p) {
    return reinterpret_cast<vf>(widen(*reinterpret_cast<const v16bits_unaligned*>(p)) << 16);
  }
  TANDEM_INLINE void store(char* p, vf v) {
    const vi bits = reinterpret_cast<vi>(v);
    const vi top = (bits >> 16) & 0xffff;
    const vi rounded = ((bits + 0x7fff + (top & 1)) >> 16) & 0xffff;
    *reinterpret_cast<v16bits_unaligned*>(p) = narrow(is_nan(bits) ? top | 0x40 : rounded);
  }
};
struct F16 : InOrder<F16, 2> {
  TANDEM_INLINE vf load(const char* p) {
    const v16bits bits = *reinterpret_cast<const v16bits_unaligned*>(p);
#if defined(__F16C__)
    return TANDEM_MM(cvtph_ps)(bits);
#else
    // Exponent and mantissa moved into place are the value times 2^-112, subnormals too; infinities and NaN by hand.
    const vi wide = widen(bits);
    const vi magnitude = (wide & 0x7fff) << 13;
    const vi finite = reinterpret_cast<vi>(reinterpret_cast<vf>(magnitude) * splat(0x1p112f));
    const vi special = magnitude | 0x7f800000;
    const vi value = (wide & 0x7c00) == 0x7c00 ? special : finite;
    return reinterpret_cast<vf>(value | ((wide & 0x8000) << 16));
#endif
  }
  TANDEM_INLINE void store(char* p, vf v) {
#if defined(__F16C__)
    *reinterpret_cast<v16bits_unaligned*>(p) = TANDEM_MM(cvtps_ph)(v, _MM_FROUND_TO_NEAREST_INT);
#else
    // As float_to_f16 in convert.cc, which says why.
    const vi bits = reinterpret_cast<vi>(v), sign = (bits >> 16) & 0x8000, magnitude = bits & 0x7fffffff;
    const vi small = reinterpret_cast<vi>(reinterpret_cast<vf>(magnitude) + splat(0.5f)) - 0x3f000000;
    const vi normal = (magnitude - 0x38000000 + 0xfff + ((magnitude >> 13) & 1)) >> 13;
    vi rest = magnitude < 0x38800000 ? small : normal;
    rest = magnitude >= 0x477ff000 ? vi{} + 0x7c00 : rest;
    rest = magnitude > 0x7f800000 ? vi{} + 0x7e00 : rest;
    *reinterpret_cast<v16bits_unaligned*>(p) = narrow(sign | rest);
#endif
  }
};

// Returns function<Type>(...) for the stored type that `type` names.
#define TANDEM_RETURN_BY_TYPE(type, function, ...) \
  switch (type) {                                  \
    case DType::f32:                               \
      return function<F32>(__VA_ARGS__);           \
    case DType::f16:                               \
      return function<F16>(__VA_ARGS__);           \
    case DType::bf16:                              \
      return function<BF16>(__VA_ARGS__);          \
  }                                                \
  static_assert(true)

// The first `count` < kWidth weights, the rest 0.
template <class Type>
TANDEM_INLINE vf load_first_weights(const char* p, int count) {
  char padded[4 * kWidth] = {};
  __builtin_memcpy(padded, p, static_cast<size_t>(count) * Type::kBytes);
  return Type::load(padded);
}
template <class Type>
TANDEM_INLINE void store_first_weights(char* p, vf v, int count) {
  char padded[4 * kWidth];
  Type::store(padded, v);
  __builtin_memcpy(p, padded, static_cast<size_t>(count) * Type::kBytes);
}

}  // namespace tandem::TANDEM_ISA_NAMESPACE
