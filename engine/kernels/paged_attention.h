// Decode attention on the GPU: one query token per row of a ragged batch over page lists in device memory, the work cut
// into splits (Dao et al. 2023, Flash-Decoding) that are merged in a fixed order. The twin of partial_attention.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/device/cuda/launch_array.h"
#include "engine/device/cuda/runtime.h"  // CudaStream
#include "engine/kernels/page_list.h"

namespace tandem {

/// A run of list entries that one warp attends for the group of one KV head.
struct AttentionWork {
  static constexpr std::uint32_t kWhole = 0xffffffffu;
  std::uint32_t row = 0, kv_head = 0;
  std::uint32_t first = 0, entries = 0;  // of the list; what lies beyond the list's count on the device is not there
  std::uint32_t part = kWhole;           // partial result to write; kWhole: it is the result
};
inline constexpr std::uint32_t kMaxSplitEntries = 32;

/// Partial results that make the result of one row and KV head, in this order.
struct AttentionMerge {
  std::uint32_t row = 0, kv_head = 0;
  std::uint32_t first_part = 0, parts = 0;
};

/// How a batch is cut. The cut of a list depends on its own length alone, so a row's bits do not depend on the batch.
/// `work` is in order of falling length: dealt to the warps in turn it loads them evenly, however ragged the batch is.
struct AttentionPlan {
  std::vector<AttentionWork> work;
  std::vector<AttentionMerge> merges;
  std::uint32_t parts = 0;
};

/// Whether a list of so many entries is cut, so that a second kernel merges its parts.
bool is_split(std::uint32_t entries);

/// entries: upper bounds of the lists' counts, one per row, or with per_kv_head one per row and KV head. A list without
/// entries gets work too: it writes the empty result. A plan serves every layer of a step.
AttentionPlan plan_paged_attention(std::span<const std::uint32_t> entries, std::uint32_t rows, std::uint32_t kv_heads,
                                   bool per_kv_head);

/// The work of one KV head of one row, over the first `entries` of its list.
struct AttentionTask {
  std::uint32_t row = 0, kv_head = 0, entries = 0;
};
/// A plan of these alone, each once: nobody else's results are written.
AttentionPlan plan_attention_tasks(std::span<const AttentionTask> tasks);

/// Floats of PagedAttention::parts.
constexpr std::size_t paged_attention_scratch(const AttentionPlan& plan, std::uint32_t group, std::uint32_t dim) {
  return std::size_t{plan.parts} * group * (dim + 1);
}

/// Arguments of a launch. All pointers are device memory; q, o and parts are aligned to 8 bytes where tensor cores run.
struct PagedAttention {
  const float* q = nullptr;  // [rows][Hq][D]
  std::uint32_t group = 1;   // query heads per KV head, 1..32; Hq = group * kv.kv_heads
  KvPages kv;
  PageLists lists;
  const AttentionWork* work = nullptr;     // the plan's
  const AttentionMerge* merges = nullptr;  // the plan's
  std::uint32_t work_count = 0, merge_count = 0, part_count = 0;
  float* o = nullptr;      // [rows][Hq][D]
  float* lse = nullptr;    // [rows][Hq]
  float* parts = nullptr;  // paged_attention_scratch(plan, group, D)
};

/// Like partial_attention for every row and KV head: o = softmax(q.k / sqrt(D)) v over the list's tokens and lse; (0,
/// -infinity) where a head attends none. Deterministic. bf16 and f16 KV of D = 64, 96, 128 or 256 with groups of up to
/// 16 run on tensor cores with q rounded like the CPU twin rounds it (bf16) or split into two numbers (f16), and
/// weights split into two: the result differs from the CPU's by rounding of f32. Everything else runs on a plain kernel
/// of the same results, D up to 512. Throws CudaError where the launch is refused, InputError for a larger D.
void paged_attention_cuda(const PagedAttention& attention, CudaStream stream);

/// Where to say how many tokens the list of each row has, of rows of one KV head: added to what is in `totals`, and by
/// itself. Both may be pinned memory; nullptr: not wanted.
struct SelectedTokens {
  std::uint64_t* totals = nullptr;  // [n]
  std::uint64_t* own = nullptr;     // [n]
};

/// List row * kv_heads + kv_head of `entries` and `counts` = the pages of the union of the blocks that the KV head's
/// `group` query heads chose in rows[row], in ascending order: lists with per_kv_head. `heads_per_list` query heads
/// chose together: 1, the group, or all of a row. own_only: a head attends what it chose; otherwise, and where the
/// group chose together, the group attends the union. Entries beyond `capacity` are dropped: it is at least min(blocks,
/// sum of the heads' counts) * pages_per_block of every row.
void pages_of_selection_cuda(const LaunchArray<BlockSelection>& rows /*[n]*/, std::uint32_t n, std::uint32_t kv_heads,
                             std::uint32_t group, std::uint32_t heads_per_list, bool own_only, std::uint32_t capacity,
                             PageEntry* entries /*[n][kv_heads][capacity]*/, std::uint32_t* counts /*[n][kv_heads]*/,
                             CudaStream stream, const SelectedTokens& tokens = {});

/// List i = the pages of lists[i], full but for the last one, attended by all heads. Those beyond `capacity` are
/// dropped.
void whole_pages_cuda(const LaunchArray<WholePages>& lists /*[count]*/, std::uint32_t count, std::uint32_t capacity,
                      PageEntry* entries /*[count][capacity]*/, std::uint32_t* counts /*[count]*/, CudaStream stream);

/// List i = the pages of the ranges of lists[i], one range behind the other, with the tokens of each page that its
/// range has; as above. behind: they come behind the counts[i] entries that are in the list already.
void pages_of_ranges_cuda(const LaunchArray<PageRanges>& lists /*[count]*/, const LaunchArray<TokenRange>& ranges,
                          std::uint32_t count, bool behind, std::uint32_t capacity,
                          PageEntry* entries /*[count][capacity]*/, std::uint32_t* counts /*[count]*/,
                          CudaStream stream);

/// List i = an entry for each token of lists[i], attended by all heads; as above.
void pages_of_tokens_cuda(const LaunchArray<SingleTokens>& lists /*[count]*/, std::uint32_t count,
                          std::uint32_t capacity, PageEntry* entries /*[count][capacity]*/,
                          std::uint32_t* counts /*[count]*/, CudaStream stream);

/// Page lists of residents: page slot * pages_per_block + p of the residents' pages, all tokens, all query heads. A
/// list has at most `capacity` entries: at least residents * pages_per_block.
void pages_of_residents_cuda(const LaunchArray<ResidentPages>& lists /*[count]*/, std::uint32_t count,
                             std::uint32_t capacity, PageEntry* entries /*[count][capacity]*/,
                             std::uint32_t* counts /*[count]*/, CudaStream stream);

/// Places slots in a sequence's page table in device memory, from which kernels list pages: table[layer][first + i] =
/// slots[layer][i] for i < count, of every layer. first + count <= capacity.
void place_slots_cuda(const LaunchArray<std::uint32_t>& slots /*[layers][count]*/, std::uint32_t layers,
                      std::uint32_t first, std::uint32_t count, std::uint32_t capacity,
                      std::uint32_t* table /*[layers][capacity]*/, CudaStream stream);

/// totals[row] += tokens of the row's lists, one per KV head, whatever the heads' masks. `totals` may be pinned memory.
void count_tokens_cuda(const PageLists& lists, std::uint32_t rows, std::uint32_t kv_heads,
                       std::uint64_t* totals /*[rows]*/, CudaStream stream);

/// scores[row][head][16 * e + s] = q.k / sqrt(D) of token slot s of the list's entry e; -infinity where the entry does
/// not hold the slot, whatever the masks, and for entries from the count up to `capacity`. Reads no V. Rounding of q as
/// in paged_attention_cuda, and there too q and scores are aligned to 8 bytes where tensor cores run. The twin of
/// token_scores.
void paged_token_scores_cuda(const float* q /*[rows][Hq][D]*/, std::uint32_t rows, std::uint32_t group,
                             const KvPages& kv, const PageLists& lists, float* scores /*[rows][Hq][16 * capacity]*/,
                             CudaStream stream);

}  // namespace tandem
