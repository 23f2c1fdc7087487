// Attention over host memory as tasks that the host's workers and the device pull from one queue (PulledTasks): what
// the method estimates of each head on the device, on to the control thread, the tasks, their partial results, the
// merge.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "engine/device/device.h"
#include "engine/device/launch_context.h"
#include "engine/kernels/thread_pool.h"
#include "engine/kv/kv_store.h"
#include "engine/kv/link_pieces.h"
#include "engine/kv/sequence_stores.h"
#include "engine/runtime/batch_draws.h"
#include "engine/runtime/forward.h"
#include "engine/runtime/host_parts.h"
#include "engine/runtime/plan.h"

namespace tandem {

class TaskAttention {
 public:
  struct Partial {
    DeviceBuffer out, lse;  // [row][Hq][D], [row][Hq]
  };
  /// Room that DecodeAttention has anyway.
  struct Room {
    Partial rest;  // of the plan's items
    HostBuffer query, host_part, host_lse;
    DeviceBuffer landed_part, landed_lse;  // results of the tasks
    HostBuffer device_attended;            // [row] u64
  };

  TaskAttention(Forward& forward, Device& device, ThreadPool& pool, KvStore& kv, SequenceStores& stores,
                BatchDraws* draws);

  /// Where attention over PulledTasks::apart goes.
  const Partial& apart(std::uint32_t i);
  /// After all parts of the device's own attention: estimates, tasks, merge into the layer's attention. Ends the open
  /// segment and begins another.
  void run(const LayerContext& context, const PulledTasks& tasks, const Room& room, Event query_on_host);

  /// What each side took of a row since the last call.
  struct Taken {
    std::uint64_t by[2] = {0, 0};            // tasks, by Side
    std::vector<std::uint64_t> host_tokens;  // that the host attended, by layer; summed over KV heads
  };
  std::vector<Taken> take_taken(std::uint32_t rows);

 private:
  /// Pages of a row's layer in host memory, shared by its tasks.
  struct RowPages {
    std::uint32_t id = 0;  // of the digest index that they belong to
    std::uint32_t row = 0;
    DigestIndex index;                 // by value: one that grows gets other memory
    std::vector<std::uint32_t> slots;  // from the index's first token
    std::vector<Access> access;        // reads, of all heads
    std::vector<Event> filled;
  };
  /// A task with what it comes to.
  struct Pulled {
    PullTask task;
    std::shared_ptr<const RowPages> pages;
    ScorePlace place;
    std::uint32_t layer = 0;
    std::uint32_t blocks = 0;  // that have a digest
    std::uint32_t most = 0;    // that are attended
    std::uint64_t digest_bytes() const { return std::uint64_t{2} * blocks * pages->index.shape.vector_bytes(); }
  };

  /// An access to a buffer of rows, of one KV head.
  static Access of_head(Access access, std::uint32_t kv_head) {
    access.extent.heads = {kv_head, kv_head + 1};
    return access;
  }
  /// What is attended on the device beside tasks, in the order in which it is merged.
  std::array<const Partial*, 3> on_device(const Room& room) const { return {&apart_[0], &apart_[1], &room.rest}; }
  void make_room(std::uint32_t width);
  /// With the layer's queries and partial results.
  HeadView seen(const BodyContext& ctx, HeadView view, const Room& room) const;
  Event estimate(const LayerContext& context, const HeadEstimate& heads, const Room& room);
  std::vector<PullTask> choose(const LayerContext& context, const PulledTasks& tasks, Event on_host);
  std::vector<Pulled> gather(const LayerContext& context, std::vector<PullTask> tasks) const;
  /// The host's workers, and the threads that they share evenly.
  struct Crew {
    std::vector<LaneId> lanes;
    std::uint32_t threads = 1;
    std::uint32_t of(std::uint32_t worker) const {
      const auto workers = static_cast<std::uint32_t>(lanes.size());
      return threads / workers + (worker < threads % workers ? 1 : 0);
    }
  };
  Crew crew(const LayerContext& context, const PulledTasks& tasks, std::size_t host_tasks);
  /// For the bodies of one worker: its own where they run at the same time.
  ThreadPool& pool_of(std::uint32_t worker, const Crew& crew);
  typedef std::span<const std::uint32_t> Blocks;  // that a query head chose, in ascending order
  /// A task reads this many runs of adjacent blocks, pieces over the link, and tokens.
  struct Sizes {
    std::uint32_t runs = 0, pieces = 0;
    std::uint64_t tokens = 0;
  };
  std::vector<Op> host_ops(const std::shared_ptr<const Pulled>& work, const std::shared_ptr<const Room>& room,
                           Event query_on_host, std::uint32_t threads, ThreadPool& pool);
  Op device_op(const std::shared_ptr<const Pulled>& work, const std::shared_ptr<const Room>& room);
  void choose_blocks(BodyContext& ctx, ThreadPool& pool, const Pulled& work, const float* query, bool draw,
                     std::span<std::uint32_t* const> lists) const;
  static Sizes sizes_of(const Pulled& work, std::span<const Blocks> lists);
  HeadSpans spans_of(BodyContext& ctx, const Pulled& work, std::span<const Blocks> lists, std::vector<Access>& access,
                     Sizes& sizes) const;
  std::vector<HeadSpans> resolve(BodyContext& ctx, const Pulled& work, std::span<const Blocks> lists, bool attends,
                                 const std::vector<Access>& own, std::vector<Access>& access, Sizes& sizes) const;
  /// A task of the host, whose result goes to the device.
  struct HostResult {
    std::uint32_t row = 0, kv_head = 0;
  };
  Event land(const LayerContext& context, const std::vector<Pulled>& work, const Room& room,
             std::vector<Event> host_done);
  void merge(const LayerContext& context, const std::vector<Pulled>& work, const Room& room, Event landed);
  // On a GPU (task_launch.cc):
  void launch_estimate(LaunchContext& ctx, std::vector<HeadView> views, const HeadEstimate& heads,
                       const Room& room) const;
  /// What it costs without the tokens that it chooses, and what each of them costs.
  void launch_task(LaunchContext& ctx, const Pulled& work, const Room& room, const Cost& without, const Cost& token);
  void launch_landing(LaunchContext& ctx, std::span<const HostResult> results, const Room& room) const;
  void launch_merge(LaunchContext& ctx, const std::vector<bool>& has_task, const Room& room) const;

  Forward& forward_;
  Device& device_;
  ThreadPool& pool_;
  KvStore& kv_;
  SequenceStores& stores_;
  BatchDraws* draws_;
  std::array<Partial, 2> apart_;
  DeviceBuffer estimates_;      // [row][Hq][width]
  HostBuffer host_estimates_;   //
  HostBuffer by_host_;          // [row][KV head] u8: the host took the task
  HostBuffer host_tokens_;      // [row][layer][KV head] u64: attended by a task of the host; 0: there was none
  HostBuffer device_tasks_;     // [row] u64
  std::vector<bool> launched_;  // [row][KV head] on a GPU: the layer's tasks that it took
  /// By worker and its threads: layers differ in how many workers they have, and so in what each gets.
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::unique_ptr<ThreadPool>> pools_;
};

}  // namespace tandem
