// What methods can ask for (Ops), carried out on the device's lanes.
#pragma once

#include <memory>
#include <unordered_map>
#include <vector>

#include "engine/device/device.h"
#include "engine/kernels/heavy.h"
#include "engine/kernels/thread_pool.h"
#include "engine/kv/kv_store.h"
#include "engine/kv/sequence_stores.h"
#include "engine/runtime/decode_attention.h"
#include "engine/runtime/forward.h"
#include "engine/runtime/method.h"
#include "engine/runtime/selection.h"

namespace tandem {

class Communicator;
class RankThread;
class RemoteRank;

class EngineOps : public Ops {
 public:
  EngineOps(Device& device, ThreadPool& pool, KvStore& kv, SequenceStores& stores, DecodeAttention& attention,
            BatchDraws* draws, std::shared_ptr<Communicator> peer, std::chrono::milliseconds peer_patience)
      : device_(device),
        pool_(pool),
        kv_(kv),
        stores_(stores),
        attention_(attention),
        draws_(draws),
        peer_(std::move(peer)),
        peer_patience_(peer_patience) {}

  /// What is kept of the prompt that a sequence starts with.
  void set_prompt(SequenceId sequence, const PromptQueries& queries, const PromptSums& sums) {
    queries_[sequence] = queries;
    sums_[sequence] = sums;
  }
  /// Device memory of it that a method with these needs reads.
  std::size_t prompt_bytes(SequenceId sequence, const Needs& needs) const;
  /// The method has had its look: the memory goes back where no prefix holds it.
  void forget_prompt(SequenceId sequence) {
    queries_.erase(sequence);
    sums_.erase(sequence);
  }

  const ModelShape& shape() const override { return attention_.shape(); }
  void move_to_host(SequenceState& sequence, Range tokens) override;
  void move_to_host(SequenceState& sequence, Range tokens, std::uint32_t layer,
                    std::optional<AverageRef> average) override;
  void copy_to_host(std::uint32_t layer, std::span<const CopyRequest> requests) override;
  AverageRef make_average(SequenceState& sequence, std::uint32_t window_tokens, float share) override;
  void observe_prompt(SequenceState& sequence, const ObserveRequest& request) override;
  TokenSetRef make_token_set(SequenceState& sequence) override;
  void extend_average(SequenceState& sequence, AverageRef average, std::uint32_t window_tokens) override;
  void extend_token_set(SequenceState& sequence, TokenSetRef set) override;
  void renew_token_set(SequenceState& sequence, TokenSetRef set) override;
  void keep_salient(SequenceState& sequence, std::uint32_t layer, const SalientRequest& request) override;
  void read_context(SequenceState& sequence, const ContextRequest& request) override;
  DigestRef build_digests(SequenceState& sequence, const DigestRequest& request) override;
  void extend_digests(std::uint32_t layer, std::span<const DigestExtension> extensions) override;
  Packed kv_of(HeavyRef survivors, std::uint32_t layer) override;
  Packed kv_of(TokenSetRef set, std::uint32_t layer) override;
  Packed kv_of(RankRef rank, std::uint32_t layer) override;
  Packed kv_of(ResidentRef residents, std::uint32_t layer, bool chosen_only) override;
  void drop(SequenceState& sequence, Range tokens) override;
  HeavyRef keep_heavy(SequenceState& sequence, std::optional<HeavyRef> set, const HeavyRequest& request) override;
  std::vector<Blocks> score_topk(const LayerContext& context, std::span<const ScoreRequest> requests) override;
  TokenChoiceRef make_token_choice(SequenceState& sequence, std::uint32_t most) override;
  void renew_token_choice(const SequenceState& sequence, TokenChoiceRef choice, std::uint32_t most) override;
  std::vector<Tokens> choose_tokens(const LayerContext& context, std::span<const ChooseRequest> requests) override;
  RankRef open_cache_rank(SequenceState& sequence, const RankRequest& request) override;
  void renew_cache_rank(SequenceState& sequence, RankRef rank, std::uint32_t most) override;
  void keep_queries(const LayerContext& context, std::span<const RankRef> ranks) override;
  void select_ahead(Range layers, std::span<const AheadRequest> requests, bool of_prompt) override;
  StagingRef make_staging(SequenceState& sequence, std::uint32_t tokens, std::uint32_t parts) override;
  void renew_staging(const SequenceState& sequence, StagingRef staging, std::uint32_t tokens) override;
  std::vector<KvSource> fetch(std::uint32_t layer, std::span<const FetchRequest> requests) override;
  QueryRef predict_query(const LayerContext& context, std::uint32_t layer, std::uint32_t norm_of) override;
  QueryRef layer_query(const LayerContext& context) override;
  ResidentRef keep_resident(SequenceState& sequence, const ResidentRequest& request) override;
  void renew_residents(SequenceState& sequence, ResidentRef set, std::uint32_t slots) override;
  void extend_residents(SequenceState& sequence, ResidentRef set, std::uint32_t slots) override;
  void block_filled(SequenceState& sequence, ResidentRef set, std::uint32_t layer) override;
  SplitRef split_by_residency(const LayerContext& context, const QueryRef& query,
                              std::span<const ResidentRef> sets) override;
  std::optional<PartialRef> host_partial(const LayerContext& context, const SplitRef& split) override;
  void recall(const LayerContext& context, const SplitRef& split, std::span<const std::uint32_t> rows) override;
  SkewedRef index_keys(SequenceState& sequence, const SkewRequest& request) override;
  void renew_index(SequenceState& sequence, SkewedRef index, std::uint32_t most) override;
  void index_filled(SequenceState& sequence, SkewedRef index, std::uint32_t layer) override;
  SpeculatedRef fetch_speculated(const LayerContext& context, const QueryRef& query,
                                 std::span<const SpeculateRequest> requests) override;

  /// The last operation that methods asked for on each lane: when these are done, all of them are.
  const std::vector<Event>& last_asked() const { return last_asked_; }
  /// Names the event after which no operation reads dropped pages.
  void set_last_reader(Event event) { last_reader_ = event; }

 private:
  struct DigestWork;  // blocks of one sequence that get their digest
  struct FetchWork;   // what one request of a fetch brings to the device
  struct RankWork;    // what one request of a selection ahead comes to
  struct HeavyWork;   // a layer's competition for the places of a set
  struct Sent {       // a message: the device's memory has been read; the answer is on the device
    Event left, arrived;
  };

  Event ask(LaneKind lane, Op op);
  RankWork rank_work(Range layers, const AheadRequest& request, bool of_prompt);
  Sent select_here(Range layers, const std::shared_ptr<std::vector<RankWork>>& work);
  Sent select_on_host(Range layers, const std::shared_ptr<std::vector<RankWork>>& work);
  Sent select_on_peer(Range layers, const std::shared_ptr<std::vector<RankWork>>& work);
  void push_queries(BodyContext& ctx, Range layers, const std::vector<RankWork>& work, bool inbox) const;
  void choose_ahead(BodyContext& ctx, Range layers, const std::vector<RankWork>& work) const;
  // Their twins on a GPU (rank_launch.cc), and the messages' between the device and a rank on the host.
  void launch_pushes(LaunchContext& ctx, Range layers, const std::vector<RankWork>& work) const;
  void launch_choice(LaunchContext& ctx, Range layers, const std::vector<RankWork>& work) const;
  void launch_message(LaunchContext& ctx, Range layers, const std::vector<RankWork>& work,
                      std::span<const SlotCopy> copies) const;
  static void launch_answer(LaunchContext& ctx, Range layers, const std::vector<RankWork>& work);
  Event asked(Event event);
  void skew_layer(const SequenceState& sequence, const SkewedIndex& index, std::uint32_t layer);
  void keep_columns(const SkewedIndex& index, std::uint32_t layer);
  void index_more(SequenceState& sequence, SkewedRef ref, std::uint32_t layer, std::uint32_t end);
  void index_keys_of(const SequenceState& sequence, const SkewedIndex& index, std::uint32_t layer, Range added);
  void grow_index(SkewedIndex& index, std::uint32_t tokens);
  Event speculate(const LayerContext& context, const QueryRef& query, std::span<const SpeculateRequest> requests);
  void move_units(BodyContext& ctx, const SkewedIndex& index, std::uint32_t layer,
                  const std::vector<std::uint32_t>& pages) const;
  struct SpeculatingRow;  // what one request of a speculation chooses from
  struct SpeculatedRow;   // and where its choice is fetched from
  struct SkewedPrompt {   // what an index's directions are made from
    std::uint32_t observed = 0, tokens = 0;
  };
  // The twins on a GPU (speculation_launch.cc).
  void launch_skewing(LaunchContext& ctx, const SkewedIndex& index, std::uint32_t layer, const PromptQueries& queries,
                      SkewedPrompt prompt, const std::vector<std::uint32_t>& slots) const;
  void launch_skewed_keys(LaunchContext& ctx, const SkewedIndex& index, std::uint32_t layer, Range added,
                          const std::vector<std::uint32_t>& slots) const;
  void launch_speculation(LaunchContext& ctx, const ModelShape& shape, std::uint32_t layer, const float* queries,
                          std::span<const SpeculatingRow> rows) const;
  void launch_choices(LaunchContext& ctx, const ModelShape& shape, std::uint32_t layer, const float* queries,
                      std::span<const SpeculatingRow> rows, float* room, std::uint32_t* marks) const;
  void launch_units(LaunchContext& ctx, std::span<const SpeculatedRow> rows, std::uint32_t layer) const;
  void take_in(SequenceState& sequence, ResidentRef ref);
  void place_residents(const SequenceState& sequence, const ResidentSet& set, std::uint32_t layer);
  void keep_filled(const SequenceState& sequence, const ResidentSet& set, std::uint32_t layer, std::uint32_t begin);
  Event offload(const SequenceState& sequence, Range tokens, std::uint32_t layer, AttentionAverage* average);
  DigestWork digest_work(const SequenceState& sequence, std::uint32_t id, std::uint32_t layer, Range blocks, Op& op);
  std::uint32_t arriving_stride(const HeavySet& set) const;
  HeavyCompetition competition(const BodyContext& ctx, const HeavyWork& work, std::uint32_t kv_head) const;
  void compete(BodyContext& ctx, const HeavyWork& work) const;
  // The twins on a GPU (heavy_launch.cc).
  void launch_competition(LaunchContext& ctx, const HeavyWork& work) const;
  const float* launch_latest_weights(LaunchContext& ctx, const HeavyWork& work, const std::uint32_t* slots) const;
  Event submit_digests(Tier tier, std::uint32_t layer, std::vector<DigestWork> work, Op op);
  void launch_placement(LaunchContext& ctx, const ResidentSet& set, std::uint32_t layer, const Choice& choice,
                        const DigestIndex& index, const float* query, const std::vector<std::uint32_t>& slots,
                        const char* pages) const;
  struct Observation {
    std::uint32_t layer = 0, begin = 0;  // first token on the device
    std::uint32_t tokens = 0;            // from there on,
    std::uint32_t leaving = 0;           // of these before the window,
    std::uint32_t observed = 0;          // and the last of them, whose queries are looked at
    Range window;
  };
  void launch_observation(LaunchContext& ctx, const AttentionAverage& average, const PromptQueries& queries,
                          const Observation& observation, const DeviceBuffer& before,
                          const std::vector<std::uint32_t>& slots) const;
  void launch_digests(LaunchContext& ctx, std::uint32_t layer, std::span<const DigestWork> work) const;
  void grow_digests(DigestIndex& index, std::uint32_t tokens);
  KvSource fetched(const FetchRequest& request, const FetchWork& work, Event ready);
  FetchWork fetch_work(const FetchRequest& request, std::uint32_t layer, Op& op);
  void copy_blocks(BodyContext& ctx, const FetchWork& work) const;
  void launch_chosen_fetch(LaunchContext& ctx, std::span<const FetchWork* const> work, const Cost& fixed) const;
  /// `fixed`: what the whole operation costs whatever was chosen.
  void launch_fetch(LaunchContext& ctx, std::span<const FetchWork> work, const Cost& fixed) const;
  void count_chosen(BodyContext& ctx, const ModelShape& shape, const FetchWork& work, Cost& cost) const;
  void copy_chosen(BodyContext& ctx, const ModelShape& shape, const FetchWork& work, bool copies,
                   std::vector<Access>& access, Cost& cost) const;
  Event observe_layer(const SequenceState& sequence, const ObserveRequest& request, std::uint32_t layer,
                      const DeviceBuffer& before, Event before_free);

  Device& device_;
  ThreadPool& pool_;
  KvStore& kv_;
  SequenceStores& stores_;
  DecodeAttention& attention_;
  BatchDraws* draws_;  // where only shapes are simulated
  std::unordered_map<SequenceId, PromptQueries> queries_;
  std::unordered_map<SequenceId, PromptSums> sums_;
  std::shared_ptr<RankThread> rank_thread_;  // where no other peer was given, from the first cache rank on
  std::shared_ptr<Communicator> peer_;
  std::chrono::milliseconds peer_patience_;
  std::shared_ptr<RemoteRank> remote_;
  std::vector<Event> last_asked_;
  Event last_reader_;
};

}  // namespace tandem
