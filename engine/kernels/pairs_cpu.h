// Products of bf16 matrices on CPUs that multiply pairs of bf16, by panels of 64 columns: with vdpbf16ps, or in the
// build with AMX by tiles of 16 x 16. Included by *_cpu.cc alone.
#pragma once

#include "engine/kernels/amx_cpu.h"
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

#if defined(__AMX_BF16__)
// Why not vdpbf16ps here: two cores of a Sapphire Rapids multiply 147 GFLOP/s with it, as many as with f32.

constexpr uint32_t kChunkRows = 32;  // of a at a time: two tiles of 16, times two of 16 columns
// 0 to 3 are sums, 4 and 5 rows of a, up to 16 each, 6 and 7 of b.
class PanelTiles : public Tiles {
 public:
  explicit PanelTiles(uint8_t rows) : Tiles(TileShapes{{rows, rows, rows, rows, rows, rows, kTileRows, kTileRows}}) {}
};

// c[rows][32] of 32 columns of b, rows as the tiles say, of two tiles where kBoth.
template <bool kBoth>
TANDEM_INLINE void tiles_block(const int32_t* a, size_t a_stride, const __m512i* b, uint32_t pairs, float* c,
                               size_t c_stride, bool add) {
  const size_t row = c_stride * sizeof(float);
  written(a);
  if (add) {
    _tile_loadd(0, c, row);
    _tile_loadd(1, c + 16, row);
    if (kBoth) {
      _tile_loadd(2, c + 16 * c_stride, row);
      _tile_loadd(3, c + 16 * c_stride + 16, row);
    }
  } else {
    _tile_zero(0);
    _tile_zero(1);
    if (kBoth) {
      _tile_zero(2);
      _tile_zero(3);
    }
  }
  for (uint32_t k = 0; k < pairs; k += kPairs) {
    _tile_loadd(6, b + size_t{k} * kPanelVectors, kPanelVectors * kRowBytes);
    _tile_loadd(7, b + size_t{k} * kPanelVectors + 1, kPanelVectors * kRowBytes);
    _tile_loadd(4, a + k, a_stride * sizeof(int32_t));
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    if (kBoth) {
      _tile_loadd(5, a + 16 * a_stride + k, a_stride * sizeof(int32_t));
      _tile_dpbf16ps(2, 5, 6);
      _tile_dpbf16ps(3, 5, 7);
    }
  }
  _tile_stored(0, c, row);
  _tile_stored(1, c + 16, row);
  if (kBoth) {
    _tile_stored(2, c + 16 * c_stride, row);
    _tile_stored(3, c + 16 * c_stride + 16, row);
  }
}

constexpr uint32_t kRowStep = kTileRows;
// Tiles of whole rows, which pairs_of_whole_rows() needs while it runs. Setting them up takes as long as some products.
class WholeRows : public PanelTiles {
 public:
  WholeRows() : PanelTiles(kTileRows) {}
};

// c[rows][columns] = (or += where add) a[rows][pairs] times the first columns, 32 or 64, of b[pairs][64]; rows is a
// multiple of kRowStep, rows of a are `a_stride` pairs apart. before_chunk() is called before every kChunkRows rows.
// All pairs at once: by 128, which would stay in the first-level cache, sums are loaded and stored more often, and 512
// rows times 4096 -> 14336 took 1.45 times as long.
template <class BeforeChunk>
TANDEM_INLINE void pairs_of_whole_rows(const int32_t* a, size_t a_stride, const __m512i* b, uint32_t pairs, float* c,
                                       size_t c_stride, uint32_t rows, uint32_t columns, bool add,
                                       const BeforeChunk& before_chunk) {
  for (uint32_t r = 0; r < rows; r += kChunkRows) {
    before_chunk();
    for (uint32_t j = 0; j < columns; j += 32) {
      const int32_t* from = a + r * a_stride;
      float* to = c + r * c_stride + j;
      if (rows - r >= kChunkRows)
        tiles_block<true>(from, a_stride, b + j / kPairs, pairs, to, c_stride, add);
      else
        tiles_block<false>(from, a_stride, b + j / kPairs, pairs, to, c_stride, add);
    }
  }
}

// The same for any number of rows.
template <class BeforeChunk>
TANDEM_INLINE void pairs_rows(const int32_t* a, size_t a_stride, const __m512i* b, uint32_t pairs, float* c,
                              size_t c_stride, uint32_t rows, uint32_t columns, bool add,
                              const BeforeChunk& before_chunk) {
  const uint32_t rest = rows % kTileRows, whole = rows - rest;
  if (whole > 0) {
    const WholeRows tiles;
    pairs_of_whole_rows(a, a_stride, b, pairs, c, c_stride, whole, columns, add, before_chunk);
  }
  if (rest == 0) return;
  const PanelTiles tiles(static_cast<uint8_t>(rest));
  for (uint32_t j = 0; j < columns; j += 32)
    tiles_block<false>(a + whole * a_stride, a_stride, b + j / kPairs, pairs, c + whole * c_stride + j, c_stride, add);
}

#else
constexpr uint32_t kChunkRows = kPanelRows;
constexpr uint32_t kRowStep = 1;
struct WholeRows {};

// c[kR][16 kV] = (or += where add) a[kR][pairs] times the first kV vectors of b[pairs][64].
template <int kR, int kV>
TANDEM_INLINE void pairs_block(const int32_t* a, size_t a_stride, const __m512i* b, uint32_t pairs, float* c,
                               size_t c_stride, bool add) {
  vf total[kR][kV] = {};
  if (add)
    for (int r = 0; r < kR; ++r)
      for (int i = 0; i < kV; ++i) total[r][i] = load(c + r * c_stride + i * kWidth);
  for (uint32_t line = 0; line < pairs; line += kPairs) {
    for (int r = 0; r < kR; ++r) __builtin_prefetch(a + (kR + r) * a_stride + line, 0, 3);  // of the next rows
    for (uint32_t k = line; k < line + kPairs; ++k) {
      __m512bh weights[kV];
      for (int i = 0; i < kV; ++i) weights[i] = as_pairs(b[k * kPanelVectors + i]);
      for (int r = 0; r < kR; ++r) {
        const __m512bh value = as_pairs(_mm512_set1_epi32(a[r * a_stride + k]));
        for (int i = 0; i < kV; ++i) total[r][i] = _mm512_dpbf16_ps(total[r][i], value, weights[i]);
      }
    }
  }
  for (int r = 0; r < kR; ++r)
    for (int i = 0; i < kV; ++i) store(c + r * c_stride + i * kWidth, total[r][i]);
}

template <int kV, class BeforeChunk>
TANDEM_INLINE void pairs_panel(const int32_t* a, size_t a_stride, const __m512i* b, uint32_t pairs, float* c,
                               size_t c_stride, uint32_t rows, bool add, const BeforeChunk& before_chunk) {
  uint32_t r = 0;
  for (; r + kPanelRows <= rows; r += kPanelRows) {
    before_chunk();
    pairs_block<kPanelRows, kV>(a + r * a_stride, a_stride, b, pairs, c + r * c_stride, c_stride, add);
  }
  for (; r + 2 <= rows; r += 2)
    pairs_block<2, kV>(a + r * a_stride, a_stride, b, pairs, c + r * c_stride, c_stride, add);
  for (; r < rows; ++r) pairs_block<1, kV>(a + r * a_stride, a_stride, b, pairs, c + r * c_stride, c_stride, add);
}

// c[rows][columns] = (or += where add) a[rows][pairs] times the first columns, 32 or 64, of b[pairs][64]; rows of a are
// `a_stride` pairs apart. before_chunk() is called before every kChunkRows rows.
template <class BeforeChunk>
TANDEM_INLINE void pairs_rows(const int32_t* a, size_t a_stride, const __m512i* b, uint32_t pairs, float* c,
                              size_t c_stride, uint32_t rows, uint32_t columns, bool add,
                              const BeforeChunk& before_chunk) {
  if (columns == kPanelColumns)
    pairs_panel<kPanelVectors>(a, a_stride, b, pairs, c, c_stride, rows, add, before_chunk);
  else
    pairs_panel<kPanelVectors / 2>(a, a_stride, b, pairs, c, c_stride, rows, add, before_chunk);
}

template <class BeforeChunk>
TANDEM_INLINE void pairs_of_whole_rows(const int32_t* a, size_t a_stride, const __m512i* b, uint32_t pairs, float* c,
                                       size_t c_stride, uint32_t rows, uint32_t columns, bool add,
                                       const BeforeChunk& before_chunk) {
  pairs_rows(a, a_stride, b, pairs, c, c_stride, rows, columns, add, before_chunk);
}
#endif

}  // namespace
}  // namespace tandem::TANDEM_ISA_NAMESPACE

#endif
