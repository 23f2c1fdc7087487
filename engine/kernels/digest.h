// Per-block digests of K and scores of blocks from them: bounds (Quest, Tang et al. 2024, §3.3), or means (MoBA, Lu et
// al. 2025, §2.2).
#pragma once

#include <cstdint>

#include "engine/common/on_both.h"
#include "engine/device/cuda/launch_array.h"
#include "engine/device/cuda/runtime.h"     // CudaStream
#include "engine/kernels/attention_span.h"  // AttentionShape
#include "engine/kernels/page_list.h"

namespace tandem {

/// What stands for the keys of a block: their elementwise minimum and maximum, which bound a score, or their mean.
enum class DigestKind : std::uint8_t { bounds, mean };

/// Of a block.
TANDEM_ON_BOTH constexpr std::uint32_t vectors_of(DigestKind kind) {
  return kind == DigestKind::bounds ? 2 : 1;
}

/// Digests are stored like the keys; bounds are exact elements of them, means are rounded.

/// Elementwise minimum and maximum of the keys of a block. tokens >= 1.
void build_digest(const void* k /*[tokens][D]*/, DType type, std::uint32_t tokens, std::uint32_t dim,
                  void* min_out /*[D]*/, void* max_out /*[D]*/);

/// The digest of the union of `children` blocks: one step up the pyramid 16 -> 32 -> 64 -> 128 tokens. children >= 1.
/// The outputs may be the first child.
void merge_digest(const void* child_min /*[children][D]*/, const void* child_max /*[children][D]*/, DType type,
                  std::uint32_t children, std::uint32_t dim, void* min_out /*[D]*/, void* max_out /*[D]*/);

/// Adds the keys of a page to sums [D], token after token.
void add_keys(const void* k /*[tokens][D]*/, DType type, std::uint32_t tokens, std::uint32_t dim, float* sums /*[D]*/);
/// The mean of the keys of a block, from their sums. tokens >= 1.
void mean_digest(const float* sums /*[D]*/, std::uint32_t tokens, DType type, std::uint32_t dim, void* out /*[D]*/);

/// scores[g][b] = sum_d max(q[g][d] * min[b][d], q[g][d] * max[b][d]): no key of block b has a larger dot product with
/// q[g]. Of means, given as both, it is q[g] . mean[b]. Not scaled by 1 / sqrt(D). The bits of a score depend on its q
/// and block alone.
void score_blocks(const float* q /*[group][D]*/, const void* digest_min /*[blocks][D]*/,
                  const void* digest_max /*[blocks][D]*/, std::uint32_t blocks, AttentionShape shape,
                  float* scores /*[group][blocks]*/);

void score_blocks_reference(const float* q /*[group][D]*/, const void* digest_min /*[blocks][D]*/,
                            const void* digest_max /*[blocks][D]*/, std::uint32_t blocks, AttentionShape shape,
                            float* scores /*[group][blocks]*/);

// On the GPU: digests of all KV heads of a layer lie as [kv head][min, max][block][D], means as [kv head][block][D].
// All pointers are device memory, digests aligned to 16 bytes.

/// Tokens that digests are made of, in blocks.
struct DigestRun {
  const std::uint32_t* slots = nullptr;  // [ceil(tokens / 16)] of the pages, from token 0
  void* digests = nullptr;               // the first one's place
  std::uint32_t tokens = 0;
  std::uint32_t room = 0;  // blocks from a minimum to its maximum, or from head to head, at least those that are made
};
/// Digests of every run, in blocks of pages_per_block pages, all KV heads. most_tokens: of a run.
void build_digests_cuda(const KvPages& kv, const LaunchArray<DigestRun>& runs /*[n]*/, std::uint32_t n,
                        std::uint32_t most_tokens, std::uint32_t pages_per_block, CudaStream stream,
                        DigestKind kind = DigestKind::bounds);

/// One row of a batch. The digests may lie in pinned memory: each is then read over the link once per four query heads.
struct BlockScores {
  const float* q = nullptr;  // [Hq][D]
  const void* digests = nullptr;
  std::uint32_t blocks = 0;
  float* scores = nullptr;  // [Hq][blocks]
  std::uint32_t room = 0;   // as DigestRun::room, at least `blocks`; 0: `blocks`
};
/// score_blocks for every row and KV head. most_blocks: the largest number of blocks of a row.
void score_blocks_cuda(const BlockScores* rows /*[n]*/, std::uint32_t n, std::uint32_t most_blocks,
                       std::uint32_t kv_heads, AttentionShape shape, CudaStream stream,
                       DigestKind kind = DigestKind::bounds);

}  // namespace tandem
