#include "engine/device/cuda_device.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "engine/common/error.h"
#include "engine/device/cuda_handshake.h"
#include "engine/device/cuda_host_lanes.h"
#include "engine/device/cuda_memory.h"
#include "engine/device/cuda_trace.h"
#include "engine/device/emu_device.h"
#include "engine/device/launch_context.h"
#include "engine/device/queue_share.h"
#include "engine/device/real_time_device.h"

namespace tandem {
namespace {

std::exception_ptr thrown_by(const auto& work) {
  try {
    work();
  } catch (...) {
    return std::current_exception();
  }
  return nullptr;
}

bool is_stream(LaneKind kind) {
  return kind == LaneKind::device_compute || kind == LaneKind::h2d || kind == LaneKind::recall ||
         kind == LaneKind::d2h || kind == LaneKind::side_compute;
}

class CudaExecution final : public RealTimeDevice {
 public:
  explicit CudaExecution(const CudaOptions& options)
      // The host is part of it: the control thread launches every kernel, and most methods attend or choose there.
      : RealTimeDevice(options.host_worker_threads,
                       fmt::format("measured on {}, host {}, {} threads", cuda_device().name, cpu_model_name(),
                                   options.host_worker_threads)),
        launched_(options.launched),
        compute_(lane(LaneKind::device_compute)),
        uploads_(options.upload_bytes),
        arrivals_(lanes_.size()),
        state_(lanes_.size()),
        host_(
            lanes_, trace_, [this] { return now(); }, [this] { return failure_of_streams(); }) {
    for (const LaneInfo& info : lanes_)
      if (is_stream(info.kind)) state_[info.id].stream = std::make_unique<OwnedStream>();
    start_trace();
  }

  ~CudaExecution() override { drain_after_error(); }  // no stream is left waiting for a thread that has ended

  std::string gpu_name() const override { return cuda_device().name; }
  bool is_gpu() const override { return true; }
  bool has_peer() const override { return false; }

  Event submit(LaneId lane_id, Op op) override {
    const Nanos entered = now();
    check_lane(lane_id, op.name);
    for (const Event& dependency : op.after) check_event(dependency, op.name);
    if (lane_id == control_) return run_control(op);
    if (state_[lane_id].stream) return launch(lane_id, op, entered);
    if (is_host(lane_id)) return queue(lane_id, std::move(op), entered);
    throw_input_error("'{}' is work of a peer device, which --device cuda does not have: --device sim and emu do.",
                      op.name);
  }

  /// Host lanes take tasks for themselves, the control thread takes them for the stream. What it throws leaves nobody
  /// waiting: host lanes that have begun go on until the queue is empty.
  std::vector<Event> submit_queued(std::span<const Puller> pullers, const QueuedTasks& bag) override {
    const std::shared_ptr<TaskQueue> queue = queue_of(bag, pullers);
    std::vector<Event> last(pullers.size());
    const Puller* device = nullptr;
    for (std::uint32_t p = 0; p < pullers.size(); ++p) {
      if (!is_host(pullers[p].lane)) {
        TANDEM_CHECK(device == nullptr, "two device lanes pull from one bag");
        device = &pullers[p];
        continue;
      }
      std::optional<Op> share = queue_share(bag, pullers[p], p, queue, BodyContext::Reach::host);
      if (share) last[p] = submit(pullers[p].lane, std::move(*share));
    }
    if (device == nullptr) return last;
    const auto p = static_cast<std::uint32_t>(device - pullers.data());
    while (const auto task = queue->pull(device->side)) {
      const Event before = last[p];
      for (Op& op : bag.ops(*task, p)) {
        check_waits(declared_waits(bag, device->side), op);
        last[p] = submit(device->lane, std::move(op));
      }
      // One task runs and one is ready behind it: who takes more takes what the host could do sooner.
      await(before);
    }
    return last;
  }

  void host_wait(Event event) override { host_wait(event, Waiting::looks); }

  /// A thread that looks at the device for nearly a whole step takes a CPU from the host's attention; inside a step
  /// nothing of that is at work, and to sleep costs some 10 us more.
  enum class Waiting : std::uint8_t { looks, sleeps };
  void host_wait(Event event, Waiting how) {
    if (!event.valid()) return;
    check_event(event, "host wait");
    await(event, how);
    const Nanos seen = now();
    if (const std::int64_t awaited = record_of(event); awaited >= 0) trace_.seen(awaited, seen);
    last_control_ = trace_.append(wait_record(seen), last_control_, {event});
    rethrow();
  }

  void end_step(std::uint32_t step, Event token) override {
    host_wait(token, Waiting::sleeps);
    // The wait's own stamp closes the window, so that nothing lies between the record and the border.
    const Nanos end = token.valid() ? trace_.record(last_control_).end : now();
    CudaMark* const anchor = marks_.take();
    anchor->record(*state_[compute_].stream);
    trace_.end_step({step, window_begin_, end, last_control_}, anchor);
    window_begin_ = end;
  }

  Trace drain() override {
    std::exception_ptr failed;
    const auto keep_first = [&](const auto& work) {
      if (const std::exception_ptr thrown = thrown_by(work); thrown && !failed) failed = thrown;
    };
    for (const LaneInfo& info : lanes_)
      if (is_host(info.id)) await({info.id, history_[info.id].submitted});
    for (const LaneState& state : state_) {
      if (state.stream) keep_first([&] { cuda_wait(*state.stream); });
    }
    Trace trace;
    if (!failed) {
      keep_first([&] {
        trace = trace_.collect(anchor(), [this](Event event) { return record_of(event); });
        trace.clock = clock_name_;
        trace.lanes = lanes_;
      });
    }
    if (const std::exception_ptr error = host_.take_error(); error && !failed) failed = error;
    host_.resume();
    forget();
    keep_first([&] { start_trace(); });
    if (failed) std::rethrow_exception(failed);
    return trace;
  }

 protected:
  std::shared_ptr<Allocation> allocate(Memory memory, std::size_t bytes, std::string name) override {
    const bool idle =
        std::ranges::all_of(history_, [](const LaneHistory& lane) { return lane.submitted == lane.drained; });
    if (idle) memory_.sweep();
    return memory_.allocate(memory, bytes, std::move(name));
  }

 private:
  struct LaneState {
    std::vector<std::uint64_t> waited;  // by lane: the latest operation that one of this lane waits for
    // Of a device lane:
    std::unique_ptr<OwnedStream> stream;
    std::vector<const CudaMark*> ends;  // of the operations since the last drain
    LaunchScratch scratch;
  };

  std::exception_ptr failure_of_streams() const {
    for (const LaneState& state : state_)
      if (state.stream && cuda_failed(*state.stream)) return thrown_by([&] { cuda_wait(*state.stream); });
    return nullptr;
  }
  bool is_host(LaneId lane_id) const { return lanes_[lane_id].kind == LaneKind::host_workers; }

  /// nullptr: done before the last drain.
  const CudaMark* end_of(Event event) const {
    const std::uint64_t drained = history_[event.lane].drained;
    return event.value <= drained ? nullptr : state_[event.lane].ends[event.value - drained - 1];
  }
  /// Whether an operation of the lane is to wait for the event: not where one before it does, since lanes are in order.
  bool waits_anew(LaneId lane_id, Event event) {
    if (!event.valid() || event.lane == lane_id || event.lane == control_) return false;
    std::vector<std::uint64_t>& waited = state_[lane_id].waited;
    waited.resize(lanes_.size());
    if (waited[event.lane] >= event.value) return false;
    waited[event.lane] = event.value;
    return true;
  }

  Event append_event(LaneId lane_id, std::int64_t record) {
    history_[lane_id].records.push_back(record);
    return {lane_id, ++history_[lane_id].submitted};
  }

  Event run_control(const Op& op) {
    for (const Event& event : op.after) await(event);
    BodyContext context(op, BodyContext::Reach::host);
    const Nanos start = now();
    if (op.body) op.body(context);
    const std::int64_t record = trace_.append_operation(op, control_, last_control_, -1);
    trace_.set_times(record, start, now(), context.settled_cost() ? &context.cost() : nullptr);
    last_control_ = record;
    const Event event = append_event(control_, record);
    rethrow();
    return event;
  }

  Event launch(LaneId lane_id, Op& op, Nanos entered) {
    LaneState& state = state_[lane_id];
    if (op.body && !op.launch) throw_not_on_gpu(fmt::format("Operation '{}' has", op.name));
    for (const Event& event : op.after) {
      if (!waits_anew(lane_id, event)) continue;
      if (is_host(event.lane)) {
        cuda_await_count(*state.stream, host_.count_of(event.lane), static_cast<std::uint32_t>(event.value));
      } else if (const CudaMark* const mark = end_of(event)) {
        mark->hold(*state.stream);
      }
    }
    CudaMark *const begin = marks_.take(), *const end = marks_.take();
    state.scratch.next_operation();
    LaunchContext context(op, *state.stream, {uploads_, state.scratch, counts_}, *begin);
    try {
      if (op.launch) op.launch(context);
      context.stream();  // the begin is recorded though nothing was launched
    } catch (...) {
      // What is in the stream already is no operation's: nothing is left that nobody waits for. Of an error in it every
      // later wait tells.
      static_cast<void>(thrown_by([&] {
        cuda_wait(*state.stream);
        end->record(*state.stream);
      }));
      uploads_.launched(*end);
      throw;
    }
    end->record(*state.stream);
    uploads_.launched(*end);
    const std::int64_t previous = last_of(lane_id);
    last_control_ = trace_.append(launch_record(op, lane_id, entered), last_control_);
    if (context.settled_cost()) op.cost = context.cost();
    if (launched_) launched_(op);
    const std::int64_t record = trace_.append_operation(op, lane_id, previous, last_control_);
    trace_.set_marks(record, {begin, end}, std::move(context.settled()));
    state.ends.push_back(end);
    return append_event(lane_id, record);
  }

  Event queue(LaneId lane_id, Op op, Nanos entered) {
    CudaHostLanes::Task task;
    for (const Event& event : op.after) {
      if (!waits_anew(lane_id, event)) continue;
      if (is_host(event.lane)) {
        task.events.push_back(event);
      } else if (end_of(event) != nullptr) {
        task.arrivals.push_back(arrivals_.behind(event, *state_[event.lane].stream, history_[event.lane].submitted));
      }
    }
    const std::int64_t previous = last_of(lane_id);
    last_control_ = trace_.append(launch_record(op, lane_id, entered), last_control_);
    task.record = trace_.append_operation(op, lane_id, previous, last_control_);
    task.op = std::move(op);
    const Event event = append_event(lane_id, task.record);
    host_.submit(lane_id, std::move(task));
    return event;
  }

  /// Of the control thread. Throws what went wrong in a stream.
  void await(Event event, Waiting how = Waiting::looks) {
    if (!event.valid()) return;
    if (is_host(event.lane)) {
      host_.await(event);
    } else if (event.lane != control_) {
      if (how == Waiting::sleeps && event.value == history_[event.lane].submitted) {  // as a token is
        sleeper_.record(*state_[event.lane].stream);
        sleeper_.wait();
      } else if (const CudaMark* const mark = end_of(event)) {
        mark->wait();
      }
    }
  }

  void rethrow() {
    if (const std::exception_ptr error = host_.take_error()) std::rethrow_exception(error);
  }

  CudaTrace::Anchor anchor() {
    return find_anchor(marks_, *state_[compute_].stream, [this] { return now(); });
  }

  /// Everything before is done: its marks, rooms and buffers are free.
  void forget() {
    trace_.clear();
    last_control_ = -1;
    all_drained();
    for (LaneState& state : state_) {
      state.ends.clear();
      state.scratch.all_done();
    }
    uploads_.all_done();
    counts_.all_done();
    arrivals_.all_done();
    memory_.sweep();
    marks_.all_free();
  }

  void start_trace() {
    trace_.begin(anchor());
    window_begin_ = now();
  }

  std::function<void(const Op&)> launched_;
  LaneId compute_;
  CudaMemoryPool memory_;
  LaunchArena uploads_;
  LaunchCounts counts_;
  CudaArrivals arrivals_;
  CudaMarks marks_;
  CudaMark sleeper_{CudaMark::Waiting::sleeps};  // the control thread's own
  CudaTrace trace_;

  std::vector<LaneState> state_;
  CudaHostLanes host_;  // ends first
};

}  // namespace

std::unique_ptr<Device> make_cuda_device(const CudaOptions& options) {
  if (!cuda_missing().empty()) throw InputError(cuda_missing());
  if (options.host_worker_threads == 0) throw_input_error("The CUDA device needs at least one host worker thread.");
  check_cuda_handshake();
  return std::make_unique<CudaExecution>(options);
}

}  // namespace tandem
