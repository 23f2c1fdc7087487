#include "engine/runtime/launched_attention.h"

#include <algorithm>
#include <utility>

namespace tandem {
namespace {

/// Into memory that grows; what was there goes to `old`.
template <class T>
void replace(LaunchContext& ctx, const std::vector<T>& values, CudaMemory& memory, std::vector<CudaMemory>& old) {
  const std::size_t bytes = values.size() * sizeof(T);
  if (bytes == 0) return;
  if (bytes > memory.bytes()) old.push_back(std::exchange(memory, CudaMemory(2 * bytes)));
  cuda_copy(memory.as<>(), ctx.upload(values), bytes, ctx.stream());
}

}  // namespace

void run_attention(LaunchContext& ctx, const float* q, std::uint32_t group, const KvPages& kv, const PageLists& lists,
                   const AttentionPlan& plan, const AttentionWork* work, const AttentionMerge* merges,
                   const PartialOut& to) {
  PagedAttention a;
  a.q = q;
  a.group = group;
  a.kv = kv;
  a.lists = lists;
  a.work = work;
  a.merges = merges;
  a.work_count = static_cast<std::uint32_t>(plan.work.size());
  a.merge_count = static_cast<std::uint32_t>(plan.merges.size());
  a.part_count = plan.parts;
  a.o = to.o;
  a.lse = to.lse;
  a.parts = ctx.scratch<float>(paged_attention_scratch(plan, group, kv.dim));
  paged_attention_cuda(a, ctx.stream());
}

PageLists list_whole_pages(LaunchContext& ctx, const std::vector<WholePages>& lists, bool per_kv_head,
                           std::uint32_t most) {
  const ListRoom room = room_for_lists(ctx, lists.size(), most, per_kv_head);
  whole_pages_cuda(ctx.pass(lists), static_cast<std::uint32_t>(lists.size()), most, room.entries, room.counts,
                   ctx.stream());
  return room;
}

void LaunchedAttention::run(LaunchContext& ctx, const float* q, std::uint32_t rows, std::uint32_t group,
                            const KvPages& kv, const PageLists& lists, std::span<const std::uint32_t> most,
                            const PartialOut& to) {
  if (per_kv_head_ != lists.per_kv_head || !std::equal(most_.begin(), most_.end(), most.begin(), most.end())) {
    most_.clear();  // until the plan is there
    plan_ = plan_paged_attention(most, rows, kv.kv_heads, lists.per_kv_head);
    per_kv_head_ = lists.per_kv_head;
    replace(ctx, plan_.work, work_, old_);
    replace(ctx, plan_.merges, merges_, old_);
    most_.assign(most.begin(), most.end());
  }
  run_attention(ctx, q, group, kv, lists, plan_, work_.as<AttentionWork>(), merges_.as<AttentionMerge>(), to);
}

}  // namespace tandem
