// What methods can ask for (Ops), carried out on the device's lanes.
#pragma once

#include <vector>

#include "engine/device/device.h"
#include "engine/kernels/thread_pool.h"
#include "engine/kv/digest_store.h"
#include "engine/kv/kv_store.h"
#include "engine/runtime/decode_attention.h"
#include "engine/runtime/method.h"

namespace tandem {

class EngineOps : public Ops {
 public:
  EngineOps(Device& device, ThreadPool& pool, KvStore& kv, DigestStore& digests, DecodeAttention& attention)
      : device_(device), pool_(pool), kv_(kv), digests_(digests), attention_(attention) {}

  void move_to_host(SequenceState& sequence, Range tokens) override;
  DigestRef build_digests(SequenceState& sequence, Range tokens, std::uint32_t block) override;
  void drop(SequenceState& sequence, Range tokens) override;
  SelectionRef score_topk(const LayerContext& context, const ScoreRequest& request) override;

  /// The last operation of each kind submitted outside of layers since the last call; "context ready" waits for them.
  std::vector<Event> take_pending();
  /// Names the event after which no operation reads dropped pages.
  void set_last_reader(Event event) { last_reader_ = event; }

 private:
  Device& device_;
  ThreadPool& pool_;
  KvStore& kv_;
  DigestStore& digests_;
  DecodeAttention& attention_;
  std::vector<Event> pending_;
  Event last_reader_;
};

}  // namespace tandem
