// Keeps a cache rank (AsyncSpade section 4.1): a sequence's rank, its latest queries, and what
// each selection comes to. places.cc carries the selections out.
#include "engine/mechanisms/cache_rank/cache_ranks.h"

#include <algorithm>
#include <utility>

#include "engine/common/error.h"
#include "engine/mechanisms/cache_rank/remote_rank.h"
#include "engine/runtime/copy_op.h"

namespace tandem {

Packed CacheRanks::selected(RankRef ref, std::uint32_t layer) {
  const CacheRank& rank = kept_.get(ref.id);
  TANDEM_CHECK(rank.tokens[layer] > 0, "nothing was selected for layer {}", layer);
  Packed kv;
  kv.sequence = rank.sequence;
  kv.ready = rank.arrived[layer];
  kv.memory = {TierBuffer(rank.packed), rank.packed_offset(layer, 0), 2 * rank.half_bytes(), 0, rank.most};
  kv.tokens = rank.tokens[layer];
  kv.access = {rank.packed.reads(layer, layer + 1)};
  return kv;
}

RankRef CacheRanks::open(SequenceState& sequence, const RankRequest& request) {
  if (request.place == RankPlace::peer && !device_.has_peer()) {
    throw_input_error(
        "A cache rank on a peer device was asked for (place=peer), and {} has none: take a hardware profile with a "
        "field 'peer', for example asyncspade-a100, or another place.",
        device_.clock_name());
  }
  const KvShape& shape = kv_.shape();
  CacheRank rank;
  rank.sequence = sequence.id;
  rank.shape = shape;
  rank.q_heads = forward_.shape().q_heads;
  rank.place = request.place;
  rank.rule = request.rule;
  const std::size_t queries = shape.layers * rank.width() * sizeof(float);
  rank.recent = device_.allocate_device(queries, "step's queries");
  if (rank.place == RankPlace::peer) {
    rank.remote = device_.allocate_host(1, "peer's memory");
  } else {
    rank.window = TierBuffer(device_, rank.place == RankPlace::host ? Tier::host : Tier::device,
                             rank.rule.room() * queries, "query window");
  }
  if (rank.place == RankPlace::host)
    rank.inbox = device_.allocate_host(rank.rule.room() * queries, "queries that arrived");
  rank.queries.resize(shape.layers);
  rank.next.resize(shape.layers);
  rank.sent.resize(shape.layers);
  rank.kept.resize(shape.layers);
  rank.left.resize(shape.layers);
  make_selection_room(device_, rank, std::max(request.most, 1u));
  if (request.place == RankPlace::peer && !device_.shapes_only()) {
    if (remote_ == nullptr) {
      if (parts_.peer == nullptr) {
        rank_thread_ = std::make_shared<RankThread>();
        parts_.peer = rank_thread_->link();
      }
      const ModelShape& model = forward_.shape();
      const RankModel agreed{model.layers,   model.q_heads,
                             model.kv_heads, {model.group(), model.head_dim, shape.type},
                             kPageTokens,    forward_.rope_table()};
      remote_ = std::make_shared<RemoteRank>(parts_.peer, agreed, parts_.peer_patience);
    }
    rank.remote_state =  // by whichever lane's thread drops the last copy
        std::shared_ptr<void>(nullptr, [remote = remote_, id = sequence.id](void*) { remote->forget(id); });
  }
  return {kept_.add(std::move(rank))};
}

void CacheRanks::renew(RankRef ref, std::uint32_t most) {
  CacheRank& rank = kept_.get(ref.id);
  make_selection_room(device_, rank, std::max(most, 1u));
}

void CacheRanks::keep_queries(const LayerContext& context, std::span<const RankRef> ranks) {
  const std::uint32_t layer = context.layer;
  const std::size_t width = std::size_t{context.shape.q_heads} * context.shape.head_dim;
  const QueryRef query = attention_.layer_query(context);
  const DeviceBuffer values = attention_.query_values(query);
  Op op("keep queries", Cause::transfer, layer);
  std::vector<DeviceBuffer> recent;
  recent.reserve(ranks.size());
  for (std::uint32_t row = 0; row < ranks.size(); ++row) {
    const CacheRank& rank = kept_.get(ranks[row].id);
    op.access.insert(op.access.end(), {values.reads(row, row + 1), rank.recent.writes(layer, layer + 1)});
    wait_for(op.after, rank.left[layer]);
    recent.push_back(rank.recent);
  }
  set_copies(op, [layer, bytes = width * sizeof(float), values, recent = std::move(recent)](Copier& copier) {
    for (std::size_t row = 0; row < recent.size(); ++row)
      copier.between(recent[row], values).add(layer * bytes, row * bytes, bytes);
  });
  const Event done = ask(LaneKind::device_compute, std::move(op));
  for (const RankRef& ref : ranks) kept_.get(ref.id).kept[layer] = done;
}

CacheRanks::Selection CacheRanks::work_of(Range layers, const AheadRequest& request, bool of_prompt) {
  const SequenceState& sequence = *request.sequence;
  CacheRank& rank = kept_.get(request.rank.id);
  const std::uint32_t tokens = sequence.tokens, room = rank.rule.room(), first = layers.begin;
  TANDEM_CHECK(request.end % kPageTokens == 0 && request.end <= tokens && request.tokens <= request.end &&
                   request.tokens <= rank.most && request.end >= rank.sent[first],
               "a selection of {} of {} tokens, room for {}", request.tokens, request.end, rank.most);
  Selection work;
  work.end = request.end;
  work.keep = request.tokens;
  if (of_prompt && rank.next[first] == tokens) {  // a decode goes on: the window has all queries
    work.from = rank.recent;
    work.positions = {tokens, tokens};
  } else if (of_prompt) {
    const PromptQueries& queries = parts_.queries_of(sequence.id);
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

void CacheRanks::select_ahead(Range layers, std::span<const AheadRequest> requests, bool of_prompt) {
  auto work = std::make_shared<std::vector<Selection>>();
  work->reserve(requests.size());
  std::vector<RankRef> refs;
  for (const AheadRequest& request : requests) {
    Selection w = work_of(layers, request, of_prompt);
    if (w.pushed() == 0 && w.keep == 0) continue;
    work->push_back(std::move(w));
    refs.push_back(request.rank);
  }
  if (work->empty()) return;
  if (const std::size_t bytes = kept_.peer_bytes(); bytes > device_.peer_memory()) {
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
    CacheRank& rank = kept_.get(ref.id);
    for (std::uint32_t layer = layers.begin; layer < layers.end; ++layer) {
      if (!of_prompt) rank.left[layer] = sent.left;
      rank.arrived[layer] = sent.arrived;
    }
  }
}

}  // namespace tandem
