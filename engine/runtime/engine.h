// The engine: prefill once, decode with every method. One control thread; all work goes to the device's lanes.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "engine/device/device.h"
#include "engine/kernels/sampling.h"
#include "engine/kernels/thread_pool.h"
#include "engine/kv/kv_store.h"
#include "engine/kv/prefix_index.h"
#include "engine/model/model.h"
#include "engine/runtime/forward.h"
#include "engine/runtime/method.h"
#include "engine/runtime/prefix_cache.h"
#include "engine/runtime/workload.h"
#include "engine/trace/idle.h"

namespace tandem {

class Communicator;
class DecodeSession;
class ForwardObserver;
class KvOffload;

struct EngineOptions {
  KvBudget kv;
  std::uint32_t max_batch = 8;
  std::uint32_t prefill_chunk = 512;  // tokens; any value gives the same logits within 1e-4
  std::uint32_t keep_queries = 64;    // of a prompt's last tokens, always kept
  bool column_sums = false;           // keep a prompt's attention mass by token, for methods that need it (Needs)
  PrefixCacheOptions prefix_cache;    // none unless it has bytes
  Nanos policy_ns = 0;                // declared control time of one method hook (from the hardware profile)
  Nanos layer_ns = 0;                 // device time that a framework adds to a decode layer (from the hardware profile)
  Nanos control_layer_ns = 0;         // the same of the control thread
  // For scores of single tokens on a GPU: 128 MB. Where all rows have more, some come after the others.
  std::size_t score_floats = std::size_t{32} << 20;
  bool host_prompts = false;  // prompts that do not fit the device go to host memory (Needs::host_prompts)
  // How K and V are stored. With bf16, prefill also rounds what it multiplies with weights to bf16, as the reference
  // implementations of such models do; a decode step multiplies f32 with the weights as they are.
  DType precision = DType::f32;
  // For devices that simulate shapes only, and only there: what heads would choose.
  std::shared_ptr<const Workload> workload = nullptr;
  // Sequences of each length that have choices of their own; the others share them (BatchDraws::share). 0: all.
  std::uint32_t drawn_sequences = 0;
  // Who is asked to be a cache rank on a peer device (engine/distributed); nullptr: a thread of this process.
  std::shared_ptr<Communicator> peer = nullptr;
  std::chrono::milliseconds peer_patience{60'000};  // of both with each other; longer silence ends the decode
  std::function<bool()> interrupted;  // polled between steps and chunks; true ends the call with Interrupted
};

/// The prefilled part of a prompt: all but its last token, which is the first decode step's input, so that already the
/// first generated token goes through the method. Decode forks it and changes nothing; append makes it longer.
struct Prefix {
  SequenceId sequence = 0;
  std::vector<std::int32_t> prompt;  // whole prompt, BOS included
  PromptQueries queries;             // of the tokens that are prefilled
  PromptSums sums;                   // of these, where the engine keeps them
  Nanos prefill_ns = 0;              // of the last prefill or append, on the device's clock
  Nanos sums_ns = 0;                 // of it: what made `sums`, which nothing else waits for
  std::uint32_t reused = 0;          // tokens from the prefix cache; prefill_ns has the time of their first prefill
  Trace trace;                       // of what was computed
  PrefixIndex::Block block = PrefixIndex::kRoot;  // the prefix cache's, which it pins

  /// What a method with these needs waits for: the others' are not its own, whoever it is compared with.
  Nanos prefill_ns_for(const Needs& needs) const { return needs.column_sums ? prefill_ns : prefill_ns - sums_ns; }
};

struct NearTie {
  std::uint32_t step = 0;
  float margin = 0;
};

struct DecodeRequest {
  const Prefix* prefix = nullptr;
  std::uint32_t max_new_tokens = 0;
  /// Beside the model's: one of these ends the sequence from its second token on. As the first token it is text: an
  /// answer that ends with its line may begin with an empty one.
  std::vector<std::int32_t> stop_tokens = {};
};

struct DecodedSequence {
  std::vector<std::int32_t> tokens;  // generated; a stop token ends it and is not included
  std::vector<TopTwo> top;           // of every step, that of the stop token too
  std::vector<NearTie> near_ties;    // steps whose tokens were chosen greedily; none where only shapes are simulated
  std::vector<std::uint32_t> steps;  // numbers (StepIdle::step) of the steps that produced a token of this sequence
  bool stopped = false;              // by a stop token, not by max_new_tokens
  std::int32_t stop_token = -1;      // the one that stopped it
  std::size_t peak_kv_bytes[2] = {0, 0};  // by Tier
  std::size_t peak_peer_bytes = 0;        // of a cache rank on a peer device: KV, query windows, selections
  std::vector<double> log_probabilities;  // of forced tokens, natural logarithm
  std::uint64_t attended[2] = {0, 0};     // tokens attended per KV head and layer, summed over steps, by Side
  std::uint32_t drawn_as = 0;             // request whose draws it shared where shapes are simulated, or its own
  std::uint64_t tasks[2] = {0, 0};        // of a method whose host attention is pulled: taken over all steps, by Side
};

struct DecodeResult {
  std::vector<DecodedSequence> sequences;  // in request order
  Trace trace;                             // of the first DecodeOptions::trace_steps steps
  IdleReport idle;                         // of all, invariants checked
};

struct DecodeOptions {
  std::function<void(std::size_t request, std::int32_t token)> on_token = {};
  std::vector<std::vector<float>>* logits = nullptr;  // tests: receives [step][rows * vocab]
  // Receives tokens attended on the host, summed over KV heads: [step][rows * layers].
  std::vector<std::vector<std::uint64_t>>* host_tokens = nullptr;
  // Teacher forcing: per request, the tokens fed instead of the arg max; nothing stops early then, and
  // DecodedSequence::log_probabilities says how likely each was.
  std::span<const std::vector<std::int32_t>> forced = {};
  /// Per request, how its tokens are chosen; empty: greedily. A sequence's tokens depend on its own entry only, not on
  /// the batch, and go on from where it stands: a second decode of a session draws new numbers. Not with `forced`.
  std::span<const Sampling> sampling = {};
  /// After each so many steps the device is drained, the time of which is in no step, and what it remembers of them is
  /// summed up: a step of a 32-layer model is a thousand records, and as many pairs of marks on a GPU. At least 1.
  std::uint32_t trace_steps = 512;
};

class Engine {
 public:
  Engine(const Model& model, Device& device, ThreadPool& pool, EngineOptions options);
  ~Engine();

  ModelShape shape() const { return forward_->shape(); }
  KvStore& kv() { return *kv_; }
  Device& device() { return device_; }

  /// Shows queries, keys and values of what is computed from here on to `observer`, which must outlive it; nullptr ends
  /// it.
  void observe(ForwardObserver* observer);

  /// Throws InputError for an empty prompt, a token outside the vocabulary or more tokens than the model's positions,
  /// and what PrefixCacheOptions::check throws. With a prefix cache the result is the same bit for bit.
  std::unique_ptr<Prefix> prefill(std::span<const std::int32_t> prompt);
  /// A prompt whose pages are where prefill() would put them, without the work and in no time: where shapes are
  /// simulated, whose pages hold nothing. Errors as there.
  std::unique_ptr<Prefix> lay_out(std::span<const std::int32_t> prompt);
  /// Makes the prompt longer (the next turn) and prefills what the prefix does not hold yet. Unlike
  /// DecodeSession::append it computes generated tokens anew by full attention, so that every method goes on from the
  /// same context. Errors as in prefill; the prefix is then as before.
  void append(Prefix& prefix, std::span<const std::int32_t> more);
  void release(const Prefix& prefix);

  /// Decodes a ragged batch. At most max_batch requests. InputError for a sampling that check_sampling() refuses.
  DecodeResult decode(Method& method, std::span<const DecodeRequest> requests, const DecodeOptions& options = {});

  /// The same, for sequences that go on after a decode: decode_session.h. The prefixes may be released at once; the
  /// method must outlive the session. One session, decode or prefill at a time uses the engine.
  std::unique_ptr<DecodeSession> open_session(Method& method, std::span<const DecodeRequest> requests);

  /// Logits of every prompt position [n][vocab] through the prefill path (tests, perplexity of full attention).
  std::vector<float> prefill_logits(std::span<const std::int32_t> prompt);

 private:
  void check_prompt(std::span<const std::int32_t> prompt) const;
  void check_requests(Method& method, std::span<const DecodeRequest> requests) const;
  bool in_host_memory(SequenceId sequence) const;
  std::unique_ptr<KvOffload> spill_for(SequenceId sequence, std::uint32_t more);
  PromptQueries room_for_queries(const PromptQueries& before, std::uint32_t held, std::uint32_t total);
  PromptSums room_for_sums(const PromptSums& before, std::uint32_t held, std::uint32_t total);
  /// `queries` and `sums`: where they go; without room, nowhere. `submitted` is called behind each chunk, `ended` when
  /// each chunk but the last is done. Returns its last operation.
  Event prefill_chunks(SequenceId sequence, std::span<const std::int32_t> tokens, const PromptQueries& queries,
                       const PromptSums& sums,
                       const std::function<void(std::uint32_t first, std::uint32_t rows)>& submitted,
                       const std::function<void()>& ended = {});
  /// Prefills what the prefix does not hold of `prompt`, which becomes its prompt. Returns the time since then at the
  /// end of each chunk.
  std::vector<PrefillTimes> extend(Prefix& prefix, std::vector<std::int32_t> prompt);

  const Model& model_;
  Device& device_;
  ThreadPool& pool_;
  EngineOptions options_;
  std::unique_ptr<KvStore> kv_;
  std::unique_ptr<Forward> forward_;
  std::unique_ptr<PrefixCache> cache_;  // nullptr: none
};

}  // namespace tandem
