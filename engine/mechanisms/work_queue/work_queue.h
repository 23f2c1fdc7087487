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
#include "engine/runtime/copy_op.h"
#include "engine/runtime/finisher.h"
#include "engine/runtime/host_parts.h"
#include "engine/runtime/mechanism.h"

namespace tandem {

/// A row of a layer as a HeadEstimate sees it: its queries, and attention over what lies on the device in three parts.
/// Where only shapes are simulated the pointers are null.
struct HeadView {
  struct Part {
    const float *out = nullptr, *lse = nullptr;  // [Hq][D], [Hq]; of no tokens 0 and -infinity
  };
  std::uint32_t row = 0, layer = 0;
  std::uint32_t tokens = 0;        // the step's own included
  const float* query = nullptr;    // [Hq][D]
  std::array<Part, 2> apart = {};  // AttendPlan::apart
  Part rest = {};                  // the plan's items
};

/// What a method estimates of every query head on the device, once it has attended to what lies there.
struct HeadEstimate {
  std::uint32_t width = 1;  // values per head
  Cost cost;                // of all rows of a layer
  std::function<void(const HeadView&, float* out /*[Hq][width]*/)> estimate;
  /// Its twin on a GPU, of all rows of the batch at once; called when it is submitted. What the views name is device
  /// memory, and so is `out`; rows lie one after another in both. Empty: estimates are refused there.
  std::function<void(LaunchContext&, std::span<const HeadView>, float* out /*[row][Hq][width]*/)> launch;
};

/// Attention of one KV head over blocks in host memory: they are scored by the layer's true query, and each query head
/// attends to its own best ones, or, without own_only, to all that the group's heads have chosen.
struct PullTask {
  std::uint32_t row = 0, kv_head = 0;
  DigestRef digests;                  // in host memory
  std::vector<std::uint32_t> blocks;  // that each query head of the group attends; 0: none
  bool host = true, device = true;    // who may take it
  std::uint64_t work = 0;             // what it comes to, in units of PulledTasks::pace
  bool own_only = true;
};

/// Tasks that the host's workers and the device pull from one queue once the device's own attention is done. The device
/// reads digests and chosen blocks over the link. Results do not depend on who took a task.
struct PulledTasks {
  HeadEstimate heads;
  /// Policy, on the control thread: from estimates [row][Hq][width] to tasks in the order in which they are taken.
  std::function<std::vector<PullTask>(std::span<const float> estimates)> choose;
  Nanos choose_ns = 0;  // declared control time of that
  /// The host's workers: each takes tasks for itself, with its part of the threads; at most Device::kMaxWorkers. 0: one
  /// for every eight tasks, but two or more, and no more than the threads hold a group's query heads.
  std::uint32_t workers = 0;
  /// By Side, time of a unit of work, as far as is known: a side leaves a task that it would end later than the other
  /// one would end all that is left. 0: it takes what comes.
  std::array<double, 2> pace = {0, 0};
};

class WorkQueue : public Mechanism, public AttentionFinisher {
 public:
  using Mechanism::Mechanism;
  /// For a plan of this layer: its tasks.
  AttentionFinisher* with(PulledTasks tasks) {
    tasks_ = std::move(tasks);
    return this;
  }

  const PartialBuffers& apart(std::uint32_t i) override;
  void finish(const LayerContext& context, const Room& room, Event query_on_host) override;
  std::vector<Taken> take_taken(std::uint32_t rows) override;

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
  std::array<const PartialBuffers*, 3> on_device(const Room& room) const {
    return {&apart_[0], &apart_[1], &room.rest};
  }
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
  void choose_blocks(BodyContext& ctx, ThreadPool& pool, const Pulled& work, const float* query,
                     std::span<std::uint32_t* const> lists) const;
  static Sizes sizes_of(const Pulled& work, std::span<const Blocks> lists);
  HeadSpans spans_of(BodyContext& ctx, const Pulled& work, std::span<const Blocks> lists, std::vector<Access>& access,
                     Sizes& sizes) const;
  Sizes attend_pages(BodyContext& ctx, ThreadPool& pool, const Pulled& work, std::span<const Blocks> lists,
                     const float* query /*[row][Hq][D]*/, float* o, float* lse, std::vector<Access>& access) const;
  void copy_results(Copier& copier, std::span<const std::uint32_t> heads, const Room& room) const;
  Cost landing_cost(std::span<const std::uint32_t> heads, const Room& room) const;
  Event land(const LayerContext& context, const std::vector<Pulled>& work, const Room& room,
             std::vector<Event> host_done);
  void merge(const LayerContext& context, const std::vector<Pulled>& work, const Room& room, Event landed);
  /// What it costs without the tokens that it chooses, and what each of them costs.
  void launch_task(LaunchContext& ctx, const Pulled& work, const Room& room, const Cost& without, const Cost& token);

  PulledTasks tasks_;  // of the layer that is being planned
  std::array<PartialBuffers, 2> apart_;
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
