#include "engine/runtime/selection.h"

#include <algorithm>

#include "engine/common/error.h"
#include "engine/device/launch_context.h"
#include "engine/kernels/attention_weights.h"
#include "engine/kernels/digest.h"
#include "engine/kernels/topk.h"
#include "engine/runtime/batch_draws.h"
#include "engine/runtime/decode_attention.h"

namespace tandem {

void score_index(ThreadPool& pool, const ModelShape& shape, const BodyContext& ctx, const DigestIndex& index,
                 std::uint32_t layer, std::uint32_t blocks, const float* query, float* scores, Range kv_heads,
                 std::uint32_t part) {
  const std::uint32_t group = shape.group(), parts = (blocks + part - 1) / part;
  const char* values = index.values.read<char>(ctx);
  pool.parallel_for(std::size_t{kv_heads.end - kv_heads.begin} * parts, [&](std::size_t task) {
    const auto head = static_cast<std::uint32_t>(task / parts), kv_head = kv_heads.begin + head;
    const std::uint32_t first = static_cast<std::uint32_t>(task % parts) * part;
    const std::uint32_t count = std::min(part, blocks - first);
    const std::size_t at = first * index.shape.vector_bytes();
    std::vector<float> own(std::size_t{group} * count);
    score_blocks(query + std::size_t{head} * group * shape.head_dim, values + index.min_offset(layer, kv_head) + at,
                 values + index.max_offset(layer, kv_head) + at, count, {group, shape.head_dim, index.shape.type},
                 own.data());
    for (std::uint32_t h = 0; h < group; ++h)
      std::copy_n(own.data() + std::size_t{h} * count, count,
                  scores + (std::size_t{head} * group + h) * blocks + first);
  });
}

void choose_blocks(ThreadPool& pool, const ModelShape& shape, const Choice& choice, const float* scores,
                   std::uint32_t* lists, std::uint32_t room) {
  const std::uint32_t blocks = choice.blocks, count = choice.lists(shape);
  pool.parallel_for(count, [&](std::size_t list) {
    std::vector<float> reduced;
    const float* own = scores + list * (shape.q_heads / count) * blocks;
    if (choice.scope != Scope::query_head) {
      reduced.resize(blocks);
      reduce_scores(own, shape.kv_heads / count, shape.group(), blocks, choice.reduce, reduced.data());
      own = reduced.data();
    }
    std::uint32_t* chosen = lists + list * (1 + std::size_t{room});
    chosen[0] = choice.keep;
    top_k(own, blocks, choice.keep, chosen + 1, choice.always_first);
  });
}

namespace {

/// Calls visit(blocks, query heads as bits) for each list of a KV head.
template <class Visit>
void for_lists(const ModelShape& shape, Scope scope, std::uint32_t kv_head, const std::uint32_t* lists,
               std::uint32_t room, const Visit& visit) {
  const auto of = [&](std::size_t list, std::uint32_t bits) {
    const std::uint32_t* chosen = lists + list * (1 + std::size_t{room});
    visit(std::span(chosen + 1, chosen[0]), bits);
  };
  if (scope == Scope::kv_head) of(kv_head, ~0u);
  if (scope == Scope::layer) of(0, ~0u);
  if (scope != Scope::query_head) return;
  for (std::uint32_t h = 0; h < shape.group(); ++h) of(std::size_t{kv_head} * shape.group() + h, 1u << h);
}

}  // namespace

BlockSet ChosenBlocks::set(const std::uint32_t* from, const ModelShape& shape, std::uint32_t kv_head) const {
  BlockSet all(blocks);
  for_lists(shape, scope, kv_head, from, index.room,
            [&](std::span<const std::uint32_t> chosen, std::uint32_t) { all.add(chosen); });
  return all;
}

ChosenBlocks::ChosenBlocks(const DigestIndex& digests, const Blocks& chosen, const ModelShape& shape)
    : index(digests), scope(chosen.scope), layer(chosen.layer), blocks(digests.digests[chosen.layer]) {
  most = std::min(blocks, (scope == Scope::query_head ? shape.group() : 1) * chosen.blocks);
}

BlockSelection ChosenBlocks::launched(const LaunchContext& ctx, const std::uint32_t* slots_on_device) const {
  const Range digested = index.digested(layer);
  return {lists(ctx), slots_on_device, blocks, index.block / kPageTokens, digested.end - digested.begin, index.room};
}

void chosen_masks(const ModelShape& shape, Scope scope, std::uint32_t kv_head, const std::uint32_t* lists,
                  std::uint32_t room, std::vector<std::uint32_t>& masks) {
  std::fill(masks.begin(), masks.end(), 0u);
  for_lists(shape, scope, kv_head, lists, room, [&](std::span<const std::uint32_t> blocks, std::uint32_t bits) {
    for (const std::uint32_t block : blocks) masks[block] |= bits;
  });
}

/// A request with what it comes to for one layer. Indexes are kept by value: one that grows gets other memory while
/// operations of before are still at work.
struct DecodeAttention::Selecting {
  DigestIndex index;
  std::uint32_t row = 0, layer = 0;
  ScorePlace place;  // where shapes are simulated
  Choice choice;
};

DecodeAttention::Selecting DecodeAttention::selecting(const LayerContext& context, const ScoreRequest& request) const {
  Selecting s;
  s.index = stores_.digests.get(request.digests.id);
  s.row = request.sequence->row;
  s.layer = context.layer;
  if (draws_ != nullptr)
    s.place = draws_->place(request.sequence->request, context.layer, context.step, BatchDraws::by(request.scope));
  s.choice.blocks = s.index.digests[context.layer];
  s.choice.keep = std::min(request.blocks, s.choice.blocks);
  s.choice.always_first = std::min(request.always_first, s.choice.keep);
  s.choice.scope = request.scope;
  s.choice.reduce = request.reduce;
  return s;
}

void DecodeAttention::score_and_choose(BodyContext& ctx, const ModelShape& shape, const Selecting& s,
                                       const float* query) {
  const DigestIndex& index = s.index;
  auto* to = index.selection.write<std::uint32_t>(ctx);
  if (!ctx.computes()) {
    const std::size_t length = 1 + std::size_t{s.choice.keep};
    const std::uint32_t* from = draws_->chosen_blocks(s.place, s.choice).data();
    for (std::uint32_t list = 0; list < s.choice.lists(shape); ++list)
      std::copy_n(from + list * length, length, to + list * (1 + std::size_t{index.room}));
    return;
  }
  std::vector<float> scores(std::size_t{shape.q_heads} * s.choice.blocks);
  score_index(pool_, shape, ctx, index, s.layer, s.choice.blocks,
              query + std::size_t{s.row} * shape.q_heads * shape.head_dim, scores.data(), {0, shape.kv_heads});
  choose_blocks(pool_, shape, s.choice, scores.data(), to, index.room);
}

void launch_reduction(LaunchContext& ctx, const ModelShape& shape, const Choice& choice,
                      std::vector<ScoreReduction> rows, std::uint32_t most) {
  std::vector<ScoreRow> heads;  // whose softmax counts
  for (ScoreReduction& row : rows) {
    if (choice.reduce != Reduce::softmax_mean) break;
    auto* const sums = ctx.scratch<float>(shape.q_heads);
    row.lse = sums;
    for (std::uint32_t head = 0; head < shape.q_heads; ++head)
      heads.push_back({row.scores + std::size_t{head} * row.n, row.n, sums + head});
  }
  if (!heads.empty()) log_sum_exp_cuda(ctx.pass(heads), static_cast<std::uint32_t>(heads.size()), ctx.stream());
  const std::uint32_t lists = choice.lists(shape);
  reduce_scores_cuda(ctx.pass(rows), static_cast<std::uint32_t>(rows.size()), most,
                     {lists, shape.kv_heads / lists, shape.group()}, choice.reduce, ctx.stream());
}

Blocks DecodeAttention::chosen_blocks(std::uint32_t layer, const ScoreRequest& request, const Selecting& selecting,
                                      Event ready) {
  Blocks blocks;
  blocks.sequence = selecting.index.sequence;
  blocks.side = request.digests.side;
  const Range digested = selecting.index.digested(layer);
  if (digested.begin < digested.end) blocks.positions = {digested};
  blocks.ready = ready;
  blocks.digests = request.digests;
  blocks.layer = layer;
  blocks.scope = request.scope;
  blocks.blocks = selecting.choice.keep;
  return blocks;
}

Blocks DecodeAttention::select_on_host(const LayerContext& context, const ScoreRequest& request) {
  const Selecting s = selecting(context, request);
  const ModelShape& shape = context.shape;
  Op op("select blocks", Cause::selection, context.layer);
  op.cost.work = Work::select;
  op.cost.dram = op.cost.context = s.index.digest_bytes(s.choice.blocks);
  op.cost.tasks = shape.kv_heads * ((s.choice.blocks + kSelectionBlocks - 1) / kSelectionBlocks);
  op.cost.flops = std::uint64_t{4} * shape.q_heads * s.choice.blocks * shape.head_dim;
  rank_scores(op.cost, s.choice.lists(shape), s.choice.blocks, s.choice.keep);
  op.access = {host_.query.reads(s.row, s.row + 1), s.index.values.reads(context.layer, context.layer + 1),
               s.index.selection.writes()};
  op.after = {query_on_host(context)};
  op.has_cost_only_part = true;
  op.body = [this, shape, s](BodyContext& ctx) { score_and_choose(ctx, shape, s, ctx.read<float>(host_.query)); };
  return chosen_blocks(context.layer, request, s, device_.submit(workers_, std::move(op)));
}

std::vector<Blocks> DecodeAttention::select_on_device(const LayerContext& context,
                                                      std::span<const ScoreRequest> requests, const DeviceBuffer& query,
                                                      Event query_ready) {
  const ModelShape& shape = context.shape;
  std::vector<Selecting> work;
  work.reserve(requests.size());
  for (const ScoreRequest& request : requests) {
    TANDEM_CHECK(request.scope == requests.front().scope && request.reduce == requests.front().reduce,
                 "the rows of a batch choose alike");
    work.push_back(selecting(context, request));
  }
  Op op("select blocks", Cause::selection, context.layer);
  op.cost.work = Work::select;
  // Scores, sums of softmaxes, what heads share, top-k.
  op.cost.kernels = requests.front().scope == Scope::query_head       ? 2
                    : requests.front().reduce == Reduce::softmax_mean ? 4
                                                                      : 3;
  op.after = {query_ready};
  for (const Selecting& s : work) {
    const std::uint64_t scores = std::uint64_t{shape.q_heads} * s.choice.blocks * sizeof(float);
    const std::uint64_t lists = std::uint64_t{s.choice.lists(shape)} * (1 + s.choice.keep) * sizeof(std::uint32_t);
    op.cost.context += s.index.digest_bytes(s.choice.blocks);
    op.cost.hbm += s.index.digest_bytes(s.choice.blocks) + 2 * scores + lists +
                   std::uint64_t{shape.q_heads} * shape.head_dim * sizeof(float);
    op.cost.flops += std::uint64_t{4} * shape.q_heads * s.choice.blocks * shape.head_dim;
    op.access.push_back(query.reads(s.row, s.row + 1));
    op.access.push_back(s.index.values.reads(context.layer, context.layer + 1));
    op.access.push_back(s.index.selection.writes());
  }
  op.launch = [&](LaunchContext& ctx) {  // for all rows at once
    std::vector<BlockScores> rows;
    std::vector<TopKRow> lists;
    std::uint32_t most = 0;
    rows.reserve(work.size());
    for (const Selecting& s : work) {
      const DigestIndex& index = s.index;
      TANDEM_CHECK(index.kind == work.front().index.kind, "digests of two kinds at once");
      rows.push_back({ctx.read<float>(query) + std::size_t{s.row} * shape.q_heads * shape.head_dim,
                      index.values.read<char>(ctx) + index.min_offset(s.layer, 0), s.choice.blocks,
                      ctx.scratch<float>(std::size_t{shape.q_heads} * s.choice.blocks), index.room});
      most = std::max(most, s.choice.blocks);
    }
    const KvShape& kv = kv_.shape();
    score_blocks_cuda(ctx.upload(rows), static_cast<std::uint32_t>(rows.size()), most, shape.kv_heads,
                      {shape.group(), shape.head_dim, kv.type}, ctx.stream(), work.front().index.kind);
    std::vector<ScoreReduction> reductions;
    reductions.reserve(work.size());
    for (std::size_t i = 0; i < work.size(); ++i) {
      const Choice& choice = work[i].choice;
      const std::uint32_t count = choice.lists(shape);
      const float* scores = rows[i].scores;
      if (choice.scope != Scope::query_head) {
        auto* const reduced = ctx.scratch<float>(std::size_t{count} * choice.blocks);
        reductions.push_back({scores, reduced, choice.blocks});
        scores = reduced;
      }
      auto* const out = work[i].index.selection.write<std::uint32_t>(ctx);
      for (std::uint32_t list = 0; list < count; ++list)
        lists.push_back({scores + std::size_t{list} * choice.blocks, choice.blocks, choice.keep,
                         out + list * (1 + std::size_t{work[i].index.room}), choice.always_first});
    }
    if (!reductions.empty()) launch_reduction(ctx, shape, work.front().choice, std::move(reductions), most);
    top_k_cuda(ctx.pass(lists), static_cast<std::uint32_t>(lists.size()), 1, ctx.stream());
  };
  op.body = [this, shape, work, query](BodyContext& ctx) {
    for (const Selecting& s : work) score_and_choose(ctx, shape, s, ctx.read<float>(query));
  };
  op.has_cost_only_part = true;
  const Event done = device_.submit(compute_, std::move(op));
  std::vector<Blocks> selections;
  selections.reserve(work.size());
  for (std::size_t i = 0; i < work.size(); ++i)
    selections.push_back(chosen_blocks(context.layer, requests[i], work[i], done));
  return selections;
}

std::vector<Blocks> DecodeAttention::score_topk(const LayerContext& context, std::span<const ScoreRequest> requests) {
  std::vector<std::uint32_t> indices;
  indices.reserve(requests.size());
  for (const ScoreRequest& request : requests) indices.push_back(request.digests.id);
  std::sort(indices.begin(), indices.end());
  TANDEM_CHECK(std::adjacent_find(indices.begin(), indices.end()) == indices.end(),
               "two choices are asked of one digest index, which holds one: build an index for each");
  std::vector<Blocks> selections(requests.size());
  std::vector<ScoreRequest> on_device;
  std::vector<std::size_t> places;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    if (requests[i].digests.side == Side::host) {
      selections[i] = select_on_host(context, requests[i]);
    } else {
      on_device.push_back(requests[i]);
      places.push_back(i);
    }
  }
  if (on_device.empty()) return selections;
  const std::vector<Blocks> made = select_on_device(context, on_device, forward_.q(), query_ready_);
  for (std::size_t i = 0; i < made.size(); ++i) selections[places[i]] = made[i];
  return selections;
}

}  // namespace tandem
