// Token scores over bf16 keys by AMX, for partial_attention_cpu.cc, which alone includes this: D a multiple of 32, any
// group. Bit for bit those of attention_amx_cpu.h.
#pragma once

#include "engine/kernels/amx_cpu.h"
#include "engine/kernels/attention_products_amx_cpu.h"
#include "engine/kernels/attention_tiles_cpu.h"
#include "engine/kernels/dot_cpu.h"
#include "engine/kernels/vec.h"

#if defined(__AMX_BF16__)

namespace tandem::TANDEM_ISA_NAMESPACE {
namespace {

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
