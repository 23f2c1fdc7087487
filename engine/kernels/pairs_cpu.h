// Products of bf16 matrices on CPUs that multiply pairs of bf16 (vdpbf16ps), by panels of 64 columns. Included by
// *_cpu.cc alone.
#pragma once

#include "engine/kernels/vec.h"

#if defined(__AVX512BF16__)

namespace tandem::TANDEM_ISA_NAMESPACE {
namespace {

constexpr uint32_t kPairs = 16;   // 32-bit pairs of bf16 per vector
constexpr int kPanelVectors = 4;  // of 16 columns: with kPanelRows rows 24 accumulators
constexpr int kPanelRows = 6;
constexpr uint32_t kPanelColumns = kPanelVectors * kPairs;

TANDEM_INLINE __m512bh as_pairs(__m512i v) {
  return reinterpret_cast<__m512bh>(v);
}

// v[i] becomes what was column i of v, for 16 x 16 numbers of 32 bits.
TANDEM_INLINE void transpose(__m512i* v) {
  __m512i t[16];
  for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_epi32(v[i], v[i + 1]);
    t[i + 1] = _mm512_unpackhi_epi32(v[i], v[i + 1]);
  }
  for (int i = 0; i < 16; i += 4)
    for (int j = 0; j < 2; ++j) {
      v[i + 2 * j] = _mm512_unpacklo_epi64(t[i + j], t[i + j + 2]);
      v[i + 2 * j + 1] = _mm512_unpackhi_epi64(t[i + j], t[i + j + 2]);
    }
  // v[4 a + b] holds, in lane q, column 4 q + b of rows 4 a .. 4 a + 3.
  for (int b = 0; b < 4; ++b) {
    const __m512i low = _mm512_shuffle_i32x4(v[b], v[4 + b], 0x44), high = _mm512_shuffle_i32x4(v[b], v[4 + b], 0xee);
    const __m512i low2 = _mm512_shuffle_i32x4(v[8 + b], v[12 + b], 0x44),
                  high2 = _mm512_shuffle_i32x4(v[8 + b], v[12 + b], 0xee);
    t[b] = _mm512_shuffle_i32x4(low, low2, 0x88);
    t[4 + b] = _mm512_shuffle_i32x4(low, low2, 0xdd);
    t[8 + b] = _mm512_shuffle_i32x4(high, high2, 0x88);
    t[12 + b] = _mm512_shuffle_i32x4(high, high2, 0xdd);
  }
  for (int i = 0; i < 16; ++i) v[i] = t[i];
}

// c[kR][64] = (or += where add) a[kR][pairs] times b[pairs][64]; rows of a are `a_stride` pairs apart.
template <int kR>
TANDEM_INLINE void pairs_block(const int32_t* a, size_t a_stride, const __m512i* b, uint32_t pairs, float* c,
                               size_t c_stride, bool add) {
  vf total[kR][kPanelVectors] = {};
  if (add)
    for (int r = 0; r < kR; ++r)
      for (int i = 0; i < kPanelVectors; ++i) total[r][i] = load(c + r * c_stride + i * kWidth);
  for (uint32_t line = 0; line < pairs; line += kPairs) {
    for (int r = 0; r < kR; ++r) __builtin_prefetch(a + (kR + r) * a_stride + line, 0, 3);  // of the next rows
    for (uint32_t k = line; k < line + kPairs; ++k) {
      __m512bh weights[kPanelVectors];
      for (int i = 0; i < kPanelVectors; ++i) weights[i] = as_pairs(b[k * kPanelVectors + i]);
      for (int r = 0; r < kR; ++r) {
        const __m512bh value = as_pairs(_mm512_set1_epi32(a[r * a_stride + k]));
        for (int i = 0; i < kPanelVectors; ++i) total[r][i] = _mm512_dpbf16_ps(total[r][i], value, weights[i]);
      }
    }
  }
  for (int r = 0; r < kR; ++r)
    for (int i = 0; i < kPanelVectors; ++i) store(c + r * c_stride + i * kWidth, total[r][i]);
}

}  // namespace
}  // namespace tandem::TANDEM_ISA_NAMESPACE

#endif
