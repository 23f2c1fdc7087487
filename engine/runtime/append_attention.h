// Attention of a new prompt's tokens in a running session: exact, over all KV that the sequence still has, wherever a
// method has put it. The device attends to its pages causally, the host's threads to theirs, which are all older; both
// partial results are merged on the device, as in a decode step.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/device/device.h"
#include "engine/kernels/thread_pool.h"
#include "engine/kv/kv_store.h"
#include "engine/runtime/forward.h"
#include "engine/runtime/method.h"
#include "engine/runtime/partials.h"

namespace tandem {

class AppendAttention {
 public:
  /// `tokens`: of the new prompt, in chunks of at most `chunk`.
  AppendAttention(Forward& forward, Device& device, ThreadPool& pool, KvStore& kv, SequenceId sequence, Range tokens,
                  std::uint32_t chunk, const AppendRequest& wanted);

  /// Submits one layer of rows. Afterwards the forward pass's attention buffer holds them. Splits the open launch
  /// segment where the device waits for the host.
  void run(const Forward::Attending& what);

 private:
  struct Piece {  // adjacent tokens of one page
    std::uint32_t slot = 0, begin = 0, tokens = 0;
  };
  std::vector<Piece> pieces_of(std::uint32_t layer, Tier tier, std::uint32_t end) const;
  /// Pieces that begin in `of`, as far as they are in it. `pages`: of their tier.
  std::vector<KvSpan> spans_of(const char* pages, const std::vector<Piece>& pieces, std::uint32_t kv_head,
                               Range of) const;
  void attend_with_mass(BodyContext& ctx, std::uint32_t layer, std::uint32_t first, std::uint32_t rows,
                        const std::vector<Piece>& pieces, const DeviceBuffer& out) const;
  void submit_device(const Forward::Attending& what, const std::vector<Piece>& pieces, bool merges);
  Event submit_host(std::uint32_t layer, std::uint32_t done, std::uint32_t rows, std::vector<Piece> pieces,
                    Event query_ready);

  Forward& forward_;
  Device& device_;
  ThreadPool& pool_;
  KvStore& kv_;
  SequenceId sequence_;
  Range tokens_;
  std::optional<HostWeights> weights_;  // of the method (AppendRequest)
  OlderTokens* older_;
  PartialBuffers own_;
  HostRoom host_;
};

}  // namespace tandem
