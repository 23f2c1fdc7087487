// Selection of the next step's tokens while a step runs (AsyncSpade section 4.1). Each sequence has a cache rank: on a
// side stream of the device, on the host, or on a peer.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "engine/mechanisms/cache_rank/cache_rank.h"
#include "engine/runtime/mechanism.h"

namespace tandem {

class RankThread;
class RemoteRank;

struct RankRef {  // a sequence's cache rank
  std::uint32_t id = 0;
};

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
  struct Selection;  // what one request of a selection comes to
  struct Sent {      // a message: the device's memory has been read; the answer is on the device
    Event left, arrived;
  };
  Selection work_of(Range layers, const AheadRequest& request, bool of_prompt);
  Sent select_here(Range layers, const std::shared_ptr<std::vector<Selection>>& work);
  Sent select_on_host(Range layers, const std::shared_ptr<std::vector<Selection>>& work);
  Sent select_on_peer(Range layers, const std::shared_ptr<std::vector<Selection>>& work);
  void push_queries(BodyContext& ctx, Range layers, const std::vector<Selection>& work, bool inbox) const;
  void choose_ahead(BodyContext& ctx, Range layers, const std::vector<Selection>& work) const;
  // Their twins on a GPU (launch.cc).
  void launch_pushes(LaunchContext& ctx, Range layers, const std::vector<Selection>& work) const;
  void launch_choice(LaunchContext& ctx, Range layers, const std::vector<Selection>& work) const;

  std::shared_ptr<RankThread> rank_thread_;  // where no other peer was given, from the first cache rank on
  std::shared_ptr<RemoteRank> remote_;
};

}  // namespace tandem
