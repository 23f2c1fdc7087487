// Selection of the next step's tokens while a step runs (AsyncSpade section 4.1). Each sequence has a cache rank: on a
// side stream of the device, on the host, or on a peer.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "engine/device/device.h"
#include "engine/kv/kv_store.h"
#include "engine/kv/tier_buffer.h"
#include "engine/mechanisms/cache_rank/kernels/query_prediction.h"
#include "engine/runtime/mechanism.h"

namespace tandem {

enum class RankPlace : std::uint8_t { stream, host, peer };

// The cache rank of a sequence (AsyncSpade): who chooses, while one step runs, the tokens that the next one attends.
// Its place says where its memory is: on the device itself, on the host, or on a peer device, whose memory no buffer of
// this process stands for.
//   recent:  [layer][Hq][D] f32, on the device: the step's queries, until the pack's message leaves
//   inbox:   [layer][room][Hq][D] f32, on the host: queries as they arrived; entry position % room
//   window:  [layer][Hq][room][D] f32, at the rank: the latest queries, see push_query()
//   packed:  [layer][kv_head]{K [most][D], V [most][D]} of KvShape::type, on the device: what was selected
//   outbox:  the same on the host, before it crosses the link
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
  /// Where the queries of a position arrive, in floats (place=host).
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
  /// Memory of a peer: KV of the pages that it was sent, its window, and room for its selection in every layer.
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

class RankThread;
class RemoteRank;

using RankRef = Ref<CacheRank>;  // a sequence's cache rank

struct RankRequest {
  RankPlace place = RankPlace::stream;
  PredictionRule rule;
  std::uint32_t most = 1;  // tokens per KV head of a selection
};

struct AheadRequest {
  const SequenceState* sequence = nullptr;
  RankRef rank;
  std::uint32_t end = 0;     // whole pages: tokens [0, end) are what the rank chooses from; they go to it
  std::uint32_t tokens = 0;  // that a KV head gets, at most `end`; 0: the rank takes note of the query alone
};

class CacheRanks : public MechanismOf<CacheRank> {
 public:
  using MechanismOf::MechanismOf;
  std::size_t peer_bytes_of(SequenceId sequence) const override { return kept_.peer_bytes_of(sequence); }

  /// A window of the latest queries per layer and head, the KV that selections are made from, and room on the device
  /// for one selection per layer. InputError where the device has no peer and the place is one.
  RankRef open(SequenceState& sequence, const RankRequest& request);
  /// Room for larger selections, between decodes. What was selected is forgotten.
  void renew(RankRef rank, std::uint32_t most);
  /// After a layer: its queries of this step are kept for the next message. `ranks` by row.
  void keep_queries(const LayerContext& context, std::span<const RankRef> ranks);
  /// One message each way for some consecutive layers: the kept queries (`of_prompt`: the prompt's last ones, see
  /// Needs::last_queries, as far as the rank does not have them) and KV that the rank does not have yet go to it; it
  /// predicts the next token's queries, chooses tokens by them and sends their KV, packed. While the step goes on; the
  /// attention of the next step waits for it. Of rank places other than `stream` the device's pages of what was sent
  /// are dropped.
  void select_ahead(Range layers, std::span<const AheadRequest> requests, bool of_prompt);
  /// The latest selection of a layer, for its plan.
  Packed selected(RankRef rank, std::uint32_t layer);

 private:
  /// One row of a selection ahead, shared by its planning (cache_ranks.cc) and its execution (places.cc).
  struct Selection {
    CacheRank rank;                              // as it is when submitted
    DeviceBuffer from;                           // of queries: [layer][slots][Hq][D], that of a position at % slots
    std::uint32_t slots = 1;                     //
    Range positions;                             // queries that the rank gets
    std::uint32_t known = 0;                     // queries in the window then
    std::uint32_t end = 0, keep = 0;             // AheadRequest
    Range sent;                                  // pages that the rank gets
    std::vector<std::vector<std::uint32_t>> at;  // [layer of the pack][page] slots that the rank reads
    std::vector<std::vector<std::uint32_t>> leaving;  // the same of the pages that it gets, on the device

    std::uint32_t pushed() const { return positions.end - positions.begin; }
    std::uint64_t query_bytes() const { return std::uint64_t{pushed()} * rank.width() * sizeof(float); }  // of a layer
    /// Adds the bytes and arithmetic of the rank's choice for one layer.
    void add_choice(Cost& cost, std::uint64_t& bytes) const {
      const KvShape& shape = rank.shape;
      bytes += 2 * query_bytes();
      if (keep == 0) return;
      // The window, every key, a score per token and KV head out and in, K and V of the choice in and out.
      const std::uint64_t window = std::uint64_t{known} * rank.width(),
                          candidates = std::uint64_t{end} * shape.kv_heads;
      bytes += window * sizeof(float) + candidates * (shape.vector_bytes() + 2 * sizeof(float)) +
               std::uint64_t{4} * keep * shape.kv_heads * shape.vector_bytes();
      cost.context += window * sizeof(float) + candidates * shape.vector_bytes();
      cost.flops += std::uint64_t{2} * end * rank.width();
      cost.solved += rank.q_heads * prediction_flops(rank.rule, known, shape.head_dim);
    }
    std::uint64_t packed_bytes() const {  // of a layer
      return std::uint64_t{2} * keep * rank.shape.kv_heads * rank.shape.vector_bytes();
    }
  };
  struct Sent {  // a message: the device's memory has been read; the answer is on the device
    Event left, arrived;
  };
  Selection work_of(Range layers, const AheadRequest& request, bool of_prompt);
  Sent select_here(Range layers, const std::shared_ptr<std::vector<Selection>>& work);
  Sent select_on_host(Range layers, const std::shared_ptr<std::vector<Selection>>& work);
  Sent select_on_peer(Range layers, const std::shared_ptr<std::vector<Selection>>& work);
  void push_queries(BodyContext& ctx, Range layers, const std::vector<Selection>& work, bool inbox) const;
  void choose_ahead(BodyContext& ctx, Range layers, const std::vector<Selection>& work) const;
  /// The twin of both on a GPU.
  void launch_ahead(LaunchContext& ctx, Range layers, const std::vector<Selection>& work) const;

  std::shared_ptr<RankThread> rank_thread_;  // where no other peer was given, from the first cache rank on
  std::shared_ptr<RemoteRank> remote_;
};

}  // namespace tandem
