#include "engine/device/cuda_device.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <deque>
#include <exception>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "engine/common/error.h"
#include "engine/device/emu_device.h"
#include "engine/device/launch_context.h"
#include "engine/device/memory.h"

namespace tandem {
namespace {

bool is_stream(LaneKind kind) {
  return kind == LaneKind::device_compute || kind == LaneKind::h2d || kind == LaneKind::recall ||
         kind == LaneKind::d2h || kind == LaneKind::side_compute;
}

/// Memory that nobody needs any more. It is given back when every lane is idle: giving it back waits for all streams,
/// one of which may wait for the very thread that lets go of a buffer.
class Graveyard {
 public:
  ~Graveyard() { sweep(); }
  void add(CudaPlace place, void* data, std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    dead_.push_back({place, data, bytes});
  }
  void sweep() {
    std::vector<Dead> dead;
    {
      const std::lock_guard lock(mutex_);
      dead.swap(dead_);
    }
    for (const Dead& one : dead) cuda_release(one.place, one.data, one.bytes);
  }

 private:
  struct Dead {
    CudaPlace place;
    void* data;
    std::size_t bytes;
  };
  std::mutex mutex_;
  std::vector<Dead> dead_;
};

std::shared_ptr<Allocation> allocate_cuda(const std::shared_ptr<Graveyard>& graveyard, BufferId id, Memory memory,
                                          std::size_t bytes, std::string name) {
  const CudaPlace place = memory == Memory::device ? CudaPlace::device : CudaPlace::pinned;
  auto allocation = std::make_shared<Allocation>();
  allocation->id = id;
  allocation->memory = memory;
  allocation->bytes = bytes;
  allocation->name = std::move(name);
  const std::size_t taken = std::max<std::size_t>(bytes, 1);
  try {
    allocation->data = static_cast<std::byte*>(cuda_allocate(place, taken));
  } catch (const CudaError& error) {
    throw_run_error("Buffer '{}' needs {} bytes of {} and does not get them. {} Lower {}, the batch or the length.",
                    allocation->name, bytes, memory == Memory::device ? "the GPU's memory" : "pinned memory",
                    error.what(), memory == Memory::device ? "--device-kv" : "--host-kv");
  }
  allocation->release = [place, taken, graveyard](Allocation& freed) { graveyard->add(place, freed.data, taken); };
  return allocation;
}

class CudaExecution final : public Device {
 public:
  explicit CudaExecution(const CudaOptions& options)
      : lanes_(make_lanes(options.host_worker_threads, {})),
        clock_name_(fmt::format("measured on {}", cuda_device().name)),
        epoch_(std::chrono::steady_clock::now()),
        uploads_(options.arena_bytes, true),
        scratch_(options.arena_bytes, false),
        counts_(lanes_.size() * kCountStride * sizeof(std::uint32_t)),
        state_(lanes_.size()) {
    control_ = lane(LaneKind::control);
    compute_ = lane(LaneKind::device_compute);
    std::fill_n(counts_.as<std::uint32_t>(), lanes_.size() * kCountStride, 0u);
    try {
      for (const LaneInfo& info : lanes_) {
        if (is_stream(info.kind)) state_[info.id].stream.emplace();
        if (info.kind == LaneKind::host_workers) threads_.emplace_back([this, id = info.id] { run_lane(id); });
      }
      anchor();
    } catch (const std::system_error& error) {  // a limit on processes
      end_threads();
      throw_run_error("A thread for a host lane of --device cuda cannot be started ({}).", error.what());
    } catch (...) {
      end_threads();
      throw;
    }
  }

  ~CudaExecution() override {
    drain_after_error();  // no stream is left waiting for a thread that has ended
    end_threads();
  }

  std::string clock_name() const override { return clock_name_; }
  bool simulated() const override { return false; }
  bool launches() const override { return true; }
  bool has_peer() const override { return false; }
  const std::vector<LaneInfo>& lanes() const override { return lanes_; }

  Nanos now() const override {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now() - epoch_).count();
  }

  Event submit(LaneId lane_id, Op op) override {
    const Nanos entered = now();
    TANDEM_CHECK(lane_id < lanes_.size(), "'{}' is submitted to lane {}, which does not exist", op.name, lane_id);
    for (const Event& dependency : op.after) check_event(dependency, op.name);
    if (lane_id == control_) return run_control(std::move(op));
    if (state_[lane_id].stream) return launch(lane_id, op, entered);
    if (lanes_[lane_id].kind == LaneKind::host_workers) return queue(lane_id, std::move(op), entered);
    throw_input_error("'{}' is work of a peer device, which --device cuda does not have: --device sim and emu do.",
                      op.name);
  }

  std::vector<Event> submit_bag(std::span<const Puller>, const TaskBag&) override {
    no_cuda_code("Tasks that host and device pull from one queue have");
  }

  void begin_segment(const char* name) override {
    TANDEM_CHECK(segment_ == nullptr, "segment '{}' begins inside segment '{}'", name, segment_);
    segment_ = name;
  }
  void end_segment() override {
    TANDEM_CHECK(segment_ != nullptr, "a segment ends that never began");
    segment_ = nullptr;
  }
  bool in_segment() const override { return segment_ != nullptr; }

  void host_wait(Event event) override {
    if (!event.valid()) return;
    check_event(event, "host wait");
    await(event);
    const Nanos seen = now();
    const std::int64_t awaited = record_of(event);
    append(control_,
           {.name = "host wait", .kind = Kind::wait, .lane = control_, .start = seen, .end = seen, .cost = {}},
           {.previous = last_control_, .after = {event}});
    last_control_ = static_cast<std::int64_t>(records_.size()) - 1;
    if (awaited >= 0)
      seen_[static_cast<std::size_t>(awaited)] = std::min(seen_[static_cast<std::size_t>(awaited)], seen);
    rethrow();
  }

  void end_step(std::uint32_t step, Event token) override {
    host_wait(token);
    // The wait's own stamp closes the window, so that nothing lies between the record and the border.
    const Nanos end = token.valid() ? records_[static_cast<std::size_t>(last_control_)].end : now();
    steps_.push_back({step, window_begin_, end, last_control_});
    window_begin_ = end;
    anchors_.push_back(take_mark());
    anchors_.back()->record(*state_[compute_].stream);
  }

  Trace drain() override {
    std::exception_ptr failed;
    for (const LaneInfo& info : lanes_) {
      try {
        await({info.id, state_[info.id].submitted});
      } catch (...) {  // a stream's: every later call reports it too
        if (!failed) failed = std::current_exception();
      }
    }
    Trace trace;
    if (!failed) {
      trace = collect();
      failed = std::exchange(error_, nullptr);
    }
    forget();
    if (failed) std::rethrow_exception(failed);
    return trace;
  }

 protected:
  void host_access(const Access&) override {}
  std::shared_ptr<Allocation> allocate(Memory memory, std::size_t bytes, std::string name) override {
    return allocate_cuda(graveyard_, ++buffers_, memory, bytes, std::move(name));
  }

 private:
  /// What a record's critical one is chosen from when all times are known.
  struct Links {
    std::int64_t previous = -1, launch = -1;
    std::vector<Event> after;
  };
  /// Of an operation of a device lane.
  struct Marks {
    CudaMark* begin = nullptr;
    CudaMark* end = nullptr;
    std::size_t anchor = 0;  // the last one before it
  };
  struct Task {
    Op op;
    std::int64_t record = -1;
    std::vector<const CudaMark*> marks;  // of the operations of device lanes that it waits for
    std::vector<Event> events;           // those of other host lanes
  };
  struct LaneState {
    std::uint64_t submitted = 0, drained = 0;
    std::vector<std::int64_t> records;  // of the operations since the last drain
    std::optional<OwnedStream> stream;  // of a device lane,
    std::vector<Marks> marks;           // and of its operations since the last drain
    std::vector<std::uint64_t> waited;  // by lane: the stream waits for that operation already
    std::deque<Task> queue;             // of a host lane
    std::condition_variable filled;
  };
  /// Counts of two lanes do not share a cache line.
  static constexpr std::size_t kCountStride = 16;

  std::uint32_t* count_of(LaneId lane_id) const { return counts_.as<std::uint32_t>() + lane_id * kCountStride; }
  std::uint32_t completed(LaneId lane_id) const {
    return std::atomic_ref<std::uint32_t>(*count_of(lane_id)).load(std::memory_order_acquire);
  }
  /// Whether a host lane has completed its `value`-th operation; counts in pinned memory have 32 bits.
  bool reached(LaneId lane_id, std::uint64_t value) const {
    return static_cast<std::int32_t>(completed(lane_id) - static_cast<std::uint32_t>(value)) >= 0;
  }
  bool is_host(LaneId lane_id) const { return lanes_[lane_id].kind == LaneKind::host_workers; }

  void check_event(Event event, const char* name) const {
    TANDEM_CHECK(!event.valid() || (event.lane < lanes_.size() && event.value <= state_[event.lane].submitted),
                 "'{}' waits for operation {} of lane {}, which was never submitted", name, event.value, event.lane);
  }
  std::int64_t record_of(Event event) const {
    if (!event.valid()) return -1;
    const LaneState& state = state_[event.lane];
    return event.value <= state.drained ? -1 : state.records[event.value - state.drained - 1];
  }
  /// nullptr: done before the last drain.
  const CudaMark* mark_of(Event event) const {
    const LaneState& state = state_[event.lane];
    return event.value <= state.drained ? nullptr : state.marks[event.value - state.drained - 1].end;
  }
  CudaMark* take_mark() {
    if (free_.empty()) {
      all_marks_.push_back(std::make_unique<CudaMark>());
      return all_marks_.back().get();
    }
    CudaMark* const mark = free_.back();
    free_.pop_back();
    return mark;
  }

  std::int64_t append(LaneId lane_id, const TraceRecord& record, Links links, bool operation = false) {
    const std::lock_guard lock(mutex_);
    records_.push_back(record);
    links_.push_back(std::move(links));
    seen_.push_back(std::numeric_limits<Nanos>::max());
    const auto index = static_cast<std::int64_t>(records_.size()) - 1;
    if (operation) state_[lane_id].records.push_back(index);
    return index;
  }
  std::int64_t append_operation(LaneId lane_id, const Op& op, std::int64_t launch) {
    const std::vector<std::int64_t>& own = state_[lane_id].records;
    return append(
        lane_id,
        {.name = op.name, .kind = op.kind, .cause = op.cause, .lane = lane_id, .layer = op.layer, .cost = op.cost},
        {lane_id == control_ ? last_control_
         : own.empty()       ? -1
                             : own.back(),
         launch, op.after},
        true);
  }
  std::int64_t append_launch(const char* name, const Op& op, Nanos entered) {
    append(control_,
           {.name = name,
            .kind = Kind::control,
            .cause = Cause::launch,
            .lane = control_,
            .layer = op.layer,
            .start = entered,
            .end = now(),
            .cost = {}},
           {.previous = last_control_, .after = {}});
    return last_control_ = static_cast<std::int64_t>(records_.size()) - 1;
  }

  Event run_control(Op op) {
    for (const Event& event : op.after) {
      if (event.valid()) await(event);
    }
    const std::int64_t record = append_operation(control_, op, -1);
    last_control_ = record;
    BodyContext context(op, true);
    const Nanos start = now();
    if (op.body) op.body(context);
    TraceRecord& own = records_[static_cast<std::size_t>(record)];
    own.start = start;
    own.end = now();
    if (context.settled_cost()) own.cost = context.cost();
    rethrow();
    return {control_, ++state_[control_].submitted};
  }

  Event launch(LaneId lane_id, Op& op, Nanos entered) {
    LaneState& state = state_[lane_id];
    if (op.body && !op.launch) no_cuda_code(fmt::format("Operation '{}' has", op.name));
    state.waited.resize(lanes_.size());
    for (const Event& event : op.after) {
      if (!event.valid() || event.lane == lane_id || event.lane == control_) continue;
      if (state.waited[event.lane] >= event.value) continue;
      state.waited[event.lane] = event.value;
      if (is_host(event.lane)) {
        cuda_await_count(*state.stream, count_of(event.lane), static_cast<std::uint32_t>(event.value));
      } else if (const CudaMark* const mark = mark_of(event)) {
        mark->hold(*state.stream);
      }
    }
    const Marks marks{take_mark(), take_mark(), anchors_.size() - 1};
    marks.begin->record(*state.stream);
    if (op.launch) {
      LaunchContext context(op, *state.stream, uploads_, scratch_);
      op.launch(context);
    }
    marks.end->record(*state.stream);
    uploads_.launched(*marks.end);
    scratch_.launched(*marks.end);
    const std::int64_t launched = append_launch("launch", op, entered);
    append_operation(lane_id, op, launched);
    state.marks.push_back(marks);
    return {lane_id, ++state.submitted};
  }

  Event queue(LaneId lane_id, Op op, Nanos entered) {
    Task task;
    for (const Event& event : op.after) {
      if (!event.valid() || event.lane == control_ || event.lane == lane_id) continue;
      if (is_host(event.lane)) {
        task.events.push_back(event);
      } else if (const CudaMark* const mark = mark_of(event)) {
        task.marks.push_back(mark);
      }
    }
    const std::int64_t submitted = append_launch("submit", op, entered);
    task.record = append_operation(lane_id, op, submitted);
    task.op = std::move(op);
    LaneState& state = state_[lane_id];
    const std::lock_guard lock(mutex_);
    state.queue.push_back(std::move(task));
    state.filled.notify_one();
    return {lane_id, ++state.submitted};
  }

  /// Of the control thread. Throws what went wrong in a stream.
  void await(Event event) {
    if (!event.valid()) return;
    if (is_host(event.lane)) {
      std::unique_lock lock(mutex_);
      done_.wait(lock, [&] { return reached(event.lane, event.value); });
    } else if (event.lane != control_) {
      if (const CudaMark* const mark = mark_of(event)) mark->wait();
    }
  }

  void rethrow() {
    std::unique_lock lock(mutex_);
    if (!error_) return;
    const std::exception_ptr error = std::exchange(error_, nullptr);
    lock.unlock();
    std::rethrow_exception(error);
  }

  void run_lane(LaneId lane_id) {
    std::unique_lock lock(mutex_);
    LaneState& state = state_[lane_id];
    while (true) {
      state.filled.wait(lock, [&] { return stopping_ || !state.queue.empty(); });
      if (state.queue.empty()) return;
      Task task = std::move(state.queue.front());
      state.queue.pop_front();
      done_.wait(lock, [&] {
        return std::all_of(task.events.begin(), task.events.end(),
                           [&](const Event& event) { return reached(event.lane, event.value); });
      });
      const bool run = task.op.body && !failed_;
      lock.unlock();
      BodyContext context(task.op, true);
      std::exception_ptr error;
      Nanos start = 0;
      try {
        for (const CudaMark* mark : task.marks) mark->wait();
        start = now();
        if (run) task.op.body(context);
      } catch (...) {
        error = std::current_exception();
      }
      const Nanos end = now();
      task.op.body = nullptr;  // what it captured is released before anybody learns that it is done
      lock.lock();
      TraceRecord& record = records_[static_cast<std::size_t>(task.record)];
      record.start = start == 0 ? end : start;
      record.end = end;
      if (context.settled_cost()) record.cost = context.cost();
      if (error && !failed_) {
        error_ = error;
        failed_ = true;
      }
      std::atomic_ref<std::uint32_t>(*count_of(lane_id)).fetch_add(1, std::memory_order_release);
      done_.notify_all();
    }
  }

  void end_threads() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
      for (LaneState& state : state_) state.filled.notify_one();
    }
    for (std::thread& thread : threads_) thread.join();
  }

  /// Puts a mark where the control thread's clock is known: half way between the two moments that the device must have
  /// reached it between, the closest of some tries. Every stream is idle.
  void anchor() {
    constexpr int kTries = 8;
    CudaMark* const best = take_mark();
    Nanos shortest = std::numeric_limits<Nanos>::max();
    for (int i = 0; i < kTries; ++i) {
      CudaMark mark;
      const Nanos before = now();
      mark.record(*state_[compute_].stream);
      mark.wait();
      const Nanos after = now();
      if (after - before >= shortest) continue;
      shortest = after - before;
      anchor_time_ = before + shortest / 2;
      *best = std::move(mark);
    }
    anchors_ = {best};
    window_begin_ = now();
  }

  /// The trace since the last drain, with the times of device lanes and critical paths. All lanes are done.
  Trace collect() {
    std::vector<Nanos> anchor_times = {anchor_time_};
    const auto nanos = [](double seconds) { return static_cast<Nanos>(std::llround(seconds * 1e9)); };
    for (std::size_t i = 1; i < anchors_.size(); ++i)
      anchor_times.push_back(anchor_times.back() + nanos(anchors_[i]->seconds_after(*anchors_[i - 1])));
    for (const LaneInfo& info : lanes_) {
      const LaneState& state = state_[info.id];
      for (std::size_t i = 0; i < state.marks.size(); ++i) {
        const Marks& marks = state.marks[i];
        const auto index = static_cast<std::size_t>(state.records[i]);
        TraceRecord& record = records_[index];
        const auto time = [&](const CudaMark& mark) {
          return anchor_times[marks.anchor] + nanos(mark.seconds_after(*anchors_[marks.anchor]));
        };
        // The two clocks are apart by microseconds at most: nothing ends after the host has seen its end, nor starts
        // before it was submitted.
        const TraceRecord& launch = records_[static_cast<std::size_t>(links_[index].launch)];
        record.end = std::max(std::min(time(*marks.end), seen_[index]), launch.start);
        record.start = std::clamp(time(*marks.begin), launch.start, record.end);
      }
    }
    Trace trace;
    trace.clock = clock_name_;
    trace.lanes = lanes_;
    trace.steps = std::exchange(steps_, {});
    for (std::size_t i = 0; i < records_.size(); ++i) records_[i].critical = latest(links_[i]);
    trace.records.assign(records_.begin(), records_.end());
    return trace;
  }

  // Of equals the lane's predecessor comes first, then the edges, then the launch, as on `sim`.
  std::int64_t latest(const Links& links) const {
    std::int64_t best = -1;
    const auto consider = [&](std::int64_t index) {
      if (index < 0) return;
      if (best < 0 || records_[static_cast<std::size_t>(index)].end > records_[static_cast<std::size_t>(best)].end)
        best = index;
    };
    consider(links.previous);
    for (const Event& event : links.after) consider(record_of(event));
    consider(links.launch);
    return best;
  }

  void forget() {
    records_.clear();
    links_.clear();
    seen_.clear();
    steps_.clear();
    last_control_ = -1;
    error_ = nullptr;
    failed_ = false;
    for (LaneState& state : state_) {
      state.drained = state.submitted;
      state.records.clear();
      state.marks.clear();
    }
    uploads_.all_done();
    scratch_.all_done();
    graveyard_->sweep();
    free_.clear();
    for (const auto& mark : all_marks_) free_.push_back(mark.get());
    anchor();
  }

  std::vector<LaneInfo> lanes_;
  std::string clock_name_;
  std::chrono::steady_clock::time_point epoch_;
  LaneId control_ = 0, compute_ = 0;
  const char* segment_ = nullptr;
  BufferId buffers_ = 0;
  std::shared_ptr<Graveyard> graveyard_ = std::make_shared<Graveyard>();  // buffers may outlive the device
  LaunchArena uploads_, scratch_;
  PinnedMemory counts_;  // by lane: operations of host lanes that are done, for streams to wait for

  // Marks live as long as the device; those that are not free belong to operations since the last drain.
  std::vector<std::unique_ptr<CudaMark>> all_marks_;
  std::vector<CudaMark*> free_;
  std::vector<CudaMark*> anchors_;  // one at the last drain and one behind every step since
  Nanos anchor_time_ = 0;           // of the first

  std::mutex mutex_;  // of what host lanes share with the control thread, which alone appends records
  std::condition_variable done_;
  bool stopping_ = false, failed_ = false;
  std::exception_ptr error_;
  std::vector<LaneState> state_;
  std::deque<TraceRecord> records_;
  std::deque<Links> links_;  // of each record
  std::deque<Nanos> seen_;   // of each record: when the control thread knew that it was done
  std::vector<StepMark> steps_;
  Nanos window_begin_ = 0;
  std::int64_t last_control_ = -1;

  std::vector<std::thread> threads_;
};

}  // namespace

std::unique_ptr<Device> make_cuda_device(CudaOptions options) {
  if (!cuda_missing().empty()) throw InputError(cuda_missing());
  if (options.host_worker_threads == 0) throw_input_error("The CUDA device needs at least one host worker thread.");
  return std::make_unique<CudaExecution>(options);
}

}  // namespace tandem
