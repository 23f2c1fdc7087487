// The cache rank of a sequence (AsyncSpade): who chooses, while one step runs, the tokens that the next one attends.
// Its place says where its memory is: on the device itself, on the host, or on a peer device, whose memory no buffer of
// this process stands for.
//   recent:  [layer][Hq][D] f32, on the device: the step's queries, until the pack's message leaves
//   inbox:   [layer][room][Hq][D] f32, on the host: queries as they arrived; entry position % room
//   window:  [layer][Hq][room][D] f32, at the rank: the latest queries, see push_query()
//   packed:  [layer][kv_head]{K [most][D], V [most][D]} of KvShape::type, on the device: what was selected
//   outbox:  the same on the host, before it crosses the link
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/device/device.h"
#include "engine/kv/kv_store.h"
#include "engine/kv/tier_buffer.h"
#include "engine/mechanisms/cache_rank/kernels/query_prediction.h"

namespace tandem {

enum class RankPlace : std::uint8_t { stream, host, peer };

struct CacheRank {
  static constexpr const char* kName = "cache rank";
  SequenceId sequence = 0;
  KvShape shape;
  std::uint32_t q_heads = 0;
  RankPlace place = RankPlace::stream;
  PredictionRule rule;
  std::uint32_t most = 0;  // tokens per KV head of a selection
  DeviceBuffer recent, packed;
  TierBuffer window;
  HostBuffer inbox, outbox;
  HostBuffer remote;                   // names a peer's memory where accesses are declared; holds nothing
  std::shared_ptr<void> remote_state;  // when the last copy goes, the peer may forget the sequence
  std::vector<std::uint32_t> queries;  // [layer] pushed so far, at most room
  std::vector<std::uint32_t> next;     // [layer] position of the next query
  std::vector<std::uint32_t> sent;     // [layer] tokens whose KV the rank has
  std::vector<std::uint32_t> tokens;   // [layer] selected per KV head
  // [layer] the queries are in `recent`; the last message with them has left; the selection is in `packed`
  std::vector<Event> kept, left, arrived;

  std::size_t width() const { return std::size_t{q_heads} * shape.head_dim; }  // of one token's queries, in floats
  std::size_t window_offset(std::uint32_t layer) const { return layer * rule.room() * width(); }  // in floats
  /// Of the queries of a position, in floats: where they arrive, place=host.
  std::size_t inbox_offset(std::uint32_t layer, std::uint32_t position) const {
    return (std::size_t{layer} * rule.room() + position % rule.room()) * width();
  }
  std::size_t half_bytes() const { return most * shape.vector_bytes(); }         // K or V of a KV head
  std::size_t packed_offset(std::uint32_t layer, std::uint32_t kv_head) const {  // of K, in bytes
    return (std::size_t{layer} * shape.kv_heads + kv_head) * 2 * half_bytes();
  }
  std::size_t bytes(Tier tier) const {
    const std::size_t at_rank = place != RankPlace::peer && window.tier() == tier ? window.bytes() : 0;
    return at_rank + (tier == Tier::device ? recent.bytes() + packed.bytes() : inbox.bytes() + outbox.bytes());
  }
  /// Of a peer's memory: KV of the pages that it was sent, its window, and room for what it selects in every layer.
  std::size_t peer_bytes() const {
    if (place != RankPlace::peer) return 0;
    std::size_t tokens_sent = 0;
    for (const std::uint32_t tokens_of_layer : sent) tokens_sent += tokens_of_layer;
    return tokens_sent * 2 * shape.kv_heads * shape.vector_bytes() +
           shape.layers * rule.room() * width() * sizeof(float) + packed.bytes();
  }
};

/// Room for selections of `most` tokens; what was selected is gone. Later messages still wait for the latest one.
inline void make_selection_room(Device& device, CacheRank& rank, std::uint32_t most) {
  rank.most = most;
  const std::size_t bytes = rank.packed_offset(rank.shape.layers, 0);
  rank.packed = device.allocate_device(bytes, "selected kv");
  if (rank.place == RankPlace::host) rank.outbox = device.allocate_host(bytes, "selected kv on the host");
  rank.tokens.assign(rank.shape.layers, 0);
  rank.arrived.resize(rank.shape.layers);
}

inline CacheRank make_cache_rank(Device& device, SequenceId sequence, const KvShape& shape, std::uint32_t q_heads,
                                 RankPlace place, const PredictionRule& rule, std::uint32_t most) {
  CacheRank rank;
  rank.sequence = sequence;
  rank.shape = shape;
  rank.q_heads = q_heads;
  rank.place = place;
  rank.rule = rule;
  const std::size_t queries = shape.layers * rank.width() * sizeof(float);
  rank.recent = device.allocate_device(queries, "step's queries");
  if (place == RankPlace::peer) {
    rank.remote = device.allocate_host(1, "peer's memory");
  } else {
    rank.window =
        TierBuffer(device, place == RankPlace::host ? Tier::host : Tier::device, rule.room() * queries, "query window");
  }
  if (place == RankPlace::host) rank.inbox = device.allocate_host(rule.room() * queries, "queries that arrived");
  rank.queries.resize(shape.layers);
  rank.next.resize(shape.layers);
  rank.sent.resize(shape.layers);
  rank.kept.resize(shape.layers);
  rank.left.resize(shape.layers);
  make_selection_room(device, rank, most);
  return rank;
}

}  // namespace tandem
