// The choice of single tokens by their exact scores.
#pragma once

#include <cstdint>
#include <span>

#include "engine/device/cuda/launch_array.h"
#include "engine/device/cuda/runtime.h"  // CudaStream
#include "engine/kernels/attention_span.h"
#include "engine/kernels/page_list.h"

namespace tandem {

/// The `keep` tokens that a KV head scores best, as indices into the spans' tokens in ascending order; a token's score
/// is its largest over the group's query heads. Ties go to the lower index. Bits of a score: those of token_scores(),
/// which knows no NaN.
void choose_tokens(const float* q /*[group][D]*/, std::span<const KvSpan> spans, AttentionShape shape,
                   std::uint32_t keep, std::uint32_t* out /*[min(keep, tokens)]*/);

// On the GPU, for rows of a batch: of sequences and layers. The lists and all that they name are device memory.

/// What each KV head of one row chooses of the tokens in the row's pages, from token 0 on.
struct TokenChoiceRow {
  std::uint32_t tokens = 0, keep = 0;
  std::uint32_t* chosen = nullptr;  // [kv_heads][1 + room]: a count, then tokens in ascending order
  std::uint32_t room = 0;           // of a list, at least min(keep, tokens)
};
/// choose_tokens for every row and KV head. `lists`: the rows' pages, one list per row, full but for the last one.
void choose_tokens_cuda(const float* q /*[rows][Hq][D]*/, const LaunchArray<TokenChoiceRow>& choices /*[rows]*/,
                        std::uint32_t rows, std::uint32_t group, const KvPages& kv, const PageLists& lists,
                        float* scores /*[rows][Hq][16 * lists.capacity]; to work in*/, CudaStream stream);

/// Chosen tokens' keys and values, packed: [kv_heads]{K [room][D], V [room][D]} of KvPages::type.
struct TokenPack {
  const std::uint32_t* chosen = nullptr;  // [kv_heads][1 + room]
  std::uint32_t room = 0;
  const std::uint32_t* slots = nullptr;  // of the pages, from token 0 on
  void* packed = nullptr;
};
/// most: the largest number of tokens that a head chose.
void pack_tokens_cuda(const TokenPack* packs /*[rows]*/, std::uint32_t rows, std::uint32_t most, const KvPages& kv,
                      CudaStream stream);

}  // namespace tandem
