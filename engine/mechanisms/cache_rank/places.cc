// A selection ahead where its rank is (AsyncSpade section 4.1): a message out, the choice, a message back, for a pack
// of layers and the whole batch. Where the rank is another stream of the device, the messages are the operation's own
// reads and writes.
#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "engine/common/error.h"
#include "engine/device/launch_context.h"
#include "engine/distributed/message.h"
#include "engine/mechanisms/cache_rank/cache_ranks.h"
#include "engine/mechanisms/cache_rank/kernels/query_prediction.h"
#include "engine/mechanisms/cache_rank/remote_rank.h"
#include "engine/runtime/copy_op.h"
#include "engine/runtime/launched_attention.h"
#include "engine/runtime/selection.h"

namespace tandem {
namespace {

Op choice_op(Range layers, const auto& work /*Selection*/, std::size_t score_floats) {
  Op op("select ahead", Cause::selection, layers.begin);
  op.cost.work = Work::attention;  // nearly all of it reads K of whole pages, as attention does
  // New queries one after the other, of all layers and rows at once; then of as many as have room for scores together
  // pages, prediction (equation 2's windows are solved in a kernel of their own), scores, top-k, gather.
  std::uint32_t pushed = 0, pages = 1;
  std::size_t choosing = 0;
  for (const auto& w : work) {
    pushed = std::max(pushed, w.pushed());
    if (w.keep == 0) continue;
    choosing += layers.end - layers.begin;
    pages = std::max(pages, blocks_for(w.end));
  }
  const auto& rank = work.front().rank;
  const std::size_t floats = std::size_t{rank.q_heads} * pages * kPageTokens;
  const std::uint32_t each = rank.rule.weights == LagWeights::eq2 ? 6 : 5;
  const std::uint32_t rounds = choosing == 0 ? 0 : rounds_of(choosing, rows_together(score_floats, floats, choosing));
  op.cost.kernels = std::max(pushed + rounds * each, 1u);
  op.cost.heavy = std::max(rounds, 1u);
  return op;
}

DeviceRope device_rope(LaunchContext& ctx, const PredictionRule& rule, const RopeTable& rope) {
  if (!rule.pre_rope) return {};
  return {ctx.upload(rope.inverse_frequency), rope.scale};
}

}  // namespace

/// Into the windows of the pack's layers, from the device or from what arrived on the host.
void CacheRanks::push_queries(BodyContext& ctx, Range layers, const std::vector<Selection>& work, bool inbox) const {
  const auto count = layers.end - layers.begin;
  pool_.parallel_for(work.size() * count, [&](std::size_t task) {
    const Selection& w = work[task / count];
    const CacheRank& rank = w.rank;
    const auto layer = layers.begin + static_cast<std::uint32_t>(task % count);
    if (w.pushed() == 0) return;
    const std::uint32_t slots = inbox ? rank.rule.room() : w.slots;
    const float* from = inbox ? ctx.read<float>(rank.inbox) : ctx.read<float>(w.from);
    for (std::uint32_t p = w.positions.begin; p < w.positions.end; ++p) {
      push_query(rank.rule, forward_.rope_table(), from + (std::size_t{layer} * slots + p % slots) * rank.width(),
                 rank.q_heads, rank.shape.head_dim, p, rank.window.write<float>(ctx) + rank.window_offset(layer));
    }
  });
}

/// From pages where the rank is, to where its selections leave from.
void CacheRanks::choose_ahead(BodyContext& ctx, Range layers, const std::vector<Selection>& work) const {
  const ModelShape& shape = forward_.shape();
  const std::size_t tasks = std::size_t{layers.end - layers.begin} * shape.kv_heads;
  pool_.parallel_for(work.size() * tasks, [&](std::size_t task) {
    const Selection& w = work[task / tasks];
    if (w.keep == 0) return;
    const CacheRank& rank = w.rank;
    const auto pack_layer = static_cast<std::uint32_t>(task % tasks / shape.kv_heads);
    const auto g = static_cast<std::uint32_t>(task % shape.kv_heads);
    const std::uint32_t layer = layers.begin + pack_layer;
    const bool host = rank.place == RankPlace::host;
    const char* pages = host ? ctx.read<char>(kv_.host_buffer()) : ctx.read<char>(kv_.device_buffer());
    std::vector<KvSpan> spans;
    spans.reserve(w.at[pack_layer].size());
    for (const std::uint32_t slot : w.at[pack_layer])
      spans.push_back({pages + kv_.k_offset(slot, g), pages + kv_.v_offset(slot, g), kPageTokens, ~0u});
    const AheadWindow window{rank.window.write<float>(ctx) + rank.window_offset(layer) +
                                 std::size_t{g} * shape.group() * rank.rule.room() * shape.head_dim,
                             w.known, w.positions.end - 1};
    char* k = (host ? ctx.write<char>(rank.outbox) : ctx.write<char>(rank.packed)) + rank.packed_offset(layer, g);
    tandem::select_ahead(rank.rule, forward_.rope_table(), window, spans,
                         {shape.group(), shape.head_dim, kv_.shape().type}, w.keep, k, k + rank.half_bytes());
  });
}

void CacheRanks::launch_ahead(LaunchContext& ctx, Range layers, const std::vector<Selection>& work) const {
  const PredictionRule& rule = work.front().rank.rule;
  const DeviceRope rope = device_rope(ctx, rule, forward_.rope_table());
  std::uint32_t most = 0;
  for (const Selection& w : work) most = std::max(most, w.pushed());
  // One after another: of a prompt, several queries go into each window.
  for (std::uint32_t i = 0; i < most; ++i) {
    std::vector<QueryPush> pushes;
    for (const Selection& w : work) {
      if (i >= w.pushed()) continue;
      const CacheRank& rank = w.rank;
      const std::uint32_t position = w.positions.begin + i;
      for (std::uint32_t layer = layers.begin; layer < layers.end; ++layer) {
        const std::size_t at = std::size_t{layer} * w.slots + position % w.slots;
        pushes.push_back({ctx.read<float>(w.from) + at * rank.width(),
                          rank.window.write<float>(ctx) + rank.window_offset(layer), position});
      }
    }
    push_queries_cuda(rule, rope, ctx.pass(pushes), static_cast<std::uint32_t>(pushes.size()), forward_.shape().q_heads,
                      forward_.shape().head_dim, ctx.stream());
  }
  struct Row {
    const Selection* work = nullptr;
    std::uint32_t layer = 0;
    const std::vector<std::uint32_t>* slots = nullptr;
  };
  const ModelShape& shape = forward_.shape();
  std::vector<Row> all;
  std::size_t pages = 1;
  for (std::uint32_t layer = layers.begin; layer < layers.end; ++layer) {
    for (const Selection& w : work) {
      if (w.keep == 0) continue;
      all.push_back({&w, layer, &w.at[layer - layers.begin]});
      pages = std::max(pages, all.back().slots->size());
    }
  }
  if (all.empty()) return;
  const std::size_t together = rows_together(forward_.score_floats(), shape.q_heads * pages * kPageTokens, all.size());
  auto* const queries = ctx.scratch<float>(together * shape.q_heads * shape.head_dim);
  auto* const scores = ctx.scratch<float>(together * shape.q_heads * pages * kPageTokens);
  auto* const weights =
      ctx.scratch<double>(prediction_scratch(rule, static_cast<std::uint32_t>(together), shape.q_heads));
  for (std::size_t first = 0; first < all.size(); first += together) {
    const std::span<const Row> rows(all.data() + first, std::min(together, all.size() - first));
    AheadBatch batch;
    batch.rows = static_cast<std::uint32_t>(rows.size());
    batch.group = shape.group();
    batch.kv = device_pages(ctx, kv_);
    std::vector<QueryWindow> windows;
    std::vector<TokenChoiceRow> choices;
    std::vector<TokenPack> packs;
    std::vector<WholePages> lists;
    std::vector<std::span<const std::uint32_t>> slots_of;
    slots_of.reserve(rows.size());
    for (const Row& row : rows) slots_of.emplace_back(*row.slots);
    const std::vector<const std::uint32_t*> uploaded = ctx.upload_each(slots_of);
    windows.reserve(rows.size());
    choices.reserve(rows.size());
    packs.reserve(rows.size());
    lists.reserve(rows.size());
    for (const Row& row : rows) {
      const CacheRank& rank = row.work->rank;
      const std::uint32_t keep = row.work->keep;
      auto* const chosen = ctx.scratch<std::uint32_t>(shape.kv_heads * (1 + std::size_t{rank.most}));
      windows.push_back({rank.window.write<float>(ctx) + rank.window_offset(row.layer), row.work->known,
                         row.work->positions.end - 1, queries + windows.size() * shape.q_heads * shape.head_dim});
      choices.push_back({row.work->end, keep, chosen, rank.most});
      const std::uint32_t* const slots = uploaded[lists.size()];
      lists.push_back({row.work->end, nullptr, slots});
      packs.push_back({chosen, rank.most, slots, ctx.write<char>(rank.packed) + rank.packed_offset(row.layer, 0)});
      batch.most = std::max(batch.most, keep);
    }
    batch.windows = ctx.upload(windows);
    batch.choices = ctx.upload(choices);
    batch.packs = ctx.upload(packs);
    batch.lists = list_whole_pages(ctx, lists, false, static_cast<std::uint32_t>(pages));
    batch.queries = queries;
    batch.scores = scores;
    batch.weights = weights;
    select_ahead_cuda(rule, rope, batch, ctx.stream());
  }
}

CacheRanks::Sent CacheRanks::select_here(Range layers, const std::shared_ptr<std::vector<Selection>>& work) {
  Op op = choice_op(layers, *work, forward_.score_floats());
  for (Selection& w : *work) {
    const CacheRank& rank = w.rank;
    wait_for(op.after, rank.kept[layers.end - 1]);
    if (w.pushed() > 0) op.access.push_back(w.from.reads(layers.begin, layers.end));
    op.access.push_back(rank.window.writes(layers.begin, layers.end));
    if (w.keep > 0) op.access.push_back(rank.packed.writes(layers.begin, layers.end));
    for (std::uint32_t layer = layers.begin; layer < layers.end; ++layer) {
      w.add_choice(op.cost, op.cost.hbm);
      std::vector<std::uint32_t>& slots = w.at.emplace_back();
      if (w.keep > 0) slots = kv_.declare_reads(op, rank.sequence, layer, {0, w.end / kPageTokens}, Tier::device);
    }
  }
  op.body = [this, layers, work](BodyContext& ctx) {
    push_queries(ctx, layers, *work, false);
    choose_ahead(ctx, layers, *work);
  };
  op.launch = [&](LaunchContext& ctx) { launch_ahead(ctx, layers, *work); };
  const Event done = ask(LaneKind::side_compute, std::move(op));
  return {done, done};
}

CacheRanks::Sent CacheRanks::select_on_host(Range layers, const std::shared_ptr<std::vector<Selection>>& work) {
  const Range heads{0, kv_.shape().kv_heads};
  Op out("queries to cache rank", Cause::transfer, layers.begin);
  Op choice = choice_op(layers, *work, forward_.score_floats());
  Op back("selection to device", Cause::transfer, layers.begin);
  std::uint32_t packed_pieces = 0;
  std::vector<std::vector<SlotCopy>> copies;  // by row
  for (Selection& w : *work) {
    const CacheRank& rank = w.rank;
    const auto count = layers.end - layers.begin;
    wait_for(out.after, rank.kept[layers.end - 1]);
    wait_for(out.after, rank.arrived[layers.begin]);  // then the rank is done with the message before
    copies.emplace_back();
    if (w.pushed() > 0) out.access.push_back(w.from.reads(layers.begin, layers.end));
    out.access.push_back(rank.inbox.writes(layers.begin, layers.end));
    choice.access.insert(choice.access.end(),
                         {rank.inbox.reads(layers.begin, layers.end), rank.window.writes(layers.begin, layers.end)});
    if (w.keep > 0) {
      choice.access.push_back(rank.outbox.writes(layers.begin, layers.end));
      back.access.insert(back.access.end(),
                         {rank.outbox.reads(layers.begin, layers.end), rank.packed.writes(layers.begin, layers.end)});
      packed_pieces += 2 * count * rank.shape.kv_heads;  // K and V of a head have room for more than was chosen
      choice.cost.tasks += count * rank.shape.kv_heads;
    }
    for (std::uint32_t layer = layers.begin; layer < layers.end; ++layer) {
      if (w.sent.begin < w.sent.end) {
        const std::vector<SlotCopy> more = kv_.add_host_blocks(rank.sequence, layer, w.sent, out.after);
        kv_.append_filled(rank.sequence, layer, w.sent, Tier::device, out.after);
        kv_.append_access(rank.sequence, layer, w.sent, Tier::device, heads, false, out.access);
        kv_.append_access(rank.sequence, layer, w.sent, Tier::host, heads, true, out.access);
        copies.back().insert(copies.back().end(), more.begin(), more.end());
      }
      w.add_choice(choice.cost, choice.cost.dram);
      rank_scores(choice.cost, rank.shape.kv_heads, w.end, w.keep);
      std::vector<std::uint32_t>& slots = w.at.emplace_back();
      if (w.keep > 0) slots = kv_.declare_reads(choice, rank.sequence, layer, {0, w.end / kPageTokens}, Tier::host);
    }
  }
  set_copies(out, [this, layers, work, copies = std::move(copies)](Copier& copier) {
    for (std::size_t row = 0; row < work->size(); ++row) {
      const Selection& w = (*work)[row];
      const CacheRank& rank = w.rank;
      const std::size_t bytes = rank.width() * sizeof(float);
      if (w.pushed() > 0) {
        Copier::Between queries = copier.between(rank.inbox, w.from);
        for (std::uint32_t layer = layers.begin; layer < layers.end; ++layer) {
          for (std::uint32_t p = w.positions.begin; p < w.positions.end; ++p)
            queries.add(rank.inbox_offset(layer, p) * sizeof(float),
                        (std::size_t{layer} * w.slots + p % w.slots) * bytes, bytes);
        }
      }
      if (copies[row].empty()) continue;
      copier.between(kv_.host_buffer(), kv_.device_buffer()).add(copies[row], kv_.shape().slot_bytes());
    }
  });
  choice.body = [this, layers, work](BodyContext& ctx) {
    push_queries(ctx, layers, *work, true);
    choose_ahead(ctx, layers, *work);
  };
  set_copies(back, [layers, work](Copier& copier) {
    for (const Selection& w : *work) {
      const CacheRank& rank = w.rank;
      if (w.keep == 0) continue;
      Copier::Between chosen = copier.between(rank.packed, rank.outbox);
      for (std::uint32_t layer = layers.begin; layer < layers.end; ++layer) {
        for (std::uint32_t g = 0; g < rank.shape.kv_heads; ++g) {
          for (const std::size_t at : {rank.packed_offset(layer, g), rank.packed_offset(layer, g) + rank.half_bytes()})
            chosen.add(at, at, w.keep * rank.shape.vector_bytes());
        }
      }
    }
  });
  back.cost.pieces = packed_pieces;
  const Event left = ask(LaneKind::d2h, std::move(out));
  for (const Selection& w : *work) {
    for (std::uint32_t layer = layers.begin; layer < layers.end && w.sent.begin < w.sent.end; ++layer) {
      kv_.set_filled(w.rank.sequence, layer, w.sent, Tier::host, left);
      kv_.drop(w.rank.sequence, layer, w.sent, Tier::device, {left});
    }
  }
  choice.after = {left};
  const Event chosen = ask(LaneKind::host_workers, std::move(choice));
  if (back.access.empty()) return {left, chosen};
  back.after = {chosen};
  return {left, ask(LaneKind::recall, std::move(back))};
}

CacheRanks::Sent CacheRanks::select_on_peer(Range layers, const std::shared_ptr<std::vector<Selection>>& work) {
  const KvShape& shape = kv_.shape();
  Op out("message to peer", Cause::transfer, layers.begin);
  Op choice = choice_op(layers, *work, forward_.score_floats());
  Op back("selection from peer", Cause::transfer, layers.begin);
  out.kind = back.kind = Kind::copy;
  const std::uint32_t count = layers.end - layers.begin;
  for (Selection& w : *work) {
    const CacheRank& rank = w.rank;
    wait_for(out.after, rank.kept[layers.end - 1]);
    wait_for(out.after, rank.arrived[layers.begin]);  // then the rank is done with the message before
    out.cost.peer += count * (w.query_bytes() + (w.sent.end - w.sent.begin) * shape.slot_bytes());
    if (w.pushed() > 0) out.access.push_back(w.from.reads(layers.begin, layers.end));
    out.access.push_back(rank.remote.writes(layers.begin, layers.end));
    choice.access.push_back(rank.remote.writes(layers.begin, layers.end));
    if (w.keep > 0) {
      back.access.insert(back.access.end(),
                         {rank.remote.reads(layers.begin, layers.end), rank.packed.writes(layers.begin, layers.end)});
      back.cost.peer += count * w.packed_bytes();
    }
    for (std::uint32_t layer = layers.begin; layer < layers.end; ++layer) {
      w.add_choice(choice.cost, choice.cost.hbm);
      kv_.append_filled(rank.sequence, layer, w.sent, Tier::device, out.after);
      w.leaving.push_back(kv_.declare_reads(out, rank.sequence, layer, w.sent, Tier::device));
    }
  }
  out.cost.hbm = out.cost.peer;
  back.cost.hbm = back.cost.peer;
  out.body = [this, layers, work, remote = remote_](BodyContext& ctx) {
    std::vector<RemoteRow> rows;
    std::vector<Message> data;
    rows.reserve(work->size());
    data.reserve(work->size());
    for (const Selection& w : *work) {
      const CacheRank& rank = w.rank;
      rows.push_back(
          {rank.sequence, rank.rule, w.positions.begin, w.pushed(), w.known, w.sent.begin, w.sent.end, w.keep});
      const std::size_t slot = kv_.shape().slot_bytes(), queries = rank.width() * sizeof(float);
      MessageWriter message;
      for (std::uint32_t layer = layers.begin; layer < layers.end; ++layer) {
        for (std::uint32_t p = w.positions.begin; p < w.positions.end; ++p)
          message.put_bytes(ctx.read<float>(w.from) + (std::size_t{layer} * w.slots + p % w.slots) * rank.width(),
                            queries);
        for (const std::uint32_t from : w.leaving[layer - layers.begin])
          message.put_bytes(ctx.read<char>(kv_.device_buffer()) + from * slot, slot);
      }
      data.push_back(message.take());
    }
    remote->send(layers.begin, layers.end, rows, data);
  };
  back.body = [layers, work, remote = remote_](BodyContext& ctx) {
    const Message answer = remote->receive();
    const std::byte* from = answer.data();
    std::size_t expected = 0;
    for (const Selection& w : *work) expected += (layers.end - layers.begin) * w.packed_bytes();
    if (answer.size() != expected) {
      throw_run_error(
          "The cache rank answered with {} bytes where {} were expected: both ranks must run the same program.",
          answer.size(), expected);
    }
    for (const Selection& w : *work) {
      const CacheRank& rank = w.rank;
      const std::size_t half = w.keep * rank.shape.vector_bytes();
      for (std::uint32_t layer = layers.begin; layer < layers.end && w.keep > 0; ++layer) {
        for (std::uint32_t g = 0; g < rank.shape.kv_heads; ++g, from += 2 * half) {
          char* k = ctx.write<char>(rank.packed) + rank.packed_offset(layer, g);
          std::memcpy(k, from, half);
          std::memcpy(k + rank.half_bytes(), from + half, half);
        }
      }
    }
  };
  const Event left = ask(LaneKind::to_peer, std::move(out));
  for (const Selection& w : *work) {
    for (std::uint32_t layer = layers.begin; layer < layers.end; ++layer)
      kv_.drop(w.rank.sequence, layer, w.sent, Tier::device, {left});
  }
  choice.after = {left};
  const Event chosen = ask(LaneKind::peer_compute, std::move(choice));
  if (back.access.empty()) return {left, chosen};
  back.after = {chosen};
  return {left, ask(LaneKind::from_peer, std::move(back))};
}

}  // namespace tandem
