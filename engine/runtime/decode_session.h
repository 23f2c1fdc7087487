// A ragged batch of sequences under one method: fork the prefixes, let the method prepare, run steps until every
// sequence is done. A kept session can then take a new prompt per sequence and go on, with all that the method knows.
#pragma once

#include <array>
#include <memory>
#include <span>
#include <vector>

#include "engine/kv/sequence_stores.h"
#include "engine/runtime/append_attention.h"
#include "engine/runtime/batch_draws.h"
#include "engine/runtime/decode_attention.h"
#include "engine/runtime/engine.h"
#include "engine/runtime/forward.h"
#include "engine/runtime/mechanism.h"

namespace tandem {

class DecodeSession {
 public:
  /// What is done with a sequence that has all its tokens.
  enum class Finished : std::uint8_t { release, keep };

  DecodeSession(const Model& model, Device& device, ThreadPool& pool, const EngineOptions& engine, KvStore& kv,
                Forward& forward, Method& method, std::span<const DecodeRequest> requests, Finished finished);
  ~DecodeSession();
  DecodeSession(const DecodeSession&) = delete;
  DecodeSession& operator=(const DecodeSession&) = delete;

  /// Decodes until every sequence has max_new_tokens more or said a stop token. InputError where these do not fit the
  /// model's positions: the session is then what it was. After any other error, as of a full KV store, it is over.
  DecodeResult decode(const DecodeOptions& options);

  /// The next prompt of a kept sequence, behind what it generated; decode() then goes on with at most `max_new_tokens`.
  /// Attention is exact over all KV that the sequence still has. Returns the virtual or real time that it took.
  /// InputError for no tokens, tokens outside the vocabulary, too many positions, and on a GPU for methods that keep
  /// single tokens (Needs::single_tokens): the session is then what it was. After any other error it is over.
  Nanos append(std::size_t request, std::span<const std::int32_t> more, std::uint32_t max_new_tokens);

 private:
  struct Active {
    std::size_t request = 0;
    SequenceState state;
    std::int32_t next = 0;                  // token that the next step takes in
    std::uint32_t max_new = 0;              // tokens of this decode
    std::vector<std::int32_t> stop_tokens;  // beside the model's
    std::uint32_t last_row = 0;             // row that wrote this sequence's next token
    std::size_t prompt_bytes = 0;           // kept of the prompt on the device while the method prepared
  };

  std::vector<Event> prepare();
  void begin();
  void step(std::uint32_t step);
  Event attend_layers(std::uint32_t step);
  Event attend_layer(const LayerContext& context, const std::vector<std::uint32_t>& positions,
                     std::vector<Event> recycled);
  Nanos append_chunks(Active& sequence, std::span<const std::int32_t> tokens, const AppendRequest& wanted);
  Nanos drain_behind(const std::vector<Event>& work);
  void prompt_seen(Active& sequence);
  void count_bytes(const Active& sequence, std::size_t device_more, std::size_t host_more);
  void fixed_time(LaneKind lane, const char* name, Cause cause, std::uint32_t layer, Nanos ns);
  void collect(std::uint32_t step);
  void drain();
  std::vector<SequenceState*> batch();

  const Model& model_;
  Device& device_;
  ThreadPool& pool_;
  const EngineOptions& engine_;
  KvStore& kv_;
  Forward& forward_;
  Method& method_;
  Finished finished_;
  const DecodeOptions* options_ = nullptr;  // of the decode that is running
  SequenceStores stores_;
  std::unique_ptr<BatchDraws> draws_;  // where only shapes are simulated
  DecodeAttention attention_;
  Ops ops_;
  EngineParts parts_;
  std::vector<std::unique_ptr<Active>> active_;   // by row
  std::vector<std::unique_ptr<Active>> waiting_;  // by request: before the first decode, and kept ones after it
  bool prepared_ = false;                         // the method has seen the contexts
  Event uploaded_;                                // tokens that the first step takes in
  DecodeResult result_;
  // [request][Side] tokens, summed over layers, KV heads and steps
  std::vector<std::array<std::uint64_t, 2>> attended_;
};

}  // namespace tandem
