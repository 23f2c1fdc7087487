// The parts of Ops that keep a cache rank (AsyncSpade section 4.1): a message out, the choice, a message back, for a
// pack of layers and the whole batch. Where the rank is another stream of the device, the messages are the operation's
// own reads and writes.
#include <algorithm>
#include <cstring>
#include <utility>

#include "engine/common/error.h"
#include "engine/distributed/remote_rank.h"
#include "engine/kernels/ahead_selection.h"
#include "engine/runtime/engine_ops.h"
#include "engine/runtime/selection.h"

namespace tandem {

/// What one request comes to.
struct EngineOps::RankWork {
  CacheRank rank;                                   // as it is when submitted
  DeviceBuffer from;                                // of queries: [layer][slots][Hq][D], that of a position at % slots
  std::uint32_t slots = 1;                          //
  Range positions;                                  // queries that the rank gets
  std::uint32_t known = 0;                          // queries in the window then
  std::uint32_t end = 0, keep = 0;                  // AheadRequest
  Range sent;                                       // pages that the rank gets
  std::vector<std::vector<std::uint32_t>> at;       // [layer of the pack][page] slots that the rank reads
  std::vector<std::vector<std::uint32_t>> leaving;  // the same of the pages that it gets, on the device

  std::uint32_t pushed() const { return positions.end - positions.begin; }
  std::uint64_t query_bytes() const { return std::uint64_t{pushed()} * rank.width() * sizeof(float); }  // of a layer
  /// Of a layer: what the rank reads and writes to choose, and computes.
  void add_choice(Cost& cost, std::uint64_t& bytes) const {
    const KvShape& shape = rank.shape;
    bytes += 2 * query_bytes();
    if (keep == 0) return;
    // The window, every key, a score per token and KV head out and in, K and V of the choice in and out.
    const std::uint64_t window = std::uint64_t{known} * rank.width(), candidates = std::uint64_t{end} * shape.kv_heads;
    bytes += window * sizeof(float) + candidates * (shape.vector_bytes() + 2 * sizeof(float)) +
             std::uint64_t{4} * keep * shape.kv_heads * shape.vector_bytes();
    cost.flops += window * (known + 2) + std::uint64_t{2} * end * rank.width();
  }
  std::uint64_t packed_bytes() const {  // of a layer
    return std::uint64_t{2} * keep * rank.shape.kv_heads * rank.shape.vector_bytes();
  }
};

RankRef EngineOps::open_cache_rank(SequenceState& sequence, const RankRequest& request) {
  if (request.place == RankPlace::peer && !device_.has_peer()) {
    throw_input_error(
        "A cache rank on a peer device was asked for (place=peer), and {} has none: take a hardware profile with a "
        "field "
        "'peer', for example asyncspade-a100, or another place.",
        device_.clock_name());
  }
  const KvShape& shape = kv_.shape();
  CacheRank rank = make_cache_rank(device_, sequence.id, shape, attention_.q_heads(), request.place, request.rule,
                                   std::max(request.most, 1u));
  if (request.place == RankPlace::peer && !device_.shapes_only()) {
    if (remote_ == nullptr) {
      if (peer_ == nullptr) {
        rank_thread_ = std::make_shared<RankThread>();
        peer_ = rank_thread_->link();
      }
      peer_->set_patience(peer_patience_);
      const ModelShape& model = attention_.shape();
      remote_ = std::make_shared<RemoteRank>(peer_, RankModel{model.layers,
                                                              model.q_heads,
                                                              model.kv_heads,
                                                              {model.group(), model.head_dim, shape.type},
                                                              kPageTokens,
                                                              attention_.rope_table()});
    }
    rank.remote_state =  // by whichever lane's thread drops the last copy
        std::shared_ptr<void>(nullptr, [remote = remote_, id = sequence.id](void*) { remote->forget(id); });
  }
  return {stores_.ranks.add(std::move(rank))};
}

void EngineOps::renew_cache_rank(SequenceState&, RankRef ref, std::uint32_t most) {
  CacheRank& rank = stores_.ranks.get(ref.id);
  make_selection_room(device_, rank, std::max(most, 1u));
}

void EngineOps::keep_queries(const LayerContext& context, std::span<const RankRef> ranks) {
  const std::uint32_t layer = context.layer;
  const std::size_t width = std::size_t{context.shape.q_heads} * context.shape.head_dim;
  const QueryRef query = attention_.layer_query(context);
  const DeviceBuffer values = attention_.ahead().values(query);
  Op op;
  op.name = "keep queries";
  op.kind = Kind::copy;
  op.cause = Cause::transfer;
  op.layer = layer;
  op.cost.hbm = 2 * ranks.size() * width * sizeof(float);
  std::vector<DeviceBuffer> recent;
  recent.reserve(ranks.size());
  for (std::uint32_t row = 0; row < ranks.size(); ++row) {
    const CacheRank& rank = stores_.ranks.get(ranks[row].id);
    op.access.insert(op.access.end(), {values.reads(row, row + 1), rank.recent.writes(layer, layer + 1)});
    wait_for(op.after, rank.left[layer]);
    recent.push_back(rank.recent);
  }
  op.body = [layer, width, values, recent = std::move(recent)](BodyContext& ctx) {
    for (std::size_t row = 0; row < recent.size(); ++row)
      std::copy_n(ctx.read<float>(values) + row * width, width, ctx.write<float>(recent[row]) + layer * width);
  };
  const Event done = ask(LaneKind::device_compute, std::move(op));
  for (const RankRef& ref : ranks) stores_.ranks.get(ref.id).kept[layer] = done;
}

EngineOps::RankWork EngineOps::rank_work(Range layers, const AheadRequest& request, bool of_prompt) {
  const SequenceState& sequence = *request.sequence;
  CacheRank& rank = stores_.ranks.get(request.rank.id);
  const std::uint32_t tokens = sequence.tokens, room = rank.rule.room(), first = layers.begin;
  TANDEM_CHECK(request.end % kPageTokens == 0 && request.end <= tokens && request.tokens <= request.end &&
                   request.tokens <= rank.most && request.end >= rank.sent[first],
               "a selection of {} of {} tokens, room for {}", request.tokens, request.end, rank.most);
  RankWork work;
  work.end = request.end;
  work.keep = request.tokens;
  if (of_prompt && rank.next[first] == tokens) {  // a decode goes on: the window has all queries
    work.from = rank.recent;
    work.positions = {tokens, tokens};
  } else if (of_prompt) {
    const PromptQueries& queries = queries_.at(sequence.id);
    TANDEM_CHECK(tokens == 0 || queries.kept >= room, "{} prompt queries are kept, a window has {}", queries.kept,
                 room);
    work.from = queries.values;
    work.slots = queries.kept;
    work.positions = {std::max(tokens - std::min(tokens, room), rank.next[first]), tokens};
  } else {
    work.from = rank.recent;
    work.positions = {tokens - 1, tokens};
  }
  const bool follows = work.positions.begin == rank.next[first];
  TANDEM_CHECK(follows || work.pushed() >= room, "queries from {} on, and {} was to be next", work.positions.begin,
               rank.next[first]);
  work.known = std::min(room, (follows ? rank.queries[first] : 0) + work.pushed());
  if (rank.place != RankPlace::stream)
    work.sent = {rank.sent[first] / kPageTokens, request.end / kPageTokens};
  else
    work.sent = {0, 0};
  for (std::uint32_t layer = layers.begin; layer < layers.end; ++layer) {
    rank.queries[layer] = work.known;
    rank.next[layer] = tokens;
    rank.sent[layer] = request.end;
    rank.tokens[layer] = request.tokens;
  }
  work.rank = rank;
  return work;
}

/// Into the windows of the pack's layers, from the device or from what arrived on the host.
void EngineOps::push_queries(BodyContext& ctx, Range layers, const std::vector<RankWork>& work, bool inbox) const {
  const auto count = layers.end - layers.begin;
  pool_.parallel_for(work.size() * count, [&](std::size_t task) {
    const RankWork& w = work[task / count];
    const CacheRank& rank = w.rank;
    const auto layer = layers.begin + static_cast<std::uint32_t>(task % count);
    if (w.pushed() == 0) return;
    const std::uint32_t slots = inbox ? rank.rule.room() : w.slots;
    const float* from = inbox ? ctx.read<float>(rank.inbox) : ctx.read<float>(w.from);
    for (std::uint32_t p = w.positions.begin; p < w.positions.end; ++p) {
      push_query(rank.rule, attention_.rope_table(), from + (std::size_t{layer} * slots + p % slots) * rank.width(),
                 rank.q_heads, rank.shape.head_dim, p, rank.window.write<float>(ctx) + rank.window_offset(layer));
    }
  });
}

/// From pages where the rank is, to where its selections leave from.
void EngineOps::choose_ahead(BodyContext& ctx, Range layers, const std::vector<RankWork>& work) const {
  const ModelShape& shape = attention_.shape();
  const std::size_t tasks = std::size_t{layers.end - layers.begin} * shape.kv_heads;
  pool_.parallel_for(work.size() * tasks, [&](std::size_t task) {
    const RankWork& w = work[task / tasks];
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
    tandem::select_ahead(rank.rule, attention_.rope_table(), window, spans,
                         {shape.group(), shape.head_dim, kv_.shape().type}, w.keep, k, k + rank.half_bytes());
  });
}

void EngineOps::select_ahead(Range layers, std::span<const AheadRequest> requests, bool of_prompt) {
  auto work = std::make_shared<std::vector<RankWork>>();
  work->reserve(requests.size());
  std::vector<RankRef> refs;
  for (const AheadRequest& request : requests) {
    RankWork w = rank_work(layers, request, of_prompt);
    if (w.pushed() == 0 && w.keep == 0) continue;
    work->push_back(std::move(w));
    refs.push_back(request.rank);
  }
  if (work->empty()) return;
  if (const std::size_t bytes = stores_.ranks.peer_bytes(); bytes > device_.peer_memory()) {
    throw_input_error(
        "The cache rank's device is full: KV, query windows and selections take {:.2f} GB, and it has {:.2f} GB like "
        "the device itself ({}). Lower --batch or the lengths, or take place=host.",
        double(bytes) * 1e-9, double(device_.peer_memory()) * 1e-9, device_.clock_name());
  }
  const RankPlace place = work->front().rank.place;
  const Sent sent = place == RankPlace::stream ? select_here(layers, work)
                    : place == RankPlace::host ? select_on_host(layers, work)
                                               : select_on_peer(layers, work);
  for (const RankRef& ref : refs) {
    CacheRank& rank = stores_.ranks.get(ref.id);
    for (std::uint32_t layer = layers.begin; layer < layers.end; ++layer) {
      if (!of_prompt) rank.left[layer] = sent.left;
      rank.arrived[layer] = sent.arrived;
    }
  }
}

namespace {

Op rank_op(const char* name, Cause cause, Range layers) {
  Op op;
  op.name = name;
  op.kind = cause == Cause::selection ? Kind::compute : Kind::copy;
  op.cause = cause;
  op.layer = layers.begin;
  if (cause == Cause::selection) {
    op.cost.work = Work::attention;  // nearly all of it reads K of whole pages, as attention does
    op.cost.kernels = 4;             // prediction, scores, top-k, gather; all layers and rows at once
  }
  return op;
}

}  // namespace

EngineOps::Sent EngineOps::select_here(Range layers, const std::shared_ptr<std::vector<RankWork>>& work) {
  Op op = rank_op("select ahead", Cause::selection, layers);
  for (RankWork& w : *work) {
    const CacheRank& rank = w.rank;
    wait_for(op.after, rank.kept[layers.end - 1]);
    if (w.pushed() > 0) op.access.push_back(w.from.reads(layers.begin, layers.end));
    op.access.push_back(rank.window.writes(layers.begin, layers.end));
    if (w.keep > 0) op.access.push_back(rank.packed.writes(layers.begin, layers.end));
    for (std::uint32_t layer = layers.begin; layer < layers.end; ++layer) {
      w.add_choice(op.cost, op.cost.hbm);
      std::vector<std::uint32_t>& slots = w.at.emplace_back();
      if (w.keep == 0) continue;
      const Range pages{0, w.end / kPageTokens};
      kv_.append_access(rank.sequence, layer, pages, Tier::device, Range{0, rank.shape.kv_heads}, false, op.access);
      slots.reserve(pages.end);
      for (std::uint32_t page = 0; page < pages.end; ++page)
        slots.push_back(kv_.slot(rank.sequence, layer, page, Tier::device));
    }
  }
  op.body = [this, layers, work](BodyContext& ctx) {
    push_queries(ctx, layers, *work, false);
    choose_ahead(ctx, layers, *work);
  };
  const Event done = ask(LaneKind::side_compute, std::move(op));
  return {done, done};
}

EngineOps::Sent EngineOps::select_on_host(Range layers, const std::shared_ptr<std::vector<RankWork>>& work) {
  const Range heads{0, kv_.shape().kv_heads};
  Op out = rank_op("queries to cache rank", Cause::transfer, layers);
  Op choice = rank_op("select ahead", Cause::selection, layers);
  Op back = rank_op("selection to device", Cause::transfer, layers);
  out.cost.pieces = back.cost.pieces = 0;
  std::vector<SlotCopy> copies;
  for (RankWork& w : *work) {
    const CacheRank& rank = w.rank;
    const auto count = layers.end - layers.begin;
    wait_for(out.after, rank.kept[layers.end - 1]);
    wait_for(out.after, rank.arrived[layers.begin]);  // then the rank is done with the message before
    out.cost.d2h += count * w.query_bytes();
    out.cost.pieces += w.pushed() > 0 ? (w.slots == 1 ? 1 : count) : 0;  // one run, or one per layer
    if (w.pushed() > 0) out.access.push_back(w.from.reads(layers.begin, layers.end));
    out.access.push_back(rank.inbox.writes(layers.begin, layers.end));
    choice.access.insert(choice.access.end(),
                         {rank.inbox.reads(layers.begin, layers.end), rank.window.writes(layers.begin, layers.end)});
    if (w.keep > 0) {
      choice.access.push_back(rank.outbox.writes(layers.begin, layers.end));
      back.access.insert(back.access.end(),
                         {rank.outbox.reads(layers.begin, layers.end), rank.packed.writes(layers.begin, layers.end)});
      back.cost.h2d += count * w.packed_bytes();
      back.cost.pieces += 2 * count * rank.shape.kv_heads;  // K and V of a head have room for more than was chosen
      choice.cost.tasks += count * rank.shape.kv_heads;
    }
    for (std::uint32_t layer = layers.begin; layer < layers.end; ++layer) {
      if (w.sent.begin < w.sent.end) {
        const std::vector<SlotCopy> more = kv_.add_host_blocks(rank.sequence, layer, w.sent, out.after);
        kv_.append_filled(rank.sequence, layer, w.sent, Tier::device, out.after);
        kv_.append_access(rank.sequence, layer, w.sent, Tier::device, heads, false, out.access);
        kv_.append_access(rank.sequence, layer, w.sent, Tier::host, heads, true, out.access);
        for (std::size_t i = 0; i < more.size(); ++i) {  // runs that are adjacent on both sides
          if (i == 0 || more[i].from != more[i - 1].from + 1 || more[i].to != more[i - 1].to + 1) ++out.cost.pieces;
        }
        out.cost.d2h += more.size() * kv_.shape().slot_bytes();
        copies.insert(copies.end(), more.begin(), more.end());
      }
      w.add_choice(choice.cost, choice.cost.dram);
      rank_scores(choice.cost, rank.shape.kv_heads, w.end, w.keep);
      std::vector<std::uint32_t>& slots = w.at.emplace_back();
      if (w.keep == 0) continue;
      const Range pages{0, w.end / kPageTokens};
      kv_.append_access(rank.sequence, layer, pages, Tier::host, heads, false, choice.access);
      slots.reserve(pages.end);
      for (std::uint32_t page = 0; page < pages.end; ++page)
        slots.push_back(kv_.slot(rank.sequence, layer, page, Tier::host));
    }
  }
  out.body = [this, layers, work, copies](BodyContext& ctx) {
    for (const RankWork& w : *work) {
      const CacheRank& rank = w.rank;
      for (std::uint32_t layer = layers.begin; layer < layers.end; ++layer) {
        for (std::uint32_t p = w.positions.begin; p < w.positions.end; ++p) {
          std::copy_n(ctx.read<float>(w.from) + (std::size_t{layer} * w.slots + p % w.slots) * rank.width(),
                      rank.width(),
                      ctx.write<float>(rank.inbox) +
                          (std::size_t{layer} * rank.rule.room() + p % rank.rule.room()) * rank.width());
        }
      }
    }
    const std::size_t bytes = kv_.shape().slot_bytes();
    for (const SlotCopy& copy : copies) {
      std::memcpy(ctx.write<char>(kv_.host_buffer()) + copy.to * bytes,
                  ctx.read<char>(kv_.device_buffer()) + copy.from * bytes, bytes);
    }
  };
  choice.body = [this, layers, work](BodyContext& ctx) {
    push_queries(ctx, layers, *work, true);
    choose_ahead(ctx, layers, *work);
  };
  back.body = [layers, work](BodyContext& ctx) {
    for (const RankWork& w : *work) {
      if (w.keep == 0) continue;
      const std::size_t at = w.rank.packed_offset(layers.begin, 0), end = w.rank.packed_offset(layers.end, 0);
      std::memcpy(ctx.write<char>(w.rank.packed) + at, ctx.read<char>(w.rank.outbox) + at, end - at);
    }
  };
  const Event left = ask(LaneKind::d2h, std::move(out));
  for (const RankWork& w : *work) {
    for (std::uint32_t layer = layers.begin; layer < layers.end && w.sent.begin < w.sent.end; ++layer) {
      kv_.set_filled(w.rank.sequence, layer, w.sent, Tier::host, left);
      kv_.drop(w.rank.sequence, layer, w.sent, Tier::device, left);
    }
  }
  choice.after = {left};
  const Event chosen = ask(LaneKind::host_workers, std::move(choice));
  if (back.access.empty()) return {left, chosen};
  back.after = {chosen};
  return {left, ask(LaneKind::recall, std::move(back))};
}

EngineOps::Sent EngineOps::select_on_peer(Range layers, const std::shared_ptr<std::vector<RankWork>>& work) {
  const KvShape& shape = kv_.shape();
  Op out = rank_op("message to peer", Cause::transfer, layers);
  Op choice = rank_op("select ahead", Cause::selection, layers);
  Op back = rank_op("selection from peer", Cause::transfer, layers);
  const std::uint32_t count = layers.end - layers.begin;
  for (RankWork& w : *work) {
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
      std::vector<std::uint32_t>& slots = w.leaving.emplace_back();
      kv_.append_filled(rank.sequence, layer, w.sent, Tier::device, out.after);
      kv_.append_access(rank.sequence, layer, w.sent, Tier::device, Range{0, shape.kv_heads}, false, out.access);
      for (std::uint32_t page = w.sent.begin; page < w.sent.end; ++page)
        slots.push_back(kv_.slot(rank.sequence, layer, page, Tier::device));
    }
  }
  out.cost.hbm = out.cost.peer;
  back.cost.hbm = back.cost.peer;
  out.body = [this, layers, work, remote = remote_](BodyContext& ctx) {
    std::vector<RemoteRow> rows;
    std::vector<Message> data;
    for (const RankWork& w : *work) {
      const CacheRank& rank = w.rank;
      rows.push_back(
          {rank.sequence, rank.rule, w.positions.begin, w.pushed(), w.known, w.sent.begin, w.sent.end, w.keep});
      const std::size_t slot = kv_.shape().slot_bytes(), queries = rank.width() * sizeof(float);
      Message& bytes = data.emplace_back();
      const auto put = [&bytes](const void* from, std::size_t n) {
        const auto* b = static_cast<const std::byte*>(from);
        bytes.insert(bytes.end(), b, b + n);
      };
      for (std::uint32_t layer = layers.begin; layer < layers.end; ++layer) {
        for (std::uint32_t p = w.positions.begin; p < w.positions.end; ++p)
          put(ctx.read<float>(w.from) + (std::size_t{layer} * w.slots + p % w.slots) * rank.width(), queries);
        for (const std::uint32_t from : w.leaving[layer - layers.begin])
          put(ctx.read<char>(kv_.device_buffer()) + from * slot, slot);
      }
    }
    remote->send(layers.begin, layers.end, rows, data);
  };
  back.body = [layers, work, remote = remote_](BodyContext& ctx) {
    const Message answer = remote->receive();
    const std::byte* from = answer.data();
    std::size_t expected = 0;
    for (const RankWork& w : *work) expected += (layers.end - layers.begin) * w.packed_bytes();
    if (answer.size() != expected) {
      throw_run_error(
          "The cache rank answered with {} bytes where {} were expected: both ranks must run the same program.",
          answer.size(), expected);
    }
    for (const RankWork& w : *work) {
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
  for (const RankWork& w : *work) {
    for (std::uint32_t layer = layers.begin; layer < layers.end; ++layer)
      kv_.drop(w.rank.sequence, layer, w.sent, Tier::device, left);
  }
  choice.after = {left};
  const Event chosen = ask(LaneKind::peer_compute, std::move(choice));
  if (back.access.empty()) return {left, chosen};
  back.after = {chosen};
  return {left, ask(LaneKind::from_peer, std::move(back))};
}

}  // namespace tandem
