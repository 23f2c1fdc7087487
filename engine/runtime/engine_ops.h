// What methods can ask for (Ops), carried out on the device's lanes.
#pragma once

#include <memory>
#include <unordered_map>
#include <vector>

#include "engine/device/device.h"
#include "engine/kernels/thread_pool.h"
#include "engine/kv/kv_store.h"
#include "engine/kv/sequence_stores.h"
#include "engine/runtime/copy_op.h"
#include "engine/runtime/decode_attention.h"
#include "engine/runtime/forward.h"
#include "engine/runtime/mechanism.h"
#include "engine/runtime/method.h"
#include "engine/runtime/selection.h"

namespace tandem {

class EngineOps : public Ops {
 public:
  EngineOps(Forward& forward, Device& device, ThreadPool& pool, KvStore& kv, SequenceStores& stores,
            DecodeAttention& attention, BatchDraws* draws, std::shared_ptr<Communicator> peer,
            std::chrono::milliseconds peer_patience)
      : parts_{forward, device, pool, kv, stores, attention, draws, std::move(peer), peer_patience, *this},
        device_(device),
        pool_(pool),
        kv_(kv),
        stores_(stores),
        attention_(attention),
        draws_(draws) {}

  /// What is kept of the prompt that a sequence starts with.
  void set_prompt(SequenceId sequence, const PromptQueries& queries, const PromptSums& sums) {
    parts_.queries[sequence] = queries;
    parts_.sums[sequence] = sums;
  }
  /// Device memory of it that a method with these needs reads.
  std::size_t prompt_bytes(SequenceId sequence, const Needs& needs) const;
  /// The method has had its look: the memory goes back where no prefix holds it.
  void forget_prompt(SequenceId sequence) {
    parts_.queries.erase(sequence);
    parts_.sums.erase(sequence);
  }
  /// Mechanism::forget, bytes_of and peer_bytes_of, over all mechanisms.
  void forget(SequenceId sequence);
  std::size_t bytes_of(SequenceId sequence, Tier tier) const;
  std::size_t peer_bytes_of(SequenceId sequence) const;

  const ModelShape& shape() const override { return parts_.forward.shape(); }
  void move_to_host(SequenceState& sequence, Range tokens) override;
  void move_to_host(SequenceState& sequence, Range tokens, std::uint32_t layer, Companion* along) override;
  void copy_to_host(std::uint32_t layer, std::span<const CopyRequest> requests) override;
  DigestRef build_digests(SequenceState& sequence, const DigestRequest& request) override;
  void extend_digests(std::uint32_t layer, std::span<const DigestExtension> extensions) override;
  void drop(SequenceState& sequence, Range tokens) override;
  std::vector<Blocks> score_topk(const LayerContext& context, std::span<const ScoreRequest> requests) override;
  StagingRef make_staging(SequenceState& sequence, std::uint32_t tokens, std::uint32_t parts) override;
  void renew_staging(const SequenceState& sequence, StagingRef staging, std::uint32_t tokens) override;
  std::vector<KvSource> fetch(std::uint32_t layer, std::span<const FetchRequest> requests) override;
  QueryRef predict_query(const LayerContext& context, std::uint32_t layer, std::uint32_t norm_of) override;
  QueryRef layer_query(const LayerContext& context) override;

  /// The last operation that methods asked for on each lane: when these are done, all of them are.
  const std::vector<Event>& last_asked() const { return parts_.last_asked; }
  /// Names the event after which no operation reads dropped pages.
  void set_last_reader(Event event) { parts_.last_reader = event; }

 private:
  struct DigestWork;  // blocks of one sequence that get their digest
  struct FetchWork;   // what one request of a fetch brings to the device

  std::unique_ptr<Mechanism>& mechanism(std::type_index type) override { return mechanisms_[type]; }
  EngineParts& parts() override { return parts_; }
  Event ask(LaneKind lane, Op op) { return parts_.ask(lane, std::move(op)); }
  Event asked(Event event) { return parts_.asked(event); }
  DigestWork digest_work(const SequenceState& sequence, std::uint32_t id, std::uint32_t layer, Range blocks, Op& op);
  Event submit_digests(Tier tier, std::uint32_t layer, std::vector<DigestWork> work, Op op);
  void launch_digests(LaunchContext& ctx, std::uint32_t layer, std::span<const DigestWork> work) const;
  void grow_digests(DigestIndex& index, std::uint32_t tokens);
  KvSource fetched(const FetchRequest& request, const FetchWork& work, Event ready);
  FetchWork fetch_work(const FetchRequest& request, std::uint32_t layer, Op& op);
  void copy_blocks(Copier& copier, const FetchWork& work) const;
  void launch_chosen_fetch(LaunchContext& ctx, std::span<const FetchWork* const> work, const Cost& fixed) const;
  /// `fixed`: what the whole operation costs whatever was chosen.
  void launch_fetch(LaunchContext& ctx, std::span<const FetchWork> work, const Cost& fixed) const;
  void count_chosen(BodyContext& ctx, const ChosenBlocks& chosen, Cost& cost) const;
  void copy_chosen(BodyContext& ctx, const Staging& staging, std::uint32_t part, const ChosenBlocks& chosen,
                   std::vector<Access>& access, Cost& cost) const;

  EngineParts parts_;
  std::unordered_map<std::type_index, std::unique_ptr<Mechanism>> mechanisms_;
  Device& device_;
  ThreadPool& pool_;
  KvStore& kv_;
  SequenceStores& stores_;
  DecodeAttention& attention_;
  BatchDraws* draws_;  // where only shapes are simulated
};

}  // namespace tandem
