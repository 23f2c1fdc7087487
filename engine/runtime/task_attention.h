// Attention over host memory as tasks that the host's workers and the device pull from one queue (PulledTasks): what
// the method estimates of each head on the device, on to the control thread, the tasks, their partial results, the
// merge.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "engine/device/device.h"
#include "engine/kernels/thread_pool.h"
#include "engine/kv/kv_store.h"
#include "engine/kv/sequence_stores.h"
#include "engine/runtime/forward.h"
#include "engine/runtime/host_parts.h"
#include "engine/runtime/method.h"
#include "engine/runtime/workload.h"

namespace tandem {

class TaskAttention {
 public:
  /// Room that DecodeAttention has anyway.
  struct Room {
    DeviceBuffer rest_part, rest_lse;  // the plan's items: [row][Hq][D], [row][Hq]
    HostBuffer query, host_part, host_lse;
    DeviceBuffer landed_part, landed_lse;  // results of the tasks
    HostBuffer device_attended;            // [row] u64
    HostCounters counters;
  };

  TaskAttention(Forward& forward, Device& device, ThreadPool& pool, KvStore& kv, SequenceStores& stores,
                const ScoreProcess* process);

  /// Where attention over PulledTasks::first goes: [row][Hq][D] and [row][Hq].
  const DeviceBuffer& first_part();
  const DeviceBuffer& first_lse() const { return first_lse_; }
  /// After both parts of the device's own attention: estimates, tasks, merge into the layer's attention. Ends the open
  /// segment and begins another.
  void run(const LayerContext& context, const PulledTasks& tasks, const Room& room, Event query_on_host);

  /// Tasks that each side took of a row since the last call.
  struct Taken {
    std::uint64_t by[2] = {0, 0};  // by Side
  };
  std::vector<Taken> take_taken(std::uint32_t rows);

 private:
  struct Pulled;
  struct RowPages;

  void make_room(std::uint32_t width);
  Event estimate(const LayerContext& context, const HeadEstimate& heads, const Room& room);
  std::vector<PullTask> choose(const LayerContext& context, const PulledTasks& tasks, Event on_host);
  std::vector<Pulled> gather(const LayerContext& context, std::vector<PullTask> tasks) const;
  std::vector<Op> host_ops(const Pulled& work, const Room& room, Event query_on_host);
  Op device_op(const Pulled& work, const Room& room);
  void choose_blocks(BodyContext& ctx, const Pulled& work, const float* query, bool draw,
                     std::vector<std::vector<std::uint32_t>>& lists) const;
  HeadSpans spans_of(BodyContext& ctx, const Pulled& work, const std::vector<std::vector<std::uint32_t>>& lists,
                     std::vector<Access>& access, std::uint32_t& runs, std::uint32_t& blocks,
                     std::uint64_t& tokens) const;
  Event land(const LayerContext& context, const std::vector<Pulled>& work, const Room& room, Event host_done);
  void merge(const LayerContext& context, const std::vector<Pulled>& work, const Room& room, Event landed);

  Forward& forward_;
  Device& device_;
  ThreadPool& pool_;
  KvStore& kv_;
  SequenceStores& stores_;
  const ScoreProcess* process_;
  DeviceBuffer first_part_, first_lse_;
  DeviceBuffer estimates_;     // [row][Hq][width]
  HostBuffer host_estimates_;  //
  HostBuffer by_host_;         // [row][KV head] u8: the host took the task
  HostBuffer taken_;           // [side][max_batch] u64
};

}  // namespace tandem
