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

#if defined(__AVX512F__)
constexpr int kWidth = 16;  // floats per vector
constexpr int kRegisters = 32;
#elif defined(__AVX2__)
constexpr int kWidth = 8;
constexpr int kRegisters = 16;
#else
constexpr int kWidth = 4;
constexpr int kRegisters = 16;
#endif

constexpr float kInfinity = __builtin_inff();

typedef float vf __attribute__((vector_size(4 * kWidth)));
typedef int32_t vi __attribute__((vector_size(4 * kWidth)));
typedef vf vf_unaligned __attribute__((aligned(1), may_alias));

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

TANDEM_INLINE vf maximum(vf a, vf b) {
  return a > b ? a : b;
}  // b where a is NaN
TANDEM_INLINE vf minimum(vf a, vf b) {
  return a < b ? a : b;
}

#if defined(__AVX512F__)
TANDEM_INLINE vf splat(float x) {
  return _mm512_set1_ps(x);
}
TANDEM_INLINE vf fma(vf a, vf b, vf c) {
  return _mm512_fmadd_ps(a, b, c);
}
#elif defined(__AVX2__)
TANDEM_INLINE vf splat(float x) {
  return _mm256_set1_ps(x);
}
TANDEM_INLINE vf fma(vf a, vf b, vf c) {
  return _mm256_fmadd_ps(a, b, c);
}
#else
TANDEM_INLINE vf splat(float x) {
  return _mm_set1_ps(x);
}
TANDEM_INLINE vf fma(vf a, vf b, vf c) {
  return a * b + c;
}
#endif

TANDEM_INLINE float sum(vf v) {  // a fixed tree
#if defined(__AVX512F__)
  const __m256 half = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
  const __m128 quarter = _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
#elif defined(__AVX2__)
  const __m128 quarter = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
#else
  const __m128 quarter = v;
#endif
  const __m128 pair = _mm_add_ps(quarter, _mm_movehl_ps(quarter, quarter));
  return _mm_cvtss_f32(_mm_add_ss(pair, _mm_movehdup_ps(pair)));
}

TANDEM_INLINE float maximum_of(vf v) {
  float best = v[0];
  for (int i = 1; i < kWidth; ++i) best = v[i] > best ? v[i] : best;
  return best;
}

// Lane i of the result is the sum of v[i], by a tree that is the same for every i.
TANDEM_INLINE vf sum_each(vf* v) {
#if defined(__AVX512F__)
#define TANDEM_FOLD(shuffle, a, b, low, high) _mm512_add_ps(shuffle(a, b, low), shuffle(a, b, high))
#define TANDEM_SHUFFLE _mm512_shuffle_ps
#elif defined(__AVX2__)
#define TANDEM_FOLD(shuffle, a, b, low, high) _mm256_add_ps(shuffle(a, b, low), shuffle(a, b, high))
#define TANDEM_SHUFFLE _mm256_shuffle_ps
#else
#define TANDEM_FOLD(shuffle, a, b, low, high) _mm_add_ps(shuffle(a, b, low), shuffle(a, b, high))
#define TANDEM_SHUFFLE _mm_shuffle_ps
#endif
  for (int i = 0; i < kWidth / 2; ++i) v[i] = TANDEM_FOLD(TANDEM_SHUFFLE, v[2 * i], v[2 * i + 1], 0x44, 0xee);
  for (int i = 0; i < kWidth / 4; ++i) v[i] = TANDEM_FOLD(TANDEM_SHUFFLE, v[2 * i], v[2 * i + 1], 0x88, 0xdd);
#if defined(__AVX512F__)
  for (int i = 0; i < 2; ++i) v[i] = TANDEM_FOLD(_mm512_shuffle_f32x4, v[2 * i], v[2 * i + 1], 0x44, 0xee);
  v[0] = TANDEM_FOLD(_mm512_shuffle_f32x4, v[0], v[1], 0x88, 0xdd);
#elif defined(__AVX2__)
  v[0] = TANDEM_FOLD(_mm256_permute2f128_ps, v[0], v[1], 0x20, 0x31);
#endif
#undef TANDEM_FOLD
#undef TANDEM_SHUFFLE
  return v[0];
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

// Loads of stored weights, converted exactly.
struct F32 {
  static constexpr size_t kBytes = 4;
  __attribute__((always_inline)) static inline vf load(const char* p) {
    return *reinterpret_cast<const vf_unaligned*>(p);
  }
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

struct BF16 {
  static constexpr size_t kBytes = 2;
  __attribute__((always_inline)) static inline vf load(const char* p) {
    return reinterpret_cast<vf>(widen(*reinterpret_cast<const v16bits_unaligned*>(p)) << 16);
  }
};
struct F16 {
  static constexpr size_t kBytes = 2;
  __attribute__((always_inline)) static inline vf load(const char* p) {
    const v16bits bits = *reinterpret_cast<const v16bits_unaligned*>(p);
#if defined(__AVX512F__)
    return _mm512_cvtph_ps(bits);
#elif defined(__AVX2__)
    return _mm256_cvtph_ps(bits);
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
};

// The first `count` < kWidth weights, the rest 0.
template <class Type>
TANDEM_INLINE vf load_first_weights(const char* p, int count) {
  char padded[4 * kWidth] = {};
  __builtin_memcpy(padded, p, static_cast<size_t>(count) * Type::kBytes);
  return Type::load(padded);
}

}  // namespace tandem::TANDEM_ISA_NAMESPACE
