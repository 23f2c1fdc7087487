#include "engine/common/error.h"
#include "engine/kernels/cuda/launch.cuh"
#include "engine/kernels/digest.h"
#include "engine/kernels/digest_kernels.cuh"

namespace tandem {
void build_digests_cuda(const KvPages& kv, const LaunchArray<DigestRun>& runs, std::uint32_t n,
                        std::uint32_t most_tokens, std::uint32_t pages_per_block, CudaStream stream, DigestKind kind) {
  TANDEM_CHECK(pages_per_block >= 1, "An empty block has no digest.");
  TANDEM_CHECK(n <= gpu::kMaxGridRows, "{} runs of blocks.", n);
  const std::uint32_t block = pages_per_block * kListPageTokens;
  gpu::Launcher launch(stream);
  gpu::with_element(kv.type, [&](auto element) {
    launch(gpu::build_digests_kernel<decltype(element)>, dim3((most_tokens + block - 1) / block, kv.kv_heads, n),
           gpu::kDigestThreads, 0, kv, runs, block, kind);
  });
}

void score_blocks_cuda(const BlockScores* rows, std::uint32_t n, std::uint32_t most_blocks, std::uint32_t kv_heads,
                       AttentionShape shape, CudaStream stream, DigestKind kind) {
  TANDEM_CHECK(shape.group >= 1 && shape.group <= 32, "A group has 1 to 32 query heads, not {}.", shape.group);
  const dim3 grid((most_blocks + gpu::kScoreBlocks - 1) / gpu::kScoreBlocks, kv_heads, n);
  const std::size_t shared = std::size_t{2} * shape.group * shape.dim * sizeof(float);
  const bool wide = shape.dim * size_of(shape.kv) % 16 == 0;
  gpu::Launcher launch(stream);
  gpu::with_element(shape.kv, [&](auto element) {
    using Element = decltype(element);
    launch(wide ? gpu::score_blocks_kernel<Element, true> : gpu::score_blocks_kernel<Element, false>, grid,
           gpu::kScoreThreads, shared, rows, shape.group, shape.dim, kind);
  });
}

}  // namespace tandem
