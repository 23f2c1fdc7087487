#include "engine/device/emu_device.h"

#include <condition_variable>
#include <deque>
#include <exception>
#include <fstream>
#include <mutex>
#include <thread>
#include <utility>

#include "engine/common/cpus.h"
#include "engine/common/error.h"
#include "engine/device/memory.h"
#include "engine/device/queue_share.h"
#include "engine/device/real_time_device.h"

namespace tandem {
namespace {

class EmuDevice final : public RealTimeDevice {
 public:
  explicit EmuDevice(EmuOptions options)
      : RealTimeDevice(options.host_worker_threads,
                       fmt::format("measured on {}, {} threads", cpu_model_name(), options.host_worker_threads)),
        pool_(0, "the emulated device"),
        state_(lanes_.size()) {
    try {
      for (const LaneInfo& info : lanes_)
        if (info.id != control_) {
          const bool computes = info.kind == LaneKind::device_compute || info.kind == LaneKind::side_compute ||
                                info.kind == LaneKind::peer_compute;
          threads_.emplace_back(
              [this, id = info.id, cpus = computes ? options.device_cpus : options.host_cpus] { run_lane(id, cpus); });
        }
    } catch (const std::system_error& error) {  // a limit on processes
      end_threads();
      throw_run_error("A thread for the {} lanes of --device emu cannot be started ({}).", lanes_.size(), error.what());
    }
  }

  ~EmuDevice() override { end_threads(); }

  Event submit(LaneId lane_id, Op op) override {
    const Nanos entered = now();
    check_lane(lane_id, op.name);
    std::unique_lock lock(mutex_);
    for (const Event& dependency : op.after) check_event(dependency, op.name);
    const Event event{lane_id, ++history_[lane_id].submitted};
    Task task;
    task.previous = lane_id == control_ ? last_control_ : last_of(lane_id);
    if (lane_id != control_) task.launch = append_control(launch_record(op, lane_id, entered), last_control_);
    task.record = append_record(op, lane_id);
    task.op = std::move(op);
    if (lane_id == control_) {
      last_control_ = task.record;
      execute(lock, lane_id, std::move(task));
    } else {
      state_[lane_id].queue.push_back(std::move(task));
      state_[lane_id].filled.notify_one();  // costs nothing where the lane is at work
    }
    return event;
  }

  /// One operation per lane, which takes tasks until none is left.
  std::vector<Event> submit_queued(std::span<const Puller> pullers, const QueuedTasks& bag) override {
    const std::shared_ptr<TaskQueue> queue = queue_of(bag, pullers);
    std::vector<Event> last(pullers.size());
    for (std::uint32_t p = 0; p < pullers.size(); ++p) {
      std::optional<Op> share = queue_share(bag, pullers[p], p, queue, BodyContext::Reach::all);
      if (share) last[p] = submit(pullers[p].lane, std::move(*share));
    }
    return last;
  }

  void host_wait(Event event) override {
    if (!event.valid()) return;
    const Nanos entered = now();
    std::unique_lock lock(mutex_);
    check_event(event, "host wait");
    wait_for(lock, event);
    append_wait(event, entered);
    rethrow_error_of(event);
  }

  void end_step(std::uint32_t step, Event token) override {
    host_wait(token);
    const std::lock_guard lock(mutex_);
    // The wait's own stamp closes the window, so that nothing lies between the record and the border.
    const Nanos end = token.valid() ? records_[static_cast<std::size_t>(last_control_)].end : now();
    steps_.push_back({step, window_begin_, end, last_control_});
    window_begin_ = end;
  }

  Trace drain() override {
    std::unique_lock lock(mutex_);
    for (const LaneInfo& info : lanes_) wait_for(lock, {info.id, history_[info.id].submitted});
    Trace trace;
    trace.clock = clock_name_;
    trace.lanes = lanes_;
    trace.records.assign(records_.begin(), records_.end());
    records_.clear();
    trace.steps = std::exchange(steps_, {});
    all_drained();
    last_control_ = -1;
    window_begin_ = now();
    rethrow_unreported();
    return trace;
  }

 protected:
  std::shared_ptr<Allocation> allocate(Memory memory, std::size_t bytes, std::string name) override {
    return pool_.allocate(memory, bytes, std::move(name));
  }

 private:
  void end_threads() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
      for (Waiter* waiter : waiting_) waiter->wake.notify_one();
      for (LaneState& state : state_) state.filled.notify_one();
    }
    for (std::thread& thread : threads_) thread.join();
  }

  struct Task {
    Op op;
    std::int64_t record = -1, launch = -1, previous = -1;
  };
  struct LaneState {
    std::deque<Task> queue;
    std::uint64_t completed = 0;     // event value
    std::condition_variable filled;  // the lane's thread sleeps here while the queue is empty
  };
  /// A thread that sleeps until an event is done.
  struct Waiter {
    Event event;
    std::condition_variable wake;
  };

  // All below: mutex_ is held.

  std::int64_t append_record(const Op& op, LaneId lane_id) {
    records_.push_back(trace_record(op, lane_id, op.cost));
    history_[lane_id].records.push_back(static_cast<std::int64_t>(records_.size()) - 1);
    return history_[lane_id].records.back();
  }

  std::int64_t append_control(const TraceRecord& record, std::int64_t critical) {
    records_.push_back(record);
    records_.back().critical = critical;
    return last_control_ = static_cast<std::int64_t>(records_.size()) - 1;
  }

  void append_wait(Event event, Nanos entered) {
    const std::int64_t awaited = record_of(event);
    const bool waited = awaited >= 0 && records_[static_cast<std::size_t>(awaited)].end > entered;
    append_control(wait_record(now()), waited ? awaited : last_control_);
  }

  bool done(Event event) const { return !event.valid() || state_[event.lane].completed >= event.value; }

  /// Returns early where the device is about to end.
  void wait_for(std::unique_lock<std::mutex>& lock, Event event) {
    if (done(event) || stopping_) return;
    Waiter waiter{event, {}};
    waiting_.push_back(&waiter);
    waiter.wake.wait(lock, [&] { return done(event) || stopping_; });
    std::erase(waiting_, &waiter);
  }

  // Waits for the task's events, runs its body unlocked, publishes the result.
  void execute(std::unique_lock<std::mutex>& lock, LaneId lane_id, Task task) {
    for (const Event& event : task.op.after) wait_for(lock, event);
    std::exception_ptr error = history_[lane_id].error;
    for (const Event& event : task.op.after)
      if (!error) error = error_of(event);
    const std::int64_t critical = last_arrival(records_, task.previous, task.op.after, task.launch,
                                               [this](Event event) { return record_of(event); });
    const bool run = task.op.body && !error && !stopping_;
    lock.unlock();

    bool failed = false;
    BodyContext context(task.op);
    context.without_access();  // nobody looks at them here
    const Nanos start = now();
    if (run) {
      try {
        task.op.body(context);
      } catch (...) {
        error = std::current_exception();
        failed = true;
      }
    }
    const Nanos end = now();
    task.op.body = nullptr;  // what it captured is released before anybody learns that it is done

    lock.lock();
    TraceRecord& record = records_[static_cast<std::size_t>(task.record)];
    record.start = start;
    record.end = end;
    record.critical = critical;
    if (context.settled_cost()) record.cost = context.cost();
    fail(lane_id, ++state_[lane_id].completed, error);
    if (failed && !unreported_) unreported_ = error;
    for (Waiter* waiter : waiting_)
      if (waiter->event.lane == lane_id && done(waiter->event)) waiter->wake.notify_one();
  }

  void run_lane(LaneId lane_id, const std::vector<int>& cpus) {
    if (!cpus.empty()) run_on(cpus);
    std::unique_lock lock(mutex_);
    LaneState& state = state_[lane_id];
    while (true) {
      state.filled.wait(lock, [&] { return stopping_ || !state.queue.empty(); });
      if (stopping_) return;
      Task task = std::move(state.queue.front());
      state.queue.pop_front();
      execute(lock, lane_id, std::move(task));
    }
  }

  MemoryPool pool_;

  // One lock for all lanes: an operation holds it for less than a microsecond, bodies run outside. A condition per
  // sleeping thread: waking all at every operation cost more than a small model's kernels.
  std::mutex mutex_;
  std::vector<Waiter*> waiting_;
  bool stopping_ = false;
  std::vector<LaneState> state_;
  std::deque<TraceRecord> records_;
  std::vector<StepMark> steps_;

  std::vector<std::thread> threads_;
};

}  // namespace

std::string cpu_model_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const std::size_t colon = line.find(':');
    if (line.starts_with("model name") && colon != std::string::npos && colon + 2 < line.size())
      return line.substr(colon + 2);
  }
  return "unknown CPU";
}

std::unique_ptr<Device> make_emu_device(EmuOptions options) {
  if (options.host_worker_threads == 0) throw_input_error("The emulated device needs at least one host worker thread.");
  for (const std::vector<int>* cpus : {&options.device_cpus, &options.host_cpus})
    for (const int cpu : *cpus)
      if (const OnCpus tried({cpu}); !tried.moved())
        throw_input_error("CPU {} is for lanes of the emulated device, but this process may not use it.", cpu);
  return std::make_unique<EmuDevice>(std::move(options));
}

}  // namespace tandem
