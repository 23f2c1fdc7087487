// Per-block digests of K and upper bounds of attention scores from them (Quest, Tang et al. 2024, §3.3).
#pragma once

#include <cstdint>

namespace tandem {

/// Elementwise minimum and maximum of the keys of a block. tokens >= 1.
void build_digest(const float* k /*[tokens][D]*/, std::uint32_t tokens, std::uint32_t dim, float* min_out /*[D]*/,
                  float* max_out /*[D]*/);

/// The digest of the union of `children` blocks: one step up the pyramid 16 -> 32 -> 64 -> 128 tokens. children >= 1.
/// The outputs may be the first child.
void merge_digest(const float* child_min /*[children][D]*/, const float* child_max /*[children][D]*/,
                  std::uint32_t children, std::uint32_t dim, float* min_out /*[D]*/, float* max_out /*[D]*/);

/// scores[g][b] = sum_d max(q[g][d] * min[b][d], q[g][d] * max[b][d]): no key of block b has a larger dot product with
/// q[g]. Not scaled by 1 / sqrt(D). The bits of a score depend on its q and block alone.
void score_blocks(const float* q /*[group][D]*/, const float* digest_min /*[blocks][D]*/,
                  const float* digest_max /*[blocks][D]*/, std::uint32_t blocks, std::uint32_t group, std::uint32_t dim,
                  float* scores /*[group][blocks]*/);

void score_blocks_reference(const float* q /*[group][D]*/, const float* digest_min /*[blocks][D]*/,
                            const float* digest_max /*[blocks][D]*/, std::uint32_t blocks, std::uint32_t group,
                            std::uint32_t dim, float* scores /*[group][blocks]*/);

}  // namespace tandem
