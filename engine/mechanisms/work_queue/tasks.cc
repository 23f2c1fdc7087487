// The operations of one pulled task: on the host, selection and attention in its memory; on the device, one kernel
// group that reads over the link. Both come to the same bits.
#include <algorithm>
#include <numeric>
#include <utility>

#include "engine/common/error.h"
#include "engine/device/launch_context.h"
#include "engine/kernels/digest.h"
#include "engine/kernels/paged_attention.h"
#include "engine/kernels/topk.h"
#include "engine/mechanisms/work_queue/work_queue.h"
#include "engine/runtime/launched_attention.h"
#include "engine/runtime/selection.h"

namespace tandem {
namespace {

// Of one thread at a time. A task is one KV head's, and all threads share it: with parts of 256 blocks a block of 128
// tokens left 19 of 20 threads without work at 32K, and an eighth of the digests took as long as all of them.
constexpr std::uint32_t kScoredBlocks = 16, kTaskPartTokens = 128;

}  // namespace

/// The best blocks of each query head of the task, in ascending order, to lists[head].
void WorkQueue::choose_blocks(BodyContext& ctx, ThreadPool& pool, const Pulled& work, const float* query,
                              std::span<std::uint32_t* const> lists) const {
  const bool draw = !ctx.computes();
  const ModelShape& shape = forward_.shape();
  const DigestIndex& index = work.pages->index;
  const std::uint32_t group = shape.group(), blocks = work.blocks;
  std::vector<float> own_scores(draw ? 0 : std::size_t{group} * blocks);
  if (!draw)
    score_index(pool, shape, ctx, index, work.layer, blocks, query, own_scores.data(),
                {work.task.kv_head, work.task.kv_head + 1}, kScoredBlocks);
  const float* scores = draw ? draws_->block_scores(work.place, blocks).data() : own_scores.data();
  pool.parallel_for(group, [&](std::size_t h) {
    if (work.task.blocks[h] > 0) top_k(scores + h * blocks, blocks, work.task.blocks[h], lists[h]);
  });
}

/// The sizes that spans_of() would count, without going over the pages. With several KV heads no two pages of one head
/// are adjacent (link_pieces.h).
WorkQueue::Sizes WorkQueue::sizes_of(const Pulled& work, std::span<const Blocks> lists) {
  BlockSet set(work.blocks);
  for (const Blocks& blocks : lists) set.add(blocks);
  const std::uint32_t tokens = work.pages->index.tokens_of(set, work.blocks);
  const std::uint32_t short_page = tokens % kPageTokens > 0 ? 1 : 0;  // its K and V are apart
  return {set.runs(), blocks_for(tokens) + short_page, tokens};
}

/// Pages that the task reads, each for the heads that chose it.
HeadSpans WorkQueue::spans_of(BodyContext& ctx, const Pulled& work, std::span<const Blocks> lists,
                              std::vector<Access>& access, Sizes& sizes) const {
  const DigestIndex& index = work.pages->index;
  const std::uint32_t head = work.task.kv_head;
  std::vector<std::uint32_t> masks(work.blocks);
  for (std::uint32_t h = 0; h < lists.size(); ++h) {
    for (const std::uint32_t block : lists[h]) masks[block] |= 1u << h;
  }
  const char* pages = ctx.read<char>(kv_.host_buffer());
  LinkPieces pieces;
  HeadSpans out{work.task.row, head, {}};
  std::uint32_t first = 0, slots = 0;  // adjacent ones are one access
  const auto read = [&] {
    if (slots > 0) access.push_back(kv_.slot_access(Tier::host, first, slots, Range{head, head + 1}, false));
    slots = 0;
  };
  for (std::uint32_t b = 0; b < work.blocks; ++b) {
    if (masks[b] == 0) continue;
    if (b == 0 || masks[b - 1] == 0) ++sizes.runs;
    const Range range = index.block_tokens(b);
    for (std::uint32_t token = range.begin; token < range.end; token += kPageTokens) {
      const std::uint32_t slot = work.pages->slots[(token - index.tokens.begin) / kPageTokens];
      const std::uint32_t count = std::min(kPageTokens, range.end - token);
      out.spans.push_back({pages + kv_.k_offset(slot, head), pages + kv_.v_offset(slot, head), count,
                           work.task.own_only ? masks[b] : ~0u});
      pieces.add(kv_.k_offset(slot, head), count * kv_.shape().vector_bytes());
      pieces.add(kv_.v_offset(slot, head), count * kv_.shape().vector_bytes());
      if (slots == 0 || slot != first + slots) {
        read();
        first = slot;
      }
      ++slots;
      sizes.tokens += count;
    }
  }
  read();
  sizes.pieces = pieces.count();
  return out;
}

/// Attends the task's pages into `o` and `lse`, where tensors are computed. `access`: the task's own, to which those of
/// the pages come; emptied where nobody looks at them. Returns the pages' sizes.
WorkQueue::Sizes WorkQueue::attend_pages(BodyContext& ctx, ThreadPool& pool, const Pulled& work,
                                         std::span<const Blocks> lists, const float* query, float* o, float* lse,
                                         std::vector<Access>& access) const {
  const ModelShape& shape = forward_.shape();
  if (!ctx.computes() && !ctx.lists_access() && shape.kv_heads > 1) {
    access.clear();
    return sizes_of(work, lists);
  }
  Sizes sizes;
  const std::vector<HeadSpans> spans = {spans_of(ctx, work, lists, access, sizes)};
  if (ctx.computes())
    attend_in_parts(pool, shape, kv_.shape().type, spans, cut_parts(spans, kv_.shape().vector_bytes(), kTaskPartTokens),
                    query, o, lse);
  return sizes;
}

std::vector<Op> WorkQueue::host_ops(const std::shared_ptr<const Pulled>& shared_work,
                                    const std::shared_ptr<const Room>& shared_room, Event query_on_host,
                                    std::uint32_t threads, ThreadPool& pool) {
  const ModelShape& shape = forward_.shape();
  const Pulled& work = *shared_work;
  const Room& room = *shared_room;
  const std::uint32_t group = shape.group(), row = work.task.row, head = work.task.kv_head, layer = work.layer;
  const DigestIndex& index = work.pages->index;
  const Access query = of_head(room.host.query.reads(row, row + 1), head);
  const Access list_write = of_head(index.selection.writes(), head);
  const Access list_read = of_head(index.selection.reads(), head);
  const auto list_at = [index, head, group](std::uint32_t h) {
    return (std::size_t{head} * group + h) * (1 + std::size_t{index.room});
  };

  Op select("select blocks", Cause::selection, layer);
  select.cost.work = Work::select;
  select.cost.dram = select.cost.context = work.digest_bytes();
  select.cost.threads = threads;
  select.cost.tasks = (work.blocks + kScoredBlocks - 1) / kScoredBlocks;
  select.cost.flops = std::uint64_t{4} * group * work.blocks * shape.head_dim;
  for (const std::uint32_t keep : work.task.blocks) rank_scores(select.cost, 1, work.blocks, keep);
  select.access = {query, index.values.reads(layer, layer + 1), list_write};
  select.after = work.pages->filled;
  wait_for(select.after, query_on_host);
  select.has_cost_only_part = true;
  select.body = [this, shared_work, shared_room, list_at, pool = &pool](BodyContext& ctx) {
    const Pulled& w = *shared_work;
    const ModelShape& s = forward_.shape();
    const std::size_t at = (std::size_t{w.task.row} * s.q_heads + w.task.kv_head * s.group()) * s.head_dim;
    auto* out = w.pages->index.selection.write<std::uint32_t>(ctx);
    std::vector<std::uint32_t*> lists(s.group());
    for (std::uint32_t h = 0; h < lists.size(); ++h) {
      out[list_at(h)] = w.task.blocks[h];
      lists[h] = out + list_at(h) + 1;
    }
    choose_blocks(ctx, *pool, w, ctx.read<float>(shared_room->host.query) + at, lists);
  };

  Op attend("host attention", Cause::host_attention, layer);
  attend.cost.work = Work::attention;
  attend.cost.upper_bound = true;
  const std::uint64_t small = std::uint64_t{2} * group * shape.head_dim * sizeof(float),
                      most = std::uint64_t{work.most} * index.block;
  const std::uint64_t per_token = 2 * kv_.shape().vector_bytes(), flops = std::uint64_t{4} * group * shape.head_dim;
  attend.cost.context = most * per_token;
  attend.cost.dram = small + attend.cost.context;
  attend.cost.flops = most * flops;
  attend.cost.tasks = 1 + static_cast<std::uint32_t>(most / kTaskPartTokens);
  attend.cost.threads = threads;
  attend.cost.pieces = work.most;
  const std::uint32_t task = row * shape.kv_heads + head;
  const std::uint32_t counted = (row * shape.layers + layer) * shape.kv_heads + head;
  const std::vector<Access> own = {query,
                                   list_read,
                                   of_head(room.host.part.writes(row, row + 1), head),
                                   of_head(room.host.lse.writes(row, row + 1), head),
                                   by_host_.writes(task, task + 1),
                                   host_tokens_.writes(counted, counted + 1)};
  attend.access = own;
  for (const Access& a : work.pages->access) attend.access.push_back(of_head(a, head));
  attend.has_cost_only_part = true;
  attend.body = [this, shared_work, shared_room, own, small, per_token, flops, task, counted, list_at, threads,
                 pool = &pool](BodyContext& ctx) {
    const Pulled& w = *shared_work;
    const ModelShape& s = forward_.shape();
    const auto* chosen = w.pages->index.selection.read<std::uint32_t>(ctx);
    std::vector<Blocks> lists(s.group());
    for (std::uint32_t h = 0; h < lists.size(); ++h) lists[h] = {chosen + list_at(h) + 1, chosen[list_at(h)]};
    std::vector<Access> access = own;
    const HostRoom& host = shared_room->host;
    const Sizes sizes = attend_pages(ctx, *pool, w, lists, ctx.read<float>(host.query), ctx.write<float>(host.part),
                                     ctx.write<float>(host.lse), access);
    ctx.write<std::uint64_t>(host_tokens_)[counted] = sizes.tokens;
    ctx.write<std::uint8_t>(by_host_)[task] = 1;
    Cost cost;
    cost.work = Work::attention;
    cost.context = sizes.tokens * per_token;
    cost.dram = small + cost.context;
    cost.flops = sizes.tokens * flops;
    cost.tasks = parts_of(sizes.tokens, kTaskPartTokens);
    cost.threads = threads;
    cost.pieces = sizes.runs;
    ctx.settle(cost, std::move(access));
  };
  std::vector<Op> ops;
  ops.push_back(std::move(select));
  ops.push_back(std::move(attend));
  return ops;
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
  // Bytes go by tokens, since the list of a short last block has entries without tokens. As a number of 64 bits these
  // are two counts, of which the second is 0.
  auto* const tokens = ctx.scratch<std::uint64_t>(1);
  pages_of_selection_cuda(ctx.pass(selection), 1, 1, group, 1, work.task.own_only, capacity,
                          entries + std::size_t{head} * capacity, counts + head, stream,
                          {ctx.write<std::uint64_t>(room.device_attended) + row, tokens});
  ctx.settle_by(reinterpret_cast<const std::uint32_t*>(tokens), 2, token, without);
  Cost page;
  ctx.settle_by(own.counts, 1, page, without);

  const std::vector<AttentionTask> task = {{0, head, capacity}};
  const AttentionPlan plan = plan_attention_tasks(task);
  const KvPages pages{ctx.read<char>(kv_.host_buffer()), kv_.shape().type, shape.kv_heads, shape.head_dim};
  run_attention(ctx, query, group, pages, {entries, counts, capacity, true}, plan, ctx.upload(plan.work),
                ctx.upload(plan.merges),
                {ctx.write<float>(room.host.landed.out) + row * width,
                 ctx.write<float>(room.host.landed.lse) + std::size_t{row} * shape.q_heads});

  launched_[row * shape.kv_heads + head] = true;
  ++ctx.write<std::uint64_t>(device_tasks_)[row];
}

/// One kernel group that reads digests and what it chooses over the link: the same values as on the host.
Op WorkQueue::device_op(const std::shared_ptr<const Pulled>& shared_work,
                        const std::shared_ptr<const Room>& shared_room) {
  const Pulled& work = *shared_work;
  const Room& room = *shared_room;
  const ModelShape& shape = forward_.shape();
  const std::uint32_t group = shape.group(), row = work.task.row, head = work.task.kv_head, layer = work.layer;
  Op op("attend over the link", Cause::recall, layer);
  op.kind = Kind::copy;  // bound by the link, which it reads from beginning to end
  op.cost.work = Work::attention;
  op.cost.gathered = op.cost.upper_bound = true;
  // Scores, top-k, pages, attention; the merge of its parts where there are several.
  op.cost.kernels = is_split(work.most * blocks_for(work.pages->index.block)) ? 5 : 4;
  const std::uint64_t small = std::uint64_t{2} * group * shape.head_dim * sizeof(float),
                      most = std::uint64_t{work.most} * work.pages->index.block;
  const std::uint64_t per_token = 2 * kv_.shape().vector_bytes(), flops = std::uint64_t{4} * group * shape.head_dim;
  const std::uint64_t scoring = std::uint64_t{4} * group * work.blocks * shape.head_dim;
  // The kernel reads a digest once for four query heads.
  const std::uint64_t crossing = work.digest_bytes() * ((group + 3) / 4);
  op.cost.hbm = small + std::uint64_t{2} * group * work.blocks * sizeof(float);
  op.cost.h2d = op.cost.context = crossing + most * per_token;
  // Lows and highs of the digests, and pages; of a short page, the index's last tokens, K and V are apart.
  op.cost.pieces = 2 + work.most * blocks_for(work.pages->index.block) + 1;
  op.cost.flops = scoring + most * flops;
  const std::vector<Access> own = {of_head(forward_.q().reads(row, row + 1), head),
                                   work.pages->index.values.reads(layer, layer + 1),
                                   of_head(room.host.landed.out.writes(row, row + 1), head),
                                   of_head(room.host.landed.lse.writes(row, row + 1), head),
                                   room.device_attended.writes(row, row + 1),
                                   device_tasks_.writes(row, row + 1)};
  op.access = own;
  for (const Access& a : work.pages->access) op.access.push_back(of_head(a, head));
  op.after = work.pages->filled;
  op.has_cost_only_part = true;
  op.body = [this, shared_work, shared_room, own, per_token, flops, cost = op.cost, scoring,
             crossing](BodyContext& ctx) {
    const Pulled& w = *shared_work;
    const ModelShape& s = forward_.shape();
    const float* query = ctx.read<float>(forward_.q());
    const std::size_t at = (std::size_t{w.task.row} * s.q_heads + w.task.kv_head * s.group()) * s.head_dim;
    std::vector<std::uint32_t> numbers(std::accumulate(w.task.blocks.begin(), w.task.blocks.end(), std::size_t{0}));
    std::vector<std::uint32_t*> to;
    std::vector<Blocks> lists;
    for (std::size_t first = 0; const std::uint32_t keep : w.task.blocks) {
      to.push_back(numbers.data() + first);
      lists.emplace_back(numbers.data() + first, keep);
      first += keep;
    }
    choose_blocks(ctx, pool_, w, query + at, to);
    std::vector<Access> access = own;
    const PartialBuffers& landed = shared_room->host.landed;
    const Sizes sizes =
        attend_pages(ctx, pool_, w, lists, query, ctx.write<float>(landed.out), ctx.write<float>(landed.lse), access);
    ctx.write<std::uint64_t>(shared_room->device_attended)[w.task.row] += sizes.tokens;
    ++ctx.write<std::uint64_t>(device_tasks_)[w.task.row];
    Cost settled = cost;
    settled.upper_bound = false;
    settled.h2d = settled.context = crossing + sizes.tokens * per_token;
    settled.pieces = 2 + sizes.pieces;
    settled.flops = scoring + sizes.tokens * flops;
    ctx.settle(settled, std::move(access));
  };
  Cost without = op.cost, token;
  without.h2d = without.context = crossing;
  without.flops = scoring;
  without.pieces = 2;
  token.h2d = token.context = per_token;
  token.flops = flops;
  token.pieces = 0;  // by pages
  op.launch = [this, shared_work, shared_room, without, token](LaunchContext& ctx) {
    launch_task(ctx, *shared_work, *shared_room, without, token);
  };
  return op;
}

}  // namespace tandem
