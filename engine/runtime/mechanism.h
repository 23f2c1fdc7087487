// Building blocks of methods beside attention. A mechanism keeps state per sequence and submits operations that methods
// ask for. Each is one folder of engine/mechanisms; Ops::use<M>() returns the session's instance.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <typeindex>
#include <unordered_map>
#include <vector>

#include "engine/device/device.h"
#include "engine/kernels/thread_pool.h"
#include "engine/kv/kv_store.h"
#include "engine/kv/per_sequence.h"
#include "engine/kv/sequence_stores.h"
#include "engine/runtime/batch_draws.h"
#include "engine/runtime/decode_attention.h"
#include "engine/runtime/forward.h"
#include "engine/runtime/method.h"
#include "engine/runtime/ops.h"

namespace tandem {

class Communicator;
class Mechanism;

/// Engine parts that a session's mechanisms and Ops use. The session owns them.
struct EngineParts {
  Forward& forward;
  Device& device;
  ThreadPool& pool;
  KvStore& kv;
  SequenceStores& stores;
  DecodeAttention& attention;
  BatchDraws* draws;                   // where only shapes are simulated
  std::shared_ptr<Communicator> peer;  // EngineOptions::peer and peer_patience
  std::chrono::milliseconds peer_patience;
  Ops& ops;
  // Kept of prompts until their method has seen them.
  std::unordered_map<SequenceId, PromptQueries> queries = {};
  std::unordered_map<SequenceId, PromptSums> sums = {};
  std::vector<Event> last_asked = {};  // by lane: when these are done, all that was asked for is
  Event last_reader = {};              // the latest layer: after it and last_asked nobody reads dropped pages
  std::unordered_map<std::type_index, std::unique_ptr<Mechanism>> mechanisms = {};

  /// Submits an operation that may outlive the step; others can use device.submit().
  Event ask(LaneKind lane, Op op);
  /// LogicError where none were kept (Needs::last_queries).
  const PromptQueries& queries_of(SequenceId sequence) const;
  /// Device memory kept of its prompt that a method with these needs reads.
  std::size_t prompt_bytes(SequenceId sequence, const Needs& needs) const;
  /// Mechanism::forget, bytes_of and peer_bytes_of, over all mechanisms.
  void forget(SequenceId sequence);
  std::size_t bytes_of(SequenceId sequence, Tier tier) const;
  std::size_t peer_bytes_of(SequenceId sequence) const;
};

class Mechanism {
 public:
  explicit Mechanism(EngineParts& parts)
      : parts_(parts),
        forward_(parts.forward),
        device_(parts.device),
        pool_(parts.pool),
        kv_(parts.kv),
        attention_(parts.attention),
        draws_(parts.draws) {}
  virtual ~Mechanism() = default;
  Mechanism(const Mechanism&) = delete;
  Mechanism& operator=(const Mechanism&) = delete;

  /// The sequence is over.
  virtual void forget(SequenceId) {}
  /// Bytes kept of a sequence beside the KV store.
  virtual std::size_t bytes_of(SequenceId, Tier) const { return 0; }
  virtual std::size_t peer_bytes_of(SequenceId) const { return 0; }

 protected:
  Event ask(LaneKind lane, Op op) { return parts_.ask(lane, std::move(op)); }

  EngineParts& parts_;
  Forward& forward_;
  Device& device_;
  ThreadPool& pool_;
  KvStore& kv_;
  DecodeAttention& attention_;
  BatchDraws* draws_;
};

/// Mechanism with any number of T per sequence, by id.
template <class T>
class MechanismOf : public Mechanism {
 public:
  using Mechanism::Mechanism;
  void forget(SequenceId sequence) override { kept_.destroy_of(sequence); }
  std::size_t bytes_of(SequenceId sequence, Tier tier) const override { return kept_.bytes_of(sequence, tier); }

 protected:
  PerSequence<T> kept_;
};

}  // namespace tandem
