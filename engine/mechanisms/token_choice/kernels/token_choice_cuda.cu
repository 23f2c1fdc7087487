// The best tokens of a KV head by their scores, and their packing.
#include "engine/common/error.h"
#include "engine/kernels/attention_limits.h"
#include "engine/kernels/cuda/launch.cuh"
#include "engine/kernels/paged_attention.h"
#include "engine/kernels/radix_select.cuh"
#include "engine/mechanisms/token_choice/kernels/token_choice.h"

namespace tandem::gpu {

/// columns: of a query head's row of scores. Grid: {KV heads, rows}.
__global__ void __launch_bounds__(kSelectThreads)
    best_tokens_kernel(const __grid_constant__ LaunchArray<TokenChoiceRow> choices, std::uint32_t group,
                       std::size_t columns, const float* scores) {
  TANDEM_SHARED(SelectScratch, scratch, 1);
  const TokenChoiceRow choice = choices[blockIdx.y];
  const std::uint32_t kept = choice.keep < choice.tokens ? choice.keep : choice.tokens;
  std::uint32_t* const chosen = choice.chosen + blockIdx.x * (1 + std::size_t{choice.room});
  const float* const own = scores + (std::size_t{blockIdx.y} * gridDim.x + blockIdx.x) * group * columns;
  const auto key_of = [=](std::uint32_t i) {
    float score = -__builtin_huge_valf();
    for (std::uint32_t g = 0; g < group; ++g) score = fmaxf(score, own[g * columns + i]);
    return order_key(score);
  };
  list_best(key_of, choice.tokens, kept, chosen, scratch[0]);
}

constexpr unsigned kPackThreads = 128;
constexpr unsigned kPackTokens = 32;  // per block of threads

/// Words of 16 bytes, or of 2 where rows are no whole number of those. Grid: {tokens, KV heads, rows}.
__global__ void __launch_bounds__(kPackThreads)
    pack_tokens_kernel(const TokenPack* packs, const __grid_constant__ KvPages kv) {
  const TokenPack& pack = packs[blockIdx.z];
  const std::uint32_t head = blockIdx.y, begin = blockIdx.x * kPackTokens;
  const std::uint32_t* const chosen = pack.chosen + head * (1 + std::size_t{pack.room});
  const std::uint32_t count = chosen[0];
  if (begin >= count) return;
  const std::uint32_t tokens = count - begin < kPackTokens ? count - begin : kPackTokens;
  const std::size_t row = kv.row_bytes();
  char* const packed = static_cast<char*>(pack.packed) + std::size_t{head} * 2 * pack.room * row;
  const bool wide = row % 16 == 0 && reinterpret_cast<std::uintptr_t>(packed) % 16 == 0;
  const auto words = static_cast<std::uint32_t>(row / (wide ? 16 : 2));
  for (std::uint32_t i = threadIdx.x; i < 2 * tokens * words; i += kPackThreads) {
    const std::uint32_t is_v = i / (tokens * words), at = i % (tokens * words);
    const std::uint32_t place = begin + at / words, token = chosen[1 + place];
    const char* const from = kv.key(pack.slots[token / kListPageTokens], head, token) + is_v * kv.page_bytes();
    char* const to = packed + (std::size_t{is_v} * pack.room + place) * row;
    if (wide) {
      store_vector(to + at % words * 16, load_stream(from + at % words * 16));
    } else {
      reinterpret_cast<std::uint16_t*>(to)[at % words] = reinterpret_cast<const std::uint16_t*>(from)[at % words];
    }
  }
}

}  // namespace tandem::gpu

namespace tandem {
using namespace gpu;

void choose_tokens_cuda(const float* q, const LaunchArray<TokenChoiceRow>& choices, std::uint32_t rows,
                        std::uint32_t group, const KvPages& kv, const PageLists& lists, float* scores,
                        CudaStream stream) {
  TANDEM_CHECK(!lists.per_kv_head && rows <= kMaxGridRows, "{} rows choose from lists of KV heads.", rows);
  paged_token_scores_cuda(q, rows, group, kv, lists, scores, stream);
  launch(stream, best_tokens_kernel, dim3(kv.kv_heads, rows), kSelectThreads, 0, choices, group,
         std::size_t{kListPageTokens} * lists.capacity, static_cast<const float*>(scores));
}

void pack_tokens_cuda(const TokenPack* packs, std::uint32_t rows, std::uint32_t most, const KvPages& kv,
                      CudaStream stream) {
  TANDEM_CHECK(rows <= kMaxGridRows && kv.kv_heads <= kMaxGridRows, "{} rows of tokens to pack.", rows);
  check_aligned(kv.pages, 16, "KvPages::pages");
  launch(stream, pack_tokens_kernel, dim3(blocks_for(most, kPackTokens), kv.kv_heads, rows), kPackThreads, 0, packs,
         kv);
}

}  // namespace tandem
