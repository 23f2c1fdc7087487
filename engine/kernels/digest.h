// Per-block digests of K and upper bounds of attention scores from them (Quest, Tang et al. 2024, §3.3).
#pragma once

#include <cstdint>

#include "engine/kernels/attention_span.h"  // AttentionShape

namespace tandem {

/// Digests are stored like the keys, of which they are exact elements.

/// Elementwise minimum and maximum of the keys of a block. tokens >= 1.
void build_digest(const void* k /*[tokens][D]*/, DType type, std::uint32_t tokens, std::uint32_t dim,
                  void* min_out /*[D]*/, void* max_out /*[D]*/);

/// The digest of the union of `children` blocks: one step up the pyramid 16 -> 32 -> 64 -> 128 tokens. children >= 1.
/// The outputs may be the first child.
void merge_digest(const void* child_min /*[children][D]*/, const void* child_max /*[children][D]*/, DType type,
                  std::uint32_t children, std::uint32_t dim, void* min_out /*[D]*/, void* max_out /*[D]*/);

/// scores[g][b] = sum_d max(q[g][d] * min[b][d], q[g][d] * max[b][d]): no key of block b has a larger dot product with
/// q[g]. Not scaled by 1 / sqrt(D). The bits of a score depend on its q and block alone.
void score_blocks(const float* q /*[group][D]*/, const void* digest_min /*[blocks][D]*/,
                  const void* digest_max /*[blocks][D]*/, std::uint32_t blocks, AttentionShape shape,
                  float* scores /*[group][blocks]*/);

void score_blocks_reference(const float* q /*[group][D]*/, const void* digest_min /*[blocks][D]*/,
                            const void* digest_max /*[blocks][D]*/, std::uint32_t blocks, AttentionShape shape,
                            float* scores /*[group][blocks]*/);

}  // namespace tandem
