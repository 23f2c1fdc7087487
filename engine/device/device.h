// One interface, three devices: `sim` (real results, virtual time from a hardware profile, hazard checker), `emu` (one
// thread per lane, real time), `cuda` (a GPU). A missing backend is one that is not linked.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/device/buffer.h"
#include "engine/device/trace.h"
#include "engine/device/types.h"

namespace tandem {

/// Handed to an operation's body. The only way to memory.
class BodyContext {
 public:
  /// Whose memory can be touched: a CPU that does not reach the GPU's, or a GPU.
  enum class Reach : std::uint8_t { all, host, gpu };
  explicit BodyContext(const Op& op, Reach reach = Reach::all) : op_(&op), reach_(reach) {}

  /// Pointer to a buffer's first byte as T. LogicError unless the operation declared a read (or write) of the buffer.
  template <class T, Memory M>
  const T* read(const BasicBuffer<M>& buffer) const {
    check_declared(*buffer.allocation_, false);
    return reinterpret_cast<const T*>(buffer.allocation_->data.get());
  }
  template <class T, Memory M>
  T* write(const BasicBuffer<M>& buffer) const {
    check_declared(*buffer.allocation_, true);
    return reinterpret_cast<T*>(buffer.allocation_->data.get());
  }

  /// Replaces the declared upper bounds by what was touched, at most once per body. Each settled access must lie inside
  /// a declared one (`sim` checks it). Launch figures stay as declared (Cost::launched_as).
  void settle(const Cost& cost, std::vector<Access> access);
  void settle(const Cost& cost);

  /// Whether anybody looks at settled accesses. Where nobody does, a body need not list them.
  bool lists_access() const { return lists_access_; }
  void without_access() { lists_access_ = false; }

  /// False where only shapes are simulated (SimOptions::shapes_only): memory holds no tensors there, so that a body
  /// settles its cost without computing (Op::has_cost_only_part).
  bool computes() const { return computes_; }
  void without_tensors() { computes_ = false; }

  bool settled_cost() const { return has_cost_; }
  bool settled_access() const { return has_access_; }
  const Cost& cost() const { return cost_; }
  std::vector<Access>& access() { return access_; }

 private:
  void check_declared(const Allocation& buffer, bool write) const;
  const Op* op_;
  Reach reach_;
  bool has_cost_ = false, has_access_ = false, lists_access_ = true, computes_ = true;
  Cost cost_;
  std::vector<Access> access_;
};

/// A lane that pulls tasks, for a side: several lanes may be one side's workers.
struct Puller {
  LaneId lane = 0;
  std::uint32_t side = 0;
};

/// Tasks that several lanes pull from one queue: each lane takes the first task left that its side may take, and the
/// next one when it is done with that. Whoever takes a task must come to the same values.
struct QueuedTasks {
  std::vector<std::uint8_t> allowed;      // by task, in the order in which they are taken; bit s: side s may
  std::vector<std::uint64_t> work;        // by task, and
  std::vector<double> pace;               // by side: a guard (TaskQueue); empty: none
  std::vector<std::vector<Event>> after;  // by side: all that operations of its tasks wait for; empty: nothing
  /// What a task comes to on a puller's lane, in order. Called when it is taken, by the lane's own thread where it has
  /// one, until the returned events are done: it holds what it needs, and reads nothing that changes.
  std::function<std::vector<Op>(std::uint32_t task, std::uint32_t puller)> ops;
};

/// One lane of each kind, and further host workers (worker_lanes). The compute lane is the inference lane.
class Device {
 public:
  virtual ~Device() = default;
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  /// "measured on <machine>" or "simulated for <profile>": the column head of every number from this device.
  const std::string& clock_name() const { return clock_name_; }
  virtual std::string gpu_name() const { return ""; }  // "NVIDIA H200"; empty where no GPU is at work
  virtual bool simulated() const = 0;
  /// Operations of device lanes are launched on a GPU (Op::launch): their bodies do not run.
  virtual bool is_gpu() const { return false; }
  /// Only cost-only parts of bodies run (BodyContext::computes): memory holds no tensors.
  virtual bool shapes_only() const { return false; }
  /// Whether there is another device to send work to. On `sim` the profile says so; elsewhere a rank is one.
  virtual bool has_peer() const { return true; }
  /// Bytes of its memory. On `sim` those of a device like this one; elsewhere the rank itself says when it has no more.
  virtual std::uint64_t peer_memory() const { return std::numeric_limits<std::uint64_t>::max(); }

  const std::vector<LaneInfo>& lanes() const { return lanes_; }
  LaneId lane(LaneKind kind) const;  // the first lane of a kind; every device has one of each kind
  /// The lanes of the host's workers that share the first one's threads, itself among them: kMaxWorkers. Whoever has
  /// several at work gives each operation its part of the threads (Cost::threads).
  std::vector<LaneId> worker_lanes() const;
  static constexpr std::uint32_t kMaxWorkers = 8;

  DeviceBuffer allocate_device(std::size_t bytes, std::string name) {
    return DeviceBuffer(allocate(Memory::device, bytes, std::move(name)));
  }
  HostBuffer allocate_host(std::size_t bytes, std::string name) {
    return HostBuffer(allocate(Memory::host, bytes, std::move(name)));
  }
  HostBuffer allocate_host_only(std::size_t bytes, std::string name) {
    return HostBuffer(allocate(Memory::host_only, bytes, std::move(name)));
  }

  /// Appends to the graph; never blocks. Events must come from this device.
  virtual Event submit(LaneId lane, Op op) = 0;

  /// Pullers take tasks until the bag is empty. Returns each puller's last operation, a default event if it took none
  /// (on `emu`: was allowed none). The control thread launches what device lanes take (`sim`: task by task; `emu`: a
  /// lane's share as one operation) and returns when all that lanes compete for is taken. On `sim` the lane that is
  /// free first in virtual time takes next, on a tie the first puller; host workers are woken all at once.
  virtual std::vector<Event> submit_queued(std::span<const Puller> pullers, const QueuedTasks& bag) = 0;

  /// Operations of device lanes between begin and end share one launch in simulated time, as in a CUDA graph; `cuda`
  /// launches each by itself. Segments do not nest. Host work may be submitted in between.
  virtual void begin_segment(const char* name);
  virtual void end_segment();
  bool in_segment() const { return segment_ != nullptr; }  // between the two

  /// Blocks the control thread until the event is done. Errors thrown by bodies are rethrown here. An interrupted or
  /// failed device stays usable for drain().
  virtual void host_wait(Event event) = 0;

  /// Control-thread access to host memory, seen by the hazard checker. Call host_wait first.
  template <class T>
  std::span<const T> host_read(const HostBuffer& buffer, Range rows = {}) {
    host_access(buffer.reads(rows.begin, rows.end));
    return {reinterpret_cast<const T*>(buffer.allocation_->data.get()), buffer.bytes() / sizeof(T)};
  }
  template <class T>
  std::span<T> host_write(const HostBuffer& buffer, Range rows = {}) {
    host_access(buffer.writes(rows.begin, rows.end));
    return {reinterpret_cast<T*>(buffer.allocation_->data.get()), buffer.bytes() / sizeof(T)};
  }

  /// A step window closes when `token` is on the host (this waits for it); the next one opens at the same instant, so
  /// that windows tile the trace. Step numbers are the caller's; kSetupStep names the window before the first token.
  virtual void end_step(std::uint32_t step, Event token) = 0;

  /// Waits for all lanes and returns what ran since the last drain; the next trace starts now.
  virtual Trace drain() = 0;
  /// The same where an error is on its way already: what failed beside it is not told.
  void drain_after_error() noexcept;

  virtual Nanos now() const = 0;  // the control thread's clock

  static constexpr std::uint32_t kSetupStep = 0xFFFFFFFFu;

 protected:
  struct LaneHistory {
    std::uint64_t submitted = 0, drained = 0;  // event values: given out, and done at the last drain
    std::vector<std::int64_t> records;         // trace records of the operations since the last drain
    std::exception_ptr error;                  // of operation `failed_at`; later operations do not run their bodies
    std::uint64_t failed_at = 0;
  };

  Device(std::uint32_t host_threads, std::string clock_name);
  virtual void host_access(const Access& access) = 0;
  virtual std::shared_ptr<Allocation> allocate(Memory memory, std::size_t bytes, std::string name) = 0;

  /// LogicError for a lane that the device does not have.
  void check_lane(LaneId lane_id, const char* name) const;
  /// LogicError for an event that the device has not given out. `name`: of what waits for it.
  void check_event(Event event, const char* name) const;
  /// Trace record of an event; -1 where it was done at the last drain.
  std::int64_t record_of(Event event) const;
  /// The lane's last record; -1 where there is none since the last drain.
  std::int64_t last_of(LaneId lane_id) const;
  /// Error of the event's operation or of one before it on the lane; nullptr where there is none.
  std::exception_ptr error_of(Event event) const;
  void rethrow_error_of(Event event);  // throws that error, which is reported then
  /// The lane's operations from `value` on fail with this error, unless an earlier one has.
  void fail(LaneId lane_id, std::uint64_t value, const std::exception_ptr& error);
  void rethrow_unreported();  // throws an error that no wait has reported
  void all_drained();         // counts everything submitted as done, and forgets records and errors

  const std::vector<LaneInfo> lanes_;
  const std::string clock_name_;
  const LaneId control_;
  std::vector<LaneHistory> history_;  // by lane
  const char* segment_ = nullptr;     // name of the open one
  std::int64_t last_control_ = -1;    // the control thread's last record
  Nanos window_begin_ = 0;            // of the open step
  std::exception_ptr unreported_;     // a body's, that no wait has thrown yet
};

/// Opens a segment for a scope.
class Segment {
 public:
  Segment(Device& device, const char* name) : device_(device) { device_.begin_segment(name); }
  ~Segment() { device_.end_segment(); }
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;

 private:
  Device& device_;
};

}  // namespace tandem
