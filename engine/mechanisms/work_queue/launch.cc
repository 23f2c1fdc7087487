// Tasks of attention on a GPU: what a method estimates of each head, a task that the GPU pulled, what the host's came
// to, and the merge of both.
#include <algorithm>
#include <utility>

#include "engine/common/error.h"
#include "engine/kernels/attention.h"
#include "engine/kernels/digest.h"
#include "engine/kernels/paged_attention.h"
#include "engine/kernels/topk.h"
#include "engine/mechanisms/work_queue/work_queue.h"
#include "engine/runtime/launched_attention.h"

namespace tandem {

void WorkQueue::launch_estimate(LaunchContext& ctx, std::vector<HeadView> views, const HeadEstimate& heads,
                                const Room& room) const {
  if (!heads.launch) no_cuda_code("These estimates of heads have");
  for (HeadView& view : views) view = seen(ctx, view, room);
  heads.launch(ctx, views, ctx.write<float>(estimates_));
}

/// Digests and the chosen pages stay in pinned memory, which the kernels read over the link. All pointers are those of
/// the task's row: the plan's row 0.
void WorkQueue::launch_task(LaunchContext& ctx, const Pulled& work, const Room& room, const Cost& without,
                            const Cost& token) {
  const ModelShape& shape = forward_.shape();
  const DigestIndex& index = work.pages->index;
  const std::uint32_t group = shape.group(), row = work.task.row, head = work.task.kv_head;
  const std::uint32_t pages_per_block = index.block / kPageTokens, capacity = work.most * pages_per_block;
  const std::size_t width = std::size_t{shape.q_heads} * shape.head_dim;
  const auto* const query = ctx.read<float>(forward_.q()) + row * width;
  const CudaStream stream = ctx.stream();

  auto* const scores = ctx.scratch<float>(std::size_t{group} * work.blocks);
  const std::vector<BlockScores> scored = {{query + std::size_t{head} * group * shape.head_dim,
                                            index.values.read<char>(ctx) + index.min_offset(work.layer, head),
                                            work.blocks, scores, index.room}};
  score_blocks_cuda(ctx.upload(scored), 1, work.blocks, 1, {group, shape.head_dim, index.shape.type}, stream);

  auto* const chosen = ctx.scratch<std::uint32_t>(std::size_t{group} * (1 + work.blocks));
  std::vector<TopKRow> best;
  best.reserve(group);
  for (std::uint32_t h = 0; h < group; ++h) {
    best.push_back({scores + std::size_t{h} * work.blocks, work.blocks, work.task.blocks[h],
                    chosen + h * (1 + std::size_t{work.blocks})});
  }
  top_k_cuda(ctx.pass(best), group, 1, stream);

  const Range digested = index.digested(work.layer);
  const std::vector<BlockSelection> selection = {{chosen, ctx.upload(work.pages->slots), work.blocks, pages_per_block,
                                                  digested.end - digested.begin, work.blocks}};
  // Attention looks for the list of its KV head.
  auto* const entries = ctx.scratch<PageEntry>(std::size_t{shape.kv_heads} * capacity);
  auto* const counts = ctx.scratch<std::uint32_t>(shape.kv_heads);
  const PageLists own = {entries + std::size_t{head} * capacity, counts + head, capacity, true};
  // Of a short last block the list has entries without tokens: bytes go by tokens. As a number of 64 bits these are two
  // counts, of which the second is 0.
  auto* const tokens = ctx.scratch<std::uint64_t>(1);
  pages_of_selection_cuda(ctx.pass(selection), 1, 1, group, 1, work.task.own_only, capacity,
                          entries + std::size_t{head} * capacity, counts + head, stream,
                          {ctx.write<std::uint64_t>(room.device_attended) + row, tokens});
  ctx.settle_by(reinterpret_cast<const std::uint32_t*>(tokens), 2, token, without);
  Cost page;
  ctx.settle_by(own.counts, 1, page, without);

  const std::vector<AttentionTask> task = {{0, head, capacity}};
  const AttentionPlan plan = plan_attention_tasks(task);
  PagedAttention a;
  a.q = query;
  a.group = group;
  a.kv = {ctx.read<char>(kv_.host_buffer()), kv_.shape().type, shape.kv_heads, shape.head_dim};
  a.lists = {entries, counts, capacity, true};
  a.work = ctx.upload(plan.work);
  a.merges = ctx.upload(plan.merges);
  a.work_count = static_cast<std::uint32_t>(plan.work.size());
  a.merge_count = static_cast<std::uint32_t>(plan.merges.size());
  a.part_count = plan.parts;
  a.o = ctx.write<float>(room.landed_part) + row * width;
  a.lse = ctx.write<float>(room.landed_lse) + std::size_t{row} * shape.q_heads;
  a.parts = ctx.scratch<float>(paged_attention_scratch(plan, group, shape.head_dim));
  paged_attention_cuda(a, stream);

  launched_[row * shape.kv_heads + head] = true;
  ++ctx.write<std::uint64_t>(device_tasks_)[row];
}

void WorkQueue::launch_merge(LaunchContext& ctx, const std::vector<bool>& has_task, const Room& room) const {
  const ModelShape& shape = forward_.shape();
  std::vector<const float*> values, sums;
  const auto add = [&](const DeviceBuffer& out, const DeviceBuffer& lse) {
    values.push_back(ctx.read<float>(out));
    sums.push_back(ctx.read<float>(lse));
  };
  for (const PartialBuffers* part : on_device(room)) add(part->out, part->lse);
  const bool any = std::find(has_task.begin(), has_task.end(), true) != has_task.end();
  if (any) add(room.landed_part, room.landed_lse);
  merge_partials_cuda(ctx.pass(values), ctx.pass(sums), static_cast<std::uint32_t>(values.size()),
                      static_cast<std::uint32_t>(has_task.size()) * shape.group(), shape.head_dim,
                      ctx.write<float>(forward_.attention()), nullptr, ctx.stream(),
                      any ? last_part(ctx, has_task, shape.group()) : LastPart());
}

}  // namespace tandem
