// What a method can ask of the engine besides attention, with the requests' parts. All of it is in handles and numbers;
// no call reads tensor data.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <variant>
#include <vector>

#include "engine/device/types.h"
#include "engine/kernels/digest.h"  // DigestKind
#include "engine/kernels/query_prediction.h"
#include "engine/kernels/topk.h"  // Reduce
#include "engine/kv/cache_rank.h"
#include "engine/runtime/plan.h"

namespace tandem {

/// A prompt, the first or a later one of a session, whose queries averages start from.
struct ObserveRequest {
  AverageRef average;
  Range prompt;                    // its tokens, the sequence's last ones
  std::uint32_t device_begin = 0;  // from here on everything is on the device
  std::uint32_t window_begin = 0;  // from here on everything stays there; both at a page's start
  std::uint32_t queries = 1;       // of the prompt's last tokens, at most Needs::last_queries
};

struct SalientRequest {
  TokenSetRef set;
  AverageRef average;
  Range tokens;
  double times = 1;                  // salient: an average above `times` the mean weight; 0: all are
  std::uint32_t softmax_tokens = 1;  // that the averaged softmax ran over: its mean weight is 1 / softmax_tokens
};

struct HeavyRequest {
  std::uint32_t heavy = 0;   // tokens that stay for their mass
  std::uint32_t window = 1;  // most recent tokens, which stay anyway
  /// By the latest query's weights alone, summed over all heads of the layer, which hold the same tokens (TOVA); the
  /// prompt's are its last kept query's (Needs::last_queries). Otherwise by all queries' (H2O), per KV head. All rows
  /// of a batch alike.
  bool latest = false;
};

/// Room for the choice of single tokens of one layer, made by Ops::make_token_choice.
struct TokenChoiceRef {
  std::uint32_t id = 0;
};
struct ChooseRequest {
  const SequenceState* sequence = nullptr;
  TokenChoiceRef choice;
  std::uint32_t end = 0;     // tokens [0, end) are scored; all are on the device
  std::uint32_t tokens = 0;  // that a KV head gets, at most `end`
};

struct CopyRequest {
  const SequenceState* sequence = nullptr;
  Range tokens;
};

struct DigestRequest {
  Range tokens;             // block 0 starts at tokens.begin, a page's first token
  std::uint32_t block = 0;  // tokens
  /// Where the digests lie and blocks are scored. On the host the tokens must be there; on the device they may be on
  /// either side, and those in host memory are read over the link.
  Side side = Side::host;
  /// Takes more blocks later (extend_digests), up to the sequence's max_tokens: then only whole blocks have a digest.
  /// Otherwise a short last block is digested over what it has.
  bool grows = false;
  std::uint32_t first_layer = 0;  // layers before it get no digests
  DigestKind kind = DigestKind::bounds;
  /// Of bounds: digests of smaller blocks of the same tokens, side and growth, whose multiples these blocks are: these
  /// are made from them, now and later, instead of from the keys.
  std::optional<DigestRef> finer = {};
};

struct DigestExtension {
  const SequenceState* sequence = nullptr;
  DigestRef digests;
  std::uint32_t end = 0;  // all whole blocks before this token get their digest
};

struct ScoreRequest {
  const SequenceState* sequence = nullptr;
  DigestRef digests;
  std::uint32_t blocks = 0;        // that a list gets, capped by the number of blocks
  std::uint32_t always_first = 0;  // the first so many blocks are among them whatever their score
  Scope scope = Scope::query_head;
  Reduce reduce = Reduce::max;  // within a KV head; a layer's score is the sum over its KV heads
};

/// One layer of a context in f32.
struct ContextView {
  std::uint32_t layer = 0, tokens = 0;
  const float* query = nullptr;            // of its last token, [Hq][D], after RoPE
  std::vector<const float*> keys, values;  // by KV head: [tokens][D]
};

struct ContextRequest {
  Cost cost;  // of a layer, beside reading it
  /// What it writes belongs to later HeadEstimates of the sequence. Not called where only shapes are simulated; empty:
  /// nobody looks, and reading costs what it does.
  std::function<void(const ContextView&)> read;
};

struct FetchRequest {
  const SequenceState* sequence = nullptr;
  StagingRef staging;
  /// In host memory: whole pages, or the blocks of a selection that was made on the device.
  std::variant<Ranges, Blocks> tokens;
};

struct ResidentRequest {
  std::uint32_t sinks = 0;   // first tokens that never leave the device, whole blocks
  std::uint32_t block = 32;  // tokens
  std::uint32_t slots = 1;   // blocks that are resident at a time, besides the sinks and the newest block
  bool per_kv_head = false;  // each KV head chooses by its best query head; else one choice by the sum of all heads
  DigestKind digests = DigestKind::bounds;
};

struct SkewRequest {
  std::uint32_t columns = 1;  // of the skewed keys that the index keeps
  std::uint32_t unit = 1;     // tokens that are fetched together: 1, or whole pages
  std::uint32_t most = 1;     // units of a KV head in one fetch, of all who choose for it
  /// A KV head's query heads choose by the largest score that one of them gives, a layer's by the sum of these. Where
  /// each query head chooses, its KV head fetches what any of them chose.
  Scope scope = Scope::kv_head;
  std::uint32_t first_layer = 0;  // layers before it get no index
};

struct SpeculateRequest {
  const SequenceState* sequence = nullptr;
  SkewedRef index;
  std::uint32_t most = 1;  // units of one choice
  double alpha = 0;        // tokens wanted: the mean over query heads of those that score at least the best - alpha
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

/// What a method can ask of the engine. Everything returns at once; the work runs on the device's lanes.
class Ops {
 public:
  virtual ~Ops() = default;
  virtual const ModelShape& shape() const = 0;
  /// Copies whole pages (kPageTokens) of all layers to host memory and drops the device's copy once that is done.
  /// `tokens` must begin and end at a page's first token and lie in the past; a method's own blocks do not matter here.
  virtual void move_to_host(SequenceState& sequence, Range tokens) = 0;
  /// The same for one layer. With averages, those of the tokens go along, and the window that they follow then begins
  /// at tokens.end.
  virtual void move_to_host(SequenceState& sequence, Range tokens, std::uint32_t layer,
                            std::optional<AverageRef> average) = 0;
  /// Copies one layer of any tokens to host memory; the device keeps its own until they are dropped.
  virtual void copy_to_host(std::uint32_t layer, std::span<const CopyRequest> requests) = 0;
  /// Averages for all layers and query heads of a window of at most `window_tokens`, without any values yet. `share`:
  /// of a step's weight in the average, which becomes (1 - share) average + share weight.
  virtual AverageRef make_average(SequenceState& sequence, std::uint32_t window_tokens, float share) = 0;
  /// After a prompt: the averages of all tokens on the device become the mean weight that a token had under the
  /// prompt's last queries, each over its own past, whatever was known before. Tokens before the window have it from
  /// the softmax over all that the device holds, and it is on the host at once; tokens of the window from the softmax
  /// over the window, the set that later steps' weights come from. A prompt with fewer queries has all of them
  /// observed.
  virtual void observe_prompt(SequenceState& sequence, const ObserveRequest& request) = 0;
  /// An empty set with room for the sequence's max_tokens.
  virtual TokenSetRef make_token_set(SequenceState& sequence) = 0;
  /// Room for max_tokens, where there is less; what is in the set stays. Nothing may be using it: between decodes only.
  virtual void extend_token_set(SequenceState& sequence, TokenSetRef set) = 0;
  /// Room for averages of a window of `window_tokens` and of max_tokens on the host. What is known of the window stays.
  /// Nothing may be using them: between decodes only.
  virtual void extend_average(SequenceState& sequence, AverageRef average, std::uint32_t window_tokens) = 0;
  /// Empties the set and gives it room for max_tokens. Nothing may be using it: between decodes only.
  virtual void renew_token_set(SequenceState& sequence, TokenSetRef set) = 0;
  /// Adds those of request.tokens, which are on the host with their averages, that are salient for a query head of the
  /// group. Runs on the host's threads.
  virtual void keep_salient(SequenceState& sequence, std::uint32_t layer, const SalientRequest& request) = 0;
  /// Shows a prefilled sequence, all of it still on the device, to the method's own statistics, layer by layer on the
  /// device (Needs::last_queries); on a GPU the host looks at a copy.
  virtual void read_context(SequenceState& sequence, const ContextRequest& request) = 0;
  /// Digests (DigestRequest::kind) of every layer's blocks.
  virtual DigestRef build_digests(SequenceState& sequence, const DigestRequest& request) = 0;
  /// Digests of blocks that have filled up since, of one layer and any number of sequences; finer ones come before
  /// those that are made from them. On the device those of one call that are made of keys have blocks of one size. Call
  /// it when nothing later in the step scores the layer's blocks: the newest block, with the token that is being
  /// computed, is attended by the plan itself.
  virtual void extend_digests(std::uint32_t layer, std::span<const DigestExtension> extensions) = 0;
  /// The heaviest tokens and the most recent ones, per layer and KV head, of the prompt (by its column sums, see Needs)
  /// or, with a set, of that and of the prompt that was appended since. They are copies: the pages can be dropped.
  virtual HeavyRef keep_heavy(SequenceState& sequence, std::optional<HeavyRef> set, const HeavyRequest& request) = 0;
  /// What a set, a rank's latest selection, or the residents have of a layer now, for this layer's plan. `chosen_only`:
  /// those residents that the latest choice names; all of them where no block can be missing.
  virtual Packed kv_of(HeavyRef survivors, std::uint32_t layer) = 0;
  virtual Packed kv_of(TokenSetRef set, std::uint32_t layer) = 0;
  virtual Packed kv_of(RankRef rank, std::uint32_t layer) = 0;
  virtual Packed kv_of(ResidentRef residents, std::uint32_t layer, bool chosen_only) = 0;
  /// Gives up device pages that lie wholly inside `tokens`, for good.
  virtual void drop(SequenceState& sequence, Range tokens) = 0;
  /// Scores all blocks against this layer's true query by their digests and takes the best; ties go to the lower
  /// index. Runs where the digests are: on the host one by one, on the device for all requests at once, which then have
  /// one scope and one reduction.
  virtual std::vector<Blocks> score_topk(const LayerContext& context, std::span<const ScoreRequest> requests) = 0;
  /// Room for a choice of at most `most` tokens per KV head.
  virtual TokenChoiceRef make_token_choice(SequenceState& sequence, std::uint32_t most) = 0;
  /// Other room in its place: what was chosen is gone.
  virtual void renew_token_choice(const SequenceState& sequence, TokenChoiceRef choice, std::uint32_t most) = 0;
  /// Scores single tokens against this layer's true query and takes each KV head's best, by the best of its query
  /// heads; ties go to the older token. On the device. A choice holds until the sequence's next one.
  virtual std::vector<Tokens> choose_tokens(const LayerContext& context, std::span<const ChooseRequest> requests) = 0;
  /// A cache rank of a sequence (AsyncSpade section 4.1): a window of the latest queries per layer and head, the KV
  /// that selections are made from, and room on the device for one selection per layer. InputError where the device has
  /// no peer and the place is one.
  virtual RankRef open_cache_rank(SequenceState& sequence, const RankRequest& request) = 0;
  /// Room for larger selections, between decodes. What was selected is forgotten.
  virtual void renew_cache_rank(SequenceState& sequence, RankRef rank, std::uint32_t most) = 0;
  /// After a layer: its queries of this step are kept for the next message. `ranks` by row.
  virtual void keep_queries(const LayerContext& context, std::span<const RankRef> ranks) = 0;
  /// One message each way for some consecutive layers: the kept queries (`of_prompt`: the prompt's last ones, see
  /// Needs::last_queries, as far as the rank does not have them) and KV that the rank does not have yet go to it; it
  /// predicts the next token's queries, chooses tokens by them and sends their KV, packed. While the step goes on; the
  /// attention of the next step waits for it. Of rank places other than `stream` the device's pages of what was sent
  /// are dropped.
  virtual void select_ahead(Range layers, std::span<const AheadRequest> requests, bool of_prompt) = 0;
  /// Room on the device for the KV of `tokens` tokens per KV head, `parts` times. `renew_staging` changes the tokens
  /// and forgets what was fetched: not between a fetch and its attention.
  virtual StagingRef make_staging(SequenceState& sequence, std::uint32_t tokens, std::uint32_t parts) = 0;
  virtual void renew_staging(const SequenceState& sequence, StagingRef staging, std::uint32_t tokens) = 0;
  /// Brings KV of one layer from host memory into the staging's next part, for one attention of the same step. It waits
  /// until the part's last reader is done. Whole pages are copied; chosen blocks, whose selections have one scope, are
  /// read by the device itself. Pieces are counted as engine/kv/link_pieces.h says.
  virtual std::vector<KvSource> fetch(std::uint32_t layer, std::span<const FetchRequest> requests) = 0;

  /// Queries of `layer` for all rows from the input of the layer that runs, under the input norm of layer `norm_of`, at
  /// the step's position (ScoutAttention, algorithm 1, line 2). In before_layer and plan_attend.
  virtual QueryRef predict_query(const LayerContext& context, std::uint32_t layer, std::uint32_t norm_of) = 0;
  /// The true queries of the layer that runs; from plan_attend on.
  virtual QueryRef layer_query(const LayerContext& context) = 0;
  /// Of a prefilled sequence: moves all filled blocks behind the sinks to host memory, with digests on the device, and
  /// keeps those resident that the prompt's last query scores best (Needs::last_queries). The sinks and the newest
  /// block stay in the KV store's device tier.
  virtual ResidentRef keep_resident(SequenceState& sequence, const ResidentRequest& request) = 0;
  /// The same after a new prompt, by its last query, for the blocks that it filled and all before, in so many slots.
  virtual void renew_residents(SequenceState& sequence, ResidentRef set, std::uint32_t slots) = 0;
  /// Room for so many slots, where there are fewer; what is resident stays.
  virtual void extend_residents(SequenceState& sequence, ResidentRef set, std::uint32_t slots) = 0;
  /// The layer's newest block has filled up: it gets a digest and a copy in host memory, and is resident where a slot
  /// is free. From the next step on it can be chosen.
  virtual void block_filled(SequenceState& sequence, ResidentRef set, std::uint32_t layer) = 0;
  /// Chooses each row's best blocks of the query's layer by their digests, as many as are resident at a time, and says
  /// which are not resident. `sets` by row. Waits for that layer's recalls; from here to the end of the layer's
  /// attention the residents stay as they are.
  virtual SplitRef split_by_residency(const LayerContext& context, const QueryRef& query,
                                      std::span<const ResidentRef> sets) = 0;
  /// Starts attention of the split's query over its missing blocks on the host; goes into the plan of the query's
  /// layer. Nothing where no row can miss a block.
  virtual std::optional<PartialRef> host_partial(const LayerContext& context, const SplitRef& split) = 0;
  /// After a layer's attention: brings what its choice missed to the device, in place of residents that it did not
  /// name, while the step goes on. `rows`: that are due.
  virtual void recall(const LayerContext& context, const SplitRef& split, std::span<const std::uint32_t> rows) = 0;

  /// Of a prefilled sequence: a skewing per KV head from the prompt's keys and its kept queries (Needs::last_queries),
  /// an index of the first columns of every skewed key on the device; all whole blocks of 32 tokens of all layers, with
  /// an index or without, go to host memory.
  virtual SkewedRef index_keys(SequenceState& sequence, const SkewRequest& request) = 0;
  /// The same for what a new prompt added; the skewing stays.
  virtual void renew_index(SequenceState& sequence, SkewedRef index, std::uint32_t most) = 0;
  /// After a layer: where the newest block of 32 tokens is full, it enters the layer's index, where there is one, and
  /// goes to host memory.
  virtual void index_filled(SequenceState& sequence, SkewedRef index, std::uint32_t layer) = 0;
  /// Scores the indexed tokens of the query's layer and brings those that are wanted to the device, while the step goes
  /// on. Two layers' worth at a time. Every request has tokens in its index, and the indexes are alike: in columns,
  /// unit and who chooses.
  virtual SpeculatedRef fetch_speculated(const LayerContext& context, const QueryRef& query,
                                         std::span<const SpeculateRequest> requests) = 0;
};

}  // namespace tandem
