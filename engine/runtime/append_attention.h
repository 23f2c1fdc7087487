// Attention of a new prompt's tokens in a running session: exact, over all KV that the sequence still has, wherever a
// method has put it. The device attends to its pages causally, the host's threads to theirs, which are all older; both
// partial results are merged on the device, as in a decode step.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/device/device.h"
#include "engine/kernels/thread_pool.h"
#include "engine/kv/attention_average.h"
#include "engine/kv/heavy_set.h"
#include "engine/kv/kv_store.h"
#include "engine/runtime/forward.h"
#include "engine/runtime/plan.h"

namespace tandem {

class AppendAttention {
 public:
  /// `tokens`: of the new prompt, in chunks of at most `chunk`. `average` may be nullptr; else the mean weights that
  /// the host's tokens have under the new prompt's queries, in a softmax over these tokens, take the place of what
  /// AttentionAverage::left held.
  /// `heavy` may be nullptr; else it stands for all tokens before the new prompt, and takes in the weights of the new
  /// prompt's queries: its own tokens in their mass, those of the new tokens in HeavySet::arriving.
  AppendAttention(Forward& forward, Device& device, ThreadPool& pool, KvStore& kv, SequenceId sequence, Range tokens,
                  std::uint32_t chunk, AttentionAverage* average, HeavySet* heavy);

  /// Submits one layer of rows first .. first + rows - 1, whose q and KV `query_ready` writes. Afterwards the forward
  /// pass's attention buffer holds them. Splits the open launch segment where the device waits for the host.
  void run(std::uint32_t layer, std::uint32_t first, std::uint32_t rows, Event query_ready);

 private:
  struct Piece {  // adjacent tokens of one page
    std::uint32_t slot = 0, begin = 0, tokens = 0;
  };
  std::vector<Piece> pieces_of(std::uint32_t layer, Tier tier, std::uint32_t end) const;
  void attend_with_mass(BodyContext& ctx, std::uint32_t layer, std::uint32_t first, std::uint32_t rows,
                        const std::vector<Piece>& pieces, const DeviceBuffer& out) const;
  void submit_device(std::uint32_t layer, std::uint32_t first, std::uint32_t rows, const std::vector<Piece>& pieces,
                     bool merges);
  Event submit_host(std::uint32_t layer, std::uint32_t done, std::uint32_t rows, std::vector<Piece> pieces,
                    Event query_ready);
  void submit_merge(std::uint32_t layer, std::uint32_t rows, Event host_done);

  // The launches of these (append_launch.cc).
  void launch_device(LaunchContext& ctx, std::uint32_t first, std::uint32_t rows, const std::vector<Piece>& pieces,
                     const DeviceBuffer& out) const;
  void launch_merge(LaunchContext& ctx, std::uint32_t rows) const;

  Forward& forward_;
  Device& device_;
  ThreadPool& pool_;
  KvStore& kv_;
  SequenceId sequence_;
  Range tokens_;
  AttentionAverage* average_;
  HeavySet* heavy_;
  DeviceBuffer device_part_, device_lse_, landed_part_, landed_lse_;  // [row][Hq][D], [row][Hq]
  HostBuffer host_query_, host_part_, host_lse_;
};

}  // namespace tandem
