#include "engine/device/sim_device.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "engine/common/error.h"
#include "engine/device/cost_model.h"
#include "engine/device/memory.h"
#include "engine/device/queue_share.h"
#include "engine/device/scheduler.h"
#include "engine/device/sim_recorder.h"

namespace tandem {
class SimDevice final : public Device {
 public:
  SimDevice(HardwareProfile profile, SimOptions options)
      : Device(profile.host.threads, "simulated for " + profile.title),
        profile_(std::move(profile)),
        options_(std::move(options)),
        pool_(static_cast<std::uint64_t>(profile_.device.memory_gb * 1e9), "the profile '" + profile_.name + "'"),
        cost_model_(profile_),
        scheduler_(lanes_.size()),
        checker_(&names_) {
    TANDEM_CHECK(lanes_.size() <= VectorClock::kMaxLanes, "{} lanes; at most {} are supported", lanes_.size(),
                 VectorClock::kMaxLanes);
    for (const LaneInfo& lane : lanes_) names_.lanes.push_back(lane.name);
    names_.buffer = [this](BufferId id) { return pool_.name(id); };
  }

  bool simulated() const override { return true; }
  bool shapes_only() const override { return options_.shapes_only; }
  bool has_peer() const override { return profile_.peer.gbps > 0; }
  std::uint64_t peer_memory() const override { return static_cast<std::uint64_t>(profile_.device.memory_gb * 1e9); }
  Nanos now() const override { return clock_; }

  const ScheduleNames& names() const { return names_; }

  Event submit(LaneId lane_id, Op op) override { return submit_op(lane_id, std::move(op), -1); }

  std::vector<Event> submit_queued(std::span<const Puller> pullers, const QueuedTasks& bag) override {
    TANDEM_CHECK(segment_ == nullptr, "a bag is submitted inside segment '{}'", segment_);
    recorder_.add([](SimDevice& device) { device.woken_ = -1; });
    const std::shared_ptr<TaskQueue> queue = queue_of(bag, pullers);
    const bool compete = std::ranges::any_of(bag.allowed, [](std::uint8_t bits) { return (bits & (bits - 1)) != 0; });
    std::vector<Event> last(pullers.size());
    std::int64_t woken = -1;  // the record that woke the workers of the host
    std::vector<bool> done(pullers.size());
    // Whether a lane takes a task only when it is free: somebody else could have it.
    const auto competes = [&](std::uint32_t side) {
      return compete || std::ranges::count_if(pullers, [&](Puller p) { return p.side == side; }) > 1;
    };
    std::size_t left = bag.allowed.size();
    while (left > 0) {
      std::vector<std::int64_t> running;
      for (std::uint32_t p = 0; p < pullers.size(); ++p) {
        const auto [lane_id, side] = pullers[p];
        const bool device_side = is_device_side(lanes_[lane_id].kind), waits = competes(side);
        const auto free = [lane = lane_id, this] { return last_of(lane) < 0 || scheduler_.ended(last_of(lane)); };
        while (left > 0 && !done[p] && (!waits || free())) {
          if (waits) see(lane_id);
          const auto task = queue->pull(side);
          done[p] = !task;
          if (!task) break;
          --left;
          for (Op& op : bag.ops(*task, p)) {
            check_waits(declared_waits(bag, side), op);
            last[p] = submit_op(lane_id, std::move(op), device_side ? -1 : woken);
            if (woken < 0 && !device_side) woken = last_control_;
          }
        }
        if (!done[p]) running.push_back(last_of(lane_id));
      }
      if (left > 0) scheduler_.run_until_any(running);
    }
    return last;
  }

  void begin_segment(const char* name) override {
    Device::begin_segment(name);
    recorder_.add([name](SimDevice& device) { device.begin_segment(name); });
    segment_launch_ = -1;
  }

  void end_segment() override {
    Device::end_segment();
    recorder_.add([](SimDevice& device) { device.end_segment(); });
    segment_launch_ = -1;
  }

  void host_wait(Event event) override {
    if (!event.valid()) return;
    check_event(event, "host wait");
    if (recorder_.on()) recorder_.add([again = recorder_.event(event)](SimDevice& device) { device.host_wait(again); });
    note({.form = ScheduleOp::Form::host_wait, .name = "host wait", .lane = control_, .after = {event}, .access = {}});
    const auto [seen, critical] = arrive({&event, 1});
    add_wait("host wait", seen, critical);
    rethrow_error_of(event);
  }

  void end_step(std::uint32_t step, Event token) override {
    host_wait(token);
    close_window(step);
    recorder_.add([step](SimDevice& device) { device.close_window(step); });
    if (step != kSetupStep) recorder_.step_ended();
  }

  void start_recording(std::uint32_t steps) {
    std::vector<std::uint64_t> before;
    for (const LaneHistory& lane : history_) {
      TANDEM_CHECK(lane.drained == lane.submitted, "calls are recorded from a drained device on");
      before.push_back(lane.drained);
    }
    recorder_.start(steps, options_, std::move(before));
  }
  SimCalls take_recording() { return recorder_.take(); }
  /// The traces drained since construction, all replayed.
  std::vector<Trace> finish_replay() {
    drained_.push_back(drain());
    return std::move(drained_);
  }

  Trace drain() override {
    recorder_.add([](SimDevice& device) { device.drained_.push_back(device.drain()); });
    clock_ = std::max(clock_, scheduler_.run_all());
    for (const LaneInfo& lane : lanes_) {
      const std::int64_t last = last_of(lane.id);
      if (last < 0 || lane.id == control_) continue;
      clock_ = std::max(clock_, scheduler_.time(last).end + cost_model_.handoff(lane.kind, LaneKind::control));
    }
    note({.form = ScheduleOp::Form::drain, .name = "drain", .lane = control_, .after = {}, .access = {}});
    for (std::size_t i = 0; i < records_.size(); ++i) {
      TraceRecord& record = records_[i];
      if (record.lane == control_) continue;
      const ScheduledTime& time = scheduler_.time(static_cast<std::int64_t>(i));
      record.start = time.start;
      record.end = time.end;
      record.critical = time.critical;
    }
    last_control_ = -1;
    window_begin_ = clock_;
    Trace trace{clock_name_, lanes_, std::exchange(records_, {}), std::exchange(steps_, {})};
    scheduler_.forget();
    all_drained();
    segment_launch_ = -1;
    rethrow_unreported();
    return trace;
  }

 protected:
  void host_access(const Access& access) override {
    note({.form = ScheduleOp::Form::host_access,
          .name = access.write ? "host write" : "host read",
          .lane = control_,
          .after = {},
          .access = {access}});
  }

  std::shared_ptr<Allocation> allocate(Memory memory, std::size_t bytes, std::string name) override {
    return pool_.allocate(memory, bytes, std::move(name));
  }

 private:
  // `woken`: a host lane's workers take the operation themselves, having been woken by that record; -1: they are woken.
  Event submit_op(LaneId lane_id, Op op, std::int64_t woken) {
    check_lane(lane_id, op.name);
    LaneHistory& state = history_[lane_id];
    std::exception_ptr error = state.error;
    for (const Event& event : op.after) {
      check_event(event, op.name);
      if (!error) error = error_of(event);
    }

    BodyContext context(op);
    if (!watched()) context.without_access();
    if (options_.shapes_only) context.without_tensors();
    if (op.body && (context.computes() || op.has_cost_only_part) && !error) {
      try {
        op.body(context);
      } catch (...) {
        error = std::current_exception();
        unreported_ = unreported_ ? unreported_ : error;
      }
    }
    const Cost cost = context.settled_cost() ? context.cost() : op.cost;
    if (recorder_.on())
      recorder_.add([lane_id, again = recorder_.operation(op, cost), taken = woken >= 0](SimDevice& device) {
        device.repeat(lane_id, again, taken);
      });
    const bool settled = watched() && context.settled_access();
    if (settled) check_settled_inside(op.name, op.access, context.access(), names_);

    const bool on_control = lane_id == control_;
    ScheduleOp entry;
    entry.form = on_control ? ScheduleOp::Form::control_op : ScheduleOp::Form::op;
    entry.name = op.name;
    entry.lane = lane_id;
    entry.layer = op.layer;
    entry.after = std::move(op.after);
    entry.access = settled ? std::move(context.access()) : std::move(op.access);
    note(entry);

    const Event event{lane_id, ++state.submitted};
    fail(lane_id, event.value, error);
    if (on_control) {
      run_on_control(op, cost, entry);
    } else {
      enqueue(lanes_[lane_id], op, cost, entry, woken);
    }
    return event;
  }

  void repeat(LaneId lane_id, Op op, bool taken) {
    if (op.cost.work == Work::fixed) take_fixed_time(op, profile_);
    submit_op(lane_id, std::move(op), taken ? woken_ : -1);
    if (woken_ < 0 && !is_device_side(lanes_[lane_id].kind)) woken_ = last_control_;
  }

  /// Whether accesses are looked at, now or later.
  bool watched() const { return options_.checked || options_.schedule != nullptr; }

  void enqueue(const LaneInfo& lane_info, const Op& op, const Cost& cost, const ScheduleOp& entry, std::int64_t woken) {
    ScheduledOp scheduled;
    scheduled.phases = cost_model_.phases(cost, lane_info);
    const bool graph = segment_ != nullptr && profile_.device.segment_launch_ns > 0;
    std::int64_t launch = woken;
    if (woken >= 0) {
      // Taken, not submitted: the control thread has nothing to do with it.
    } else if (!is_device_side(lane_info.kind)) {
      launch = add_launch("submit", op.layer, profile_.control.submit_ns);
    } else if (lane_info.kind == LaneKind::peer_compute && !graph) {
      launch = add_launch("launch", op.layer, profile_.device.launch_ns);  // a request: the peer launches
    } else if (!graph) {
      // Of an operation that stands for several kernels all are launched before it begins: a little late, since the
      // first could run meanwhile.
      launch = add_launch("launch", op.layer,
                          profile_.device.launch_ns * std::max(cost.kernels, 1u) + profile_.control.operation_ns);
    } else {
      if (segment_launch_ < 0) segment_launch_ = add_launch(segment_, op.layer, profile_.device.segment_launch_ns);
      launch = segment_launch_;
    }
    if (segment_ != nullptr && is_device_side(lane_info.kind)) {
      const std::uint32_t kernels = std::max(cost.kernels, 1u), heavy = std::clamp(cost.heavy, 1u, kernels);
      const Nanos alone = scheduled.phases.fixed + scheduled.phases.flow, floor = profile_.device.op_floor_ns;
      scheduled.phases.fixed += std::max<Nanos>(0, floor * heavy - alone) + floor * (kernels - heavy);
    }
    // Inside a segment the launch may lie behind control work of the segment. An operation still starts no earlier than
    // its submission: the checker lets it see whatever the control thread has done by then.
    const bool behind = records_[static_cast<std::size_t>(launch)].end < clock_;
    scheduled.earliest = clock_;
    scheduled.earliest_record = behind ? last_control_ : launch;
    if (woken >= 0) {
      scheduled.earliest = std::max(records_[static_cast<std::size_t>(woken)].end, scheduler_.now());
      scheduled.earliest_record = woken;
    }
    for (const Event& event : entry.after) {
      const std::int64_t dependency = record_of(event);
      // The control thread's own operations come before the launch. -1: done before this trace.
      if (dependency < 0 || event.lane == control_) continue;
      // A lane is in order: it needs no signal from itself.
      const Nanos latency =
          event.lane == lane_info.id ? 0 : cost_model_.handoff(lanes_[event.lane].kind, lane_info.kind);
      scheduled.after.push_back({dependency, latency});
    }
    records_.push_back(trace_record(op, lane_info.id, cost));
    const auto index = static_cast<std::int64_t>(records_.size()) - 1;
    history_[lane_info.id].records.push_back(index);
    scheduler_.submit(lane_info.id, index, std::move(scheduled));
  }

  void note(const ScheduleOp& entry) {
    if (options_.checked) checker_.add(entry);
    if (options_.schedule != nullptr) options_.schedule->push_back(entry);
  }

  void close_window(std::uint32_t step) {
    steps_.push_back({step, window_begin_, clock_, last_control_});
    window_begin_ = clock_;
  }

  /// A record of the control thread, whose clock goes to its end. `critical`: what it waited for.
  std::int64_t add_control(TraceRecord record, Nanos start, Nanos duration, std::int64_t critical) {
    record.lane = control_;
    record.start = start;
    record.end = clock_ = start + duration;
    record.critical = critical;
    records_.push_back(record);
    return last_control_ = static_cast<std::int64_t>(records_.size()) - 1;
  }
  std::int64_t add_launch(const char* name, std::uint32_t layer, Nanos duration) {
    return add_control({.name = name, .kind = Kind::control, .cause = Cause::launch, .layer = layer, .cost = {}},
                       clock_, duration, last_control_);
  }
  void add_wait(const char* name, Nanos until, std::int64_t critical) {
    add_control({.name = name, .kind = Kind::wait, .cost = {}}, until, 0, critical);
  }

  void run_on_control(const Op& op, const Cost& cost, const ScheduleOp& entry) {
    const auto [start, critical] = arrive(entry.after);
    const Phases phases = cost_model_.phases(cost, lanes_[control_]);
    history_[control_].records.push_back(
        add_control(trace_record(op, control_, cost), start, phases.fixed + phases.flow, critical));
  }

  struct Arrival {
    Nanos seen;
    std::int64_t critical;  // the record that was seen last
  };
  // Simulates until the control thread sees all of these.
  Arrival arrive(std::span<const Event> events) {
    Arrival last{clock_, last_control_};
    for (const Event& event : events) {
      const std::int64_t record = record_of(event);
      if (record < 0 || event.lane == control_) continue;
      const Nanos end = scheduler_.run_until(record).end;
      const Nanos seen = end + cost_model_.handoff(lanes_[event.lane].kind, LaneKind::control);
      if (seen > last.seen) last = {seen, record};
      segment_launch_ = -1;
    }
    return last;
  }

  // The control thread notices that a lane is free, and launches its next task from then on.
  void see(LaneId lane_id) {
    const std::int64_t last = last_of(lane_id);
    if (last < 0) return;
    recorder_.add_decided_by_times([lane_id](SimDevice& device) { device.see(lane_id); });
    const Nanos seen = scheduler_.run_until(last).end + cost_model_.handoff(lanes_[lane_id].kind, LaneKind::control);
    if (seen > clock_) add_wait("pull task", seen, last);
  }

  HardwareProfile profile_;
  SimOptions options_;
  MemoryPool pool_;
  CostModel cost_model_;
  Scheduler scheduler_;
  ScheduleNames names_;
  HazardChecker checker_;
  // The control thread's times are numbers at once, since it submits everything else; the scheduler knows the others'
  // at the end.
  std::vector<TraceRecord> records_;
  std::vector<StepMark> steps_;
  Nanos clock_ = 0;
  std::int64_t segment_launch_ = -1;
  SimRecorder recorder_;
  std::int64_t woken_ = -1;     // in a bag that is repeated: who woke the host's workers
  std::vector<Trace> drained_;  // in a replay
};

namespace {

SimDevice& as_sim(Device& device) {
  auto* sim = dynamic_cast<SimDevice*>(&device);
  TANDEM_CHECK(sim != nullptr, "this device is not simulated");
  return *sim;
}

}  // namespace

std::unique_ptr<Device> make_sim_device(HardwareProfile profile, SimOptions options) {
  return std::make_unique<SimDevice>(std::move(profile), std::move(options));
}

void record_calls(Device& device, std::uint32_t steps) {
  as_sim(device).start_recording(steps);
}

SimCalls take_calls(Device& device) {
  return as_sim(device).take_recording();
}

std::vector<Trace> replay(const SimCalls& recorded, const HardwareProfile& profile, std::size_t steps) {
  SimOptions options = recorded.options;
  options.shapes_only = true;
  options.checked = false;
  options.schedule = nullptr;
  SimDevice device(profile, options);
  TANDEM_CHECK(steps > 0, "a replay of no step");
  const std::size_t calls = steps > recorded.step_ends.size() ? recorded.calls.size() : recorded.step_ends[steps - 1];
  for (std::size_t i = 0; i < calls; ++i) recorded.calls[i](device);
  return device.finish_replay();
}

const ScheduleNames& schedule_names(Device& device) {
  return as_sim(device).names();
}

}  // namespace tandem
