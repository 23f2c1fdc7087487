// Selections of blocks: from scores to the lists that a DigestIndex has room for, and from lists to what a KV head
// reads.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "engine/kernels/page_list.h"
#include "engine/kernels/thread_pool.h"
#include "engine/kv/block_set.h"
#include "engine/kv/digest_index.h"
#include "engine/runtime/ops.h"

namespace tandem {

/// Lists of a layer.
inline std::uint32_t lists_of(Scope scope, const ModelShape& shape) {
  return scope == Scope::query_head ? shape.q_heads : scope == Scope::kv_head ? shape.kv_heads : 1;
}

struct Choice {
  std::uint32_t blocks = 0;        // scored
  std::uint32_t keep = 0;          // in each list, at most `blocks`
  std::uint32_t always_first = 0;  // of these, at most `keep`
  Scope scope = Scope::query_head;
  Reduce reduce = Reduce::max;

  std::uint32_t lists(const ModelShape& shape) const { return lists_of(scope, shape); }
  bool operator==(const Choice&) const = default;
};

/// scores [Hq][blocks] of the first blocks of an index by Quest's bound, for some KV heads; `query`, `scores`: of the
/// first of these on. `part`: blocks of one thread at a time. Inside a body that declared the index's values.
inline constexpr std::uint32_t kSelectionBlocks = 256;
void score_index(ThreadPool& pool, const ModelShape& shape, const BodyContext& ctx, const DigestIndex& index,
                 std::uint32_t layer, std::uint32_t blocks, const float* query /*[Hq][D]*/, float* scores,
                 Range kv_heads, std::uint32_t part = kSelectionBlocks);

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

/// masks[b]: which query heads of a KV head's group chose block b; all of them where they choose together.
void chosen_masks(const ModelShape& shape, Scope scope, std::uint32_t kv_head, const std::uint32_t* lists,
                  std::uint32_t room, std::vector<std::uint32_t>& masks /*[blocks]*/);

/// The blocks that the lists of an index name, for operations behind the one that chooses.
struct ChosenBlocks {
  DigestIndex index;  // by value: one that grows gets other memory while this is still at work
  Scope scope = Scope::query_head;
  std::uint32_t layer = 0;
  std::uint32_t blocks = 0;          // that have a digest
  std::uint32_t most = 0;            // that a KV head's query heads can have chosen together
  std::vector<std::uint32_t> slots;  // of the blocks' pages in the KV store, from the index's first token, for bodies

  ChosenBlocks(const DigestIndex& digests, const Blocks& chosen, const ModelShape& shape);
  std::uint32_t pages() const { return most * index.block / kPageTokens; }  // of a KV head, at most
  /// All pages of the blocks that have a digest.
  Range page_range() const { return {index.tokens.begin / kPageTokens, blocks_for(index.digested(layer).end)}; }
  const std::uint32_t* lists(const BodyContext& ctx) const { return index.selection.read<std::uint32_t>(ctx); }
  /// The blocks that the query heads of a KV head chose, each once. `from`: lists(). Callers look it up once for all KV
  /// heads, since a look-up goes through all that the operation declared.
  BlockSet set(const std::uint32_t* from, const ModelShape& shape, std::uint32_t kv_head) const;
  /// each(mask, page, place, tokens) for the pages of these, in order. `mask`: the query heads that chose it; `page`:
  /// by entry of `slots`; `place`: among the chosen pages.
  template <class Each>
  void for_pages(const std::uint32_t* from, const ModelShape& shape, std::uint32_t kv_head, const Each& each) const {
    std::vector<std::uint32_t> masks(blocks);
    chosen_masks(shape, scope, kv_head, from, index.room, masks);
    for (std::uint32_t b = 0, place = 0; b < blocks; ++b) {
      if (masks[b] == 0) continue;
      const Range range = index.block_tokens(b);
      for (std::uint32_t token = range.begin; token < range.end; token += kPageTokens, ++place)
        each(masks[b], (token - index.tokens.begin) / kPageTokens, place, std::min(kPageTokens, range.end - token));
    }
  }
  /// For pages_of_selection_cuda().
  BlockSelection launched(const LaunchContext& ctx, const std::uint32_t* slots_on_device) const;
};

}  // namespace tandem
