// Products of keys with queries in AMX tiles, and token scores from them, over bf16 keys with D a multiple of 32 and
// any group. Included by attention_amx_cpu.h and partial_attention_cpu.cc alone.
#pragma once

#include "engine/kernels/amx_cpu.h"
#include "engine/kernels/attention_tiles_cpu.h"
#include "engine/kernels/dot_cpu.h"
#include "engine/kernels/pairs_cpu.h"
#include "engine/kernels/vec.h"

#if defined(__AMX_BF16__)

namespace tandem::TANDEM_ISA_NAMESPACE {
namespace {

constexpr uint32_t kTileDims = 32;  // of a tile of keys or queries
static_assert(kTile == 2 * kTileRows && kSlots == kTileRows && kWidth == kTileRows);

// ---- scores ---------------------------------------------------------------------------------------------------------

// The queries as tiles: [rows / 16][D / 32][16 pairs of dimensions][16 heads].
TANDEM_INLINE void prepare_query_tiles(const float* q, uint32_t group, uint32_t dim, int32_t* tiles) {
  for (uint32_t first = 0; first < group; first += kTileRows)
    for (uint32_t d = 0; d < dim; d += kTileDims, tiles += kTileFloats) {
      __m512i pairs[kTileRows] = {};
      for (uint32_t i = 0; i < kTileRows && first + i < group; ++i) {
        const float* from = q + size_t{first + i} * dim + d;
        pairs[i] = reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(load(from + kWidth), load(from)));
      }
      transpose(pairs);
      __builtin_memcpy(tiles, pairs, sizeof pairs);
    }
}

// Products of two times 16 keys of `bytes` bytes, one after the other, with 16 heads: out [2][16][16]. Tiles 3 to 7.
// beside(i, n) is called after product i of n.
template <class Beside>
TANDEM_INLINE void multiply_keys(const char* const (&keys)[2], size_t bytes, const int32_t* queries, float* out,
                                 const Beside& beside) {
  const auto products = static_cast<uint32_t>(bytes / kRowBytes * 2);
  written(out);
  _tile_zero(5);
  _tile_zero(6);
  for (uint32_t i = 0; i < products; i += 2, queries += kTileFloats) {
    const size_t at = i / 2 * kRowBytes;
    _tile_loadd(7, queries, kRowBytes);
    _tile_loadd(3, keys[0] + at, bytes);
    _tile_dpbf16ps(5, 3, 7);
    beside(i, products);
    _tile_loadd(4, keys[1] + at, bytes);
    _tile_dpbf16ps(6, 4, 7);
    beside(i + 1, products);
  }
  _tile_stored(5, out, kRowBytes);
  _tile_stored(6, out + kTileFloats, kRowBytes);
  written(out);
}

// Columns [first, first + 4) of products [16][16] as scores: an overflowed one stays comparable.
TANDEM_INLINE void four_scores(const float* products, uint32_t first, vf scale, vf (&scores)[4]) {
  vf rows[4];  // i: rows i, 4 + i, 8 + i and 12 + i
  for (int i = 0; i < 4; ++i) {
    const float* at = products + i * kWidth + first;
    __m512 v = _mm512_castps128_ps512(_mm_loadu_ps(at));
    v = _mm512_mask_broadcast_f32x4(v, 0x00f0, _mm_loadu_ps(at + 4 * kWidth));
    v = _mm512_mask_broadcast_f32x4(v, 0x0f00, _mm_loadu_ps(at + 8 * kWidth));
    rows[i] = _mm512_mask_broadcast_f32x4(v, 0xf000, _mm_loadu_ps(at + 12 * kWidth));
  }
  const __m512d a = _mm512_castps_pd(_mm512_unpacklo_ps(rows[0], rows[1])),
                b = _mm512_castps_pd(_mm512_unpackhi_ps(rows[0], rows[1])),
                c = _mm512_castps_pd(_mm512_unpacklo_ps(rows[2], rows[3])),
                d = _mm512_castps_pd(_mm512_unpackhi_ps(rows[2], rows[3]));
  scores[0] = _mm512_castpd_ps(_mm512_unpacklo_pd(a, c));
  scores[1] = _mm512_castpd_ps(_mm512_unpackhi_pd(a, c));
  scores[2] = _mm512_castpd_ps(_mm512_unpacklo_pd(b, d));
  scores[3] = _mm512_castpd_ps(_mm512_unpackhi_pd(b, d));
  for (vf& score : scores) score = minimum(score * scale, splat(kLargest));
}

// 32 keys as multiply_keys takes them: where they lie, or copied to `room`, [2][16] keys. Of `count` tokens; the
// pointers beyond are readable.
TANDEM_INLINE void keys_in_rows(const char* const* k, uint32_t count, size_t bytes, char* room,
                                const char* (&keys)[2]) {
  for (uint32_t half = 0; half < 2; ++half, k += kTileRows) {
    if (half == 1 && count <= kTileRows) {
      keys[1] = keys[0];  // whose products nobody reads
      return;
    }
    bool in_rows = true;
    for (uint32_t t = 1; t < kTileRows; ++t) in_rows &= k[t] == k[0] + t * bytes;
    keys[half] = k[0];
    if (in_rows) continue;
    char* to = room + half * kTileRows * bytes;
    keys[half] = to;
    for (uint32_t t = 0; t < kTileRows; ++t, to += bytes)
      for (size_t at = 0; at < bytes; at += kRowBytes) _mm512_storeu_si512(to + at, _mm512_loadu_si512(k[t] + at));
  }
}

// ---- scratch --------------------------------------------------------------------------------------------------------

// The memory that a call computes in: partial_scratch_floats().
struct RunBuffers {
  RunBuffers(float* scratch, uint32_t group, uint32_t dim) {
    const size_t rows = (group + kTileRows - 1) / kTileRows * kTileRows;
    queries = reinterpret_cast<int32_t*>(scratch);
    keys = reinterpret_cast<char*>(queries + rows * dim / 2);
    sums = reinterpret_cast<float*>(keys) + kTileRows * size_t{dim};
    some_sums = sums + rows * dim;
    values = reinterpret_cast<__m512i*>(some_sums + kTileRows * size_t{dim});
    weights = reinterpret_cast<float*>(values) + kTileRows * size_t{dim};
  }
  int32_t* queries;  // prepare_query_tiles
  char* keys;        // [32][D] of bf16
  float* sums;       // [rows][D]: of exp(score - m) v, where PairedValues::place puts it
  float* some_sums;  // [16][D]
  __m512i* values;   // [D / 16][16 pairs of tokens]
  float* weights;    // [rows][32] of bf16
};

// ---- scores alone: bit for bit those of attention_amx_cpu.h

// 32 tokens at a time, of whatever spans.
class TileScores {
 public:
  TileScores(const float* q, AttentionShape shape, float* scores, size_t score_stride, float* scratch)
      : shape_(shape),
        bytes_(shape.dim * size_t{2}),
        scale_(splat(score_scale<DotBF16>(shape.dim))),
        buffers_(scratch, shape.group, shape.dim),
        scores_(scores),
        stride_(score_stride) {
    prepare_query_tiles(q, shape.group, shape.dim, buffers_.queries);
  }

  void take(const KvSpan& span) {
    const char* keys = static_cast<const char*>(span.k);
    for (uint32_t t = 0; t < span.tokens; ++t) {
      k_[count_++] = keys + bytes_ * t;
      if (count_ == kTile) finish();
    }
  }
  void finish() {
    if (count_ == 0) return;
    for (uint32_t t = count_; t < kTile; ++t) k_[t] = k_[count_ - 1];
    const char* keys[2];
    keys_in_rows(k_, count_, bytes_, buffers_.keys, keys);
    for (uint32_t h = 0; h < shape_.group; h += 4) {
      if (h % kTileRows == 0)
        multiply_keys(keys, bytes_, buffers_.queries + size_t{h} * shape_.dim / 2, products_,
                      [](uint32_t, uint32_t) {});
      for (uint32_t from = 0; from < count_; from += kTileRows) {
        vf four[4];
        four_scores(products_ + from * kTileRows, h % kTileRows, scale_, four);
        const uint32_t here = count_ - from < kTileRows ? count_ - from : kTileRows;
        for (uint32_t i = 0; i < 4 && h + i < shape_.group; ++i) {
          float* to = scores_ + (h + i) * stride_ + from;
          if (here == kTileRows)
            store(to, four[i]);
          else
            store_first(to, four[i], static_cast<int>(here));
        }
      }
    }
    scores_ += count_;
    count_ = 0;
  }

 private:
  AttentionShape shape_;
  size_t bytes_;
  vf scale_;
  RunBuffers buffers_;
  float* scores_;  // of the first token of k_
  size_t stride_;
  uint32_t count_ = 0;
  const char* k_[kTile];
  alignas(64) float products_[2 * kTileFloats];
  const Tiles tiles_{TileShapes{{0, 0, 0, kTileRows, kTileRows, kTileRows, kTileRows, kTileRows}}};
  const FlushSubnormals flush_;
};

void score_in_tiles(const float* q, const KvSpan* spans, size_t span_count, AttentionShape shape, float* scores,
                    size_t score_stride, float* scratch) {
  TileScores tiles(q, shape, scores, score_stride, scratch);
  for (size_t i = 0; i < span_count; ++i) tiles.take(spans[i]);
  tiles.finish();
}

}  // namespace
}  // namespace tandem::TANDEM_ISA_NAMESPACE

#endif
