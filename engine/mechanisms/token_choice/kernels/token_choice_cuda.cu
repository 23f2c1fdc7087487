#include "engine/common/error.h"
#include "engine/kernels/attention_limits.h"
#include "engine/kernels/cuda/launch.cuh"
#include "engine/kernels/paged_attention.h"
#include "engine/mechanisms/token_choice/kernels/token_choice.h"
#include "engine/mechanisms/token_choice/kernels/token_choice_kernels.cuh"

namespace tandem {

void choose_tokens_cuda(const float* q, const LaunchArray<TokenChoiceRow>& choices, std::uint32_t rows,
                        std::uint32_t group, const KvPages& kv, const PageLists& lists, float* scores,
                        CudaStream stream) {
  TANDEM_CHECK(!lists.per_kv_head && rows <= gpu::kMaxGridRows, "{} rows choose from lists of KV heads.", rows);
  paged_token_scores_cuda(q, rows, group, kv, lists, scores, stream);
  gpu::Launcher launch(stream);
  launch(gpu::best_tokens_kernel, dim3(kv.kv_heads, rows), gpu::kSelectThreads, 0, choices, group,
         std::size_t{kListPageTokens} * lists.capacity, static_cast<const float*>(scores));
}

void pack_tokens_cuda(const TokenPack* packs, std::uint32_t rows, std::uint32_t most, const KvPages& kv,
                      CudaStream stream) {
  TANDEM_CHECK(rows <= gpu::kMaxGridRows && kv.kv_heads <= gpu::kMaxGridRows, "{} rows of tokens to pack.", rows);
  gpu::check_aligned(kv.pages, 16, "KvPages::pages");
  gpu::Launcher launch(stream);
  launch(gpu::pack_tokens_kernel, dim3(gpu::blocks_for(most, gpu::kPackTokens), kv.kv_heads, rows), gpu::kPackThreads,
         0, packs, kv);
}

}  // namespace tandem
