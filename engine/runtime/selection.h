// Selections of blocks: from scores to the lists that a DigestIndex has room for, and from lists to what a KV head
// reads.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/kernels/thread_pool.h"
#include "engine/kv/block_set.h"
#include "engine/kv/digest_index.h"
#include "engine/runtime/ops.h"

namespace tandem {

struct Choice {
  std::uint32_t blocks = 0;        // scored
  std::uint32_t keep = 0;          // in each list, at most `blocks`
  std::uint32_t always_first = 0;  // of these, at most `keep`
  Scope scope = Scope::query_head;
  Reduce reduce = Reduce::max;

  std::uint32_t lists(const ModelShape& shape) const {
    return scope == Scope::query_head ? shape.q_heads : scope == Scope::kv_head ? shape.kv_heads : 1;
  }
  bool operator==(const Choice&) const = default;
};

/// scores [Hq][blocks] of the first blocks of an index by Quest's bound. Inside a body that declared the index's
/// values.
void score_index(ThreadPool& pool, const ModelShape& shape, const BodyContext& ctx, const DigestIndex& index,
                 std::uint32_t layer, std::uint32_t blocks, const float* query /*[Hq][D]*/, float* scores);

/// Adds to a host operation's cost what choosing costs: `lists` lists, each the best `keep` of n scores. All or none of
/// them need no look.
inline void rank_scores(Cost& cost, std::uint32_t lists, std::uint32_t n, std::uint32_t keep) {
  if (keep == 0 || keep >= n) return;
  cost.lists += lists;
  cost.ranked += std::uint64_t{lists} * n;
}

/// Fills the lists of one layer and row from the scores of all query heads.
void choose_blocks(ThreadPool& pool, const ModelShape& shape, const Choice& choice,
                   const float* scores /*[Hq][blocks]*/, std::uint32_t* lists /*[list][1 + room]*/, std::uint32_t room);

/// On a GPU: the scores of what heads choose together, of all rows; `most`: the largest n of a row.
void launch_reduction(LaunchContext& ctx, const ModelShape& shape, const Choice& choice,
                      std::vector<ScoreReduction> rows, std::uint32_t most);

/// Adds what the query heads of a KV head chose, each block once.
void add_chosen(const ModelShape& shape, Scope scope, std::uint32_t kv_head, const std::uint32_t* lists,
                std::uint32_t room, BlockSet& set);

/// masks[b]: which query heads of a KV head's group chose block b; all of them where they choose together.
void chosen_masks(const ModelShape& shape, Scope scope, std::uint32_t kv_head, const std::uint32_t* lists,
                  std::uint32_t room, std::vector<std::uint32_t>& masks /*[blocks]*/);

}  // namespace tandem
