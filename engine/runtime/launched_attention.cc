#include "engine/runtime/launched_attention.h"

#include <algorithm>

namespace tandem {
namespace {

/// Into memory that grows: what is queued in the stream still reads what was there before.
template <class T>
void replace(LaunchContext& ctx, const std::vector<T>& values, CudaMemory& memory) {
  const std::size_t bytes = values.size() * sizeof(T);
  if (bytes == 0) return;
  if (bytes > memory.bytes()) {
    cuda_wait(ctx.stream());
    memory = CudaMemory(2 * bytes);
  }
  cuda_copy(memory.as<>(), ctx.upload(values), bytes, ctx.stream());
}

}  // namespace

void LaunchedAttention::run(LaunchContext& ctx, const float* q, std::uint32_t rows, std::uint32_t group,
                            const KvPages& kv, const PageLists& lists, std::span<const std::uint32_t> most,
                            const PartialOut& to) {
  if (per_kv_head_ != lists.per_kv_head || !std::equal(most_.begin(), most_.end(), most.begin(), most.end())) {
    plan_ = plan_paged_attention(most, rows, kv.kv_heads, lists.per_kv_head);
    most_.assign(most.begin(), most.end());
    per_kv_head_ = lists.per_kv_head;
    replace(ctx, plan_.work, work_);
    replace(ctx, plan_.merges, merges_);
  }
  PagedAttention a;
  a.q = q;
  a.group = group;
  a.kv = kv;
  a.lists = lists;
  a.work = work_.as<AttentionWork>();
  a.merges = merges_.as<AttentionMerge>();
  a.work_count = static_cast<std::uint32_t>(plan_.work.size());
  a.merge_count = static_cast<std::uint32_t>(plan_.merges.size());
  a.part_count = plan_.parts;
  a.o = to.o;
  a.lse = to.lse;
  a.parts = ctx.scratch<float>(paged_attention_scratch(plan_, group, kv.dim));
  paged_attention_cuda(a, ctx.stream());
}

}  // namespace tandem
