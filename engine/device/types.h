// The vocabulary of submitted work: lanes, events, extents, costs, operations.
// Work is submitted to lanes. An operation says what it reads and writes (extents), what it costs (bytes per memory and
// link, FLOPs) and which events it waits for. Submitting appends to a graph and never blocks.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

namespace tandem {

using Nanos = std::int64_t;  // virtual nanoseconds on `sim`, steady-clock nanoseconds elsewhere
using LaneId = std::uint32_t;
using BufferId = std::uint32_t;

enum class LaneKind : std::uint8_t {
  device_compute,  // a compute stream of the device
  h2d,             // copies host -> device that the step waits for soon
  recall,          // copies host -> device beside those: what later steps and layers will read
  d2h,             // copies device -> host
  side_compute,    // a stream of the same device beside the step
  peer_compute,    // another device (Profile::peer), which shares nothing with the first but a link
  to_peer,         // copies device -> peer device
  from_peer,       // copies peer device -> device
  host_workers,    // a group of CPU threads that computes (attention, selection)
  control,         // the thread that submits; exactly one, created by the device, used by launches and host waits
};

/// Lanes of the device itself, of a link or of another device: streams, where there is a GPU.
constexpr bool is_device_side(LaneKind kind) {
  return kind != LaneKind::host_workers && kind != LaneKind::control;
}

struct LaneInfo {
  LaneId id = 0;
  LaneKind kind = LaneKind::control;
  std::string name;
  std::uint32_t threads = 1;  // host_workers: CPU threads of the group
  bool inference = false;     // device_compute lanes that run the forward pass
};

enum class Kind : std::uint8_t {
  compute,
  copy,
  wait,
  control
};  // a zero-copy gather kernel is a copy, a spinning kernel a wait

/// What the device's idle time is called while it waits for an operation of this cause.
enum class Cause : std::uint8_t {
  none,            // ordinary device compute
  host_attention,  // partial attention on the CPU
  selection,       // scoring blocks, top-k
  recall,          // bringing KV back to the device
  offload,         // moving KV to the host
  transfer,        // queries, partial results and other small messages over the link
  handoff,         // latency of a signal between device and host
  launch,          // the control thread launching work
  sampling,        // choosing the next token and bringing it to the host
  scheduler,       // policy code of a method, batching
};
inline constexpr int kCauseCount = 10;
const char* to_string(Cause cause);  // "host attention", "recall", ...
const char* to_string(Kind kind);
const char* to_string(LaneKind kind);

/// Which of the profile's rates an operation's duration is computed from.
enum class Work : std::uint8_t {
  stream,             // reads and writes memory once: norms, activations, digests, copies
  weights,            // products of a decode step, which read the weights once
  gemm,               // matrix products with many rows (prefill)
  attention,          // partial attention over selected KV
  prefill_attention,  // causal attention of a prompt's chunk
  select,             // scoring digests and top-k
  fixed,              // duration is Cost::fixed_ns alone (policy code)
};

struct Range {  // half open
  std::uint32_t begin = 0;
  std::uint32_t end = std::numeric_limits<std::uint32_t>::max();
  bool operator==(const Range&) const = default;
};

constexpr bool overlap(const Range& a, const Range& b) {
  return a.begin < b.end && b.begin < a.end;
}

/// A rectangle heads x pages of one (buffer, sequence, layer). In a KV store `pages` are slots. Other buffers use it
/// for rows and leave the rest alone. The default is the whole buffer.
struct Extent {
  BufferId buffer = 0;
  std::uint32_t sequence = 0;
  std::uint32_t layer = 0;
  Range heads;
  Range pages;
};

struct Access {
  Extent extent;
  bool write = false;
};

/// A run is host memory that a thread reads in one piece. Attention reads its first bytes, this many, at the rate of
/// random pages of 16 tokens, the others at that of contiguous memory. Measured with one thread: 7 and 9 KB of K, and
/// as many of V, for pages of 32 and 64 tokens (results/probe-cpu-zen5-2core.json); 10 to 11 KB for runs of 128 to
/// 1,024 tokens (AMD EPYC Zen 4, 2-core VM). 16 KB is the longest page that the probe reads.
inline constexpr std::uint64_t kRunStart = 16384;
/// The part of a run of `bytes` that is read at the fast rate.
constexpr std::uint64_t behind_start(std::uint64_t bytes) {
  return bytes > kRunStart ? bytes - kRunStart : 0;
}

/// What an operation moves and computes. Bytes are those of the stored type.
struct Cost {
  Work work = Work::stream;
  std::uint64_t hbm = 0;   // bytes read and written in device memory
  std::uint64_t dram = 0;  // bytes read and written in host memory by CPU threads
  // Of `dram`: what attention reads behind the start of long runs (behind_start), by the profile's rates for that.
  std::uint64_t contiguous = 0;
  std::uint64_t h2d = 0;   // bytes over the link, host -> device
  std::uint64_t d2h = 0;   // bytes over the link, device -> host
  std::uint64_t peer = 0;  // bytes over the link between devices, in the direction of the lane
  std::uint64_t flops = 0;
  std::uint32_t pieces = 1;  // separate runs of memory that h2d/d2h/dram bytes are spread over
  // Of the bytes over the link and of `pieces`: short runs beside long ones (averages, lists, log sums). What a link
  // takes for a piece depends on its size, which a mean over both kinds would miss: 128 KB and 40 times 128 bytes are
  // 15 us at 0.8 GB/s for 4 KB and 15 for 128 KB, 41 pieces of their mean 170 us.
  std::uint64_t short_bytes = 0;
  std::uint32_t short_pieces = 0;
  // Of a decode step, of hbm, dram and h2d: what computing reads and writes of what is kept about the context, wherever
  // that is: K and V, digests and other indices, statistics. Not queries, scores, lists and partial results, which live
  // for the operation, nor what is only copied, nor weights.
  std::uint64_t context = 0;
  // Bytes of KV that an operation, or who asked for it, looked for on the device. Not there was what the operation
  // brings over the link (`h2d`).
  std::uint64_t looked_up = 0;
  bool ahead = false;           // brings it before it is asked for
  std::uint64_t cancelled = 0;  // bytes that were to come ahead and had found no room
  // Of `h2d`: a kernel reads it from host memory itself (zero copy), since the host does not know what was chosen; of
  // an operation that does both, all of it.
  bool gathered = false;
  // Of a device operation: kernels that it stands for, each with a launch of its own, and in a segment a floor: as many
  // as its launch puts into the stream (tests/methods/launches_test.cc). Not counted are copies of a launch's
  // arguments, which large batches need, a page table's new slots (once in 16 tokens of a sequence), and what cuBLASLt
  // adds for products that it cuts. 1 of an operation that only copies.
  std::uint32_t kernels = 1;
  // Products and attention among `kernels`: they share the bytes and FLOPs and run one after the other. Each has the
  // profile's fixed time of its kind, except that all products of a prefill have one together. The other kernels take
  // the floor each.
  std::uint32_t heavy = 1;
  std::uint32_t tasks = 0;    // of a host operation: parts that threads can share it by; 0: any number
  std::uint32_t threads = 0;  // of a host operation: threads that it gets, at most; 0: all of its lane
  std::uint32_t lists = 0;    // of a host operation: lists that are then chosen, each by one thread, ...
  std::uint64_t ranked = 0;   // ... and the scores that they are the best of, all together (top_k)
  std::uint64_t solved = 0;   // FLOPs in double precision that small systems of equations take, beside `flops`
  Nanos fixed_ns = 0;         // added to the duration whatever the rates say
  bool upper_bound = false;   // the body settles the exact figures when it runs
  bool operator==(const Cost&) const = default;

  /// Whatever data decided, it is launched as it was declared.
  void launched_as(const Cost& declared) {
    kernels = declared.kernels;
    heavy = declared.heavy;
    gathered = declared.gathered;
  }
};

/// Completion of the `value`-th operation (counted from 1) of a lane.
struct Event {
  LaneId lane = 0;
  std::uint64_t value = 0;
  bool valid() const { return value != 0; }  // a default Event is "already done"
  bool operator==(const Event&) const = default;
};

/// Appends an event to wait for, unless a later one of its lane is there: lanes are in order. An earlier one gives way,
/// and its place, since of equal arrivals the first in the list is the one that was waited for. Default events are done
/// already.
inline void wait_for(std::vector<Event>& after, Event event) {
  if (!event.valid()) return;
  const auto own = std::find_if(after.begin(), after.end(), [&](const Event& e) { return e.lane == event.lane; });
  if (own != after.end()) {
    if (own->value >= event.value) return;
    after.erase(own);
  }
  after.push_back(event);
}

class BodyContext;
class LaunchContext;
using Body = std::function<void(BodyContext&)>;
using Launch = std::function<void(LaunchContext&)>;

struct Op {
  const char* name = "";  // static storage; the same operation has the same name in every method
  Kind kind = Kind::compute;
  Cause cause = Cause::none;
  std::uint32_t layer = kNoLayer;
  Cost cost;
  std::vector<Access> access;
  std::vector<Event> after;  // explicit edges; the lane's own order is implied
  Body body;                 // may be empty
  /// The body's twin on a GPU (Device::launches), for device lanes: puts kernels and copies into the lane's stream. It
  /// is called before submit() returns, so it may refer to its caller's variables. What data decides is settled there
  /// where a kernel counts it (LaunchContext::settle_by); otherwise the declared cost stays.
  Launch launch = {};
  /// The body has a part for devices that simulate shapes only (BodyContext::computes): it draws what a choice would be
  /// and settles the cost. Other bodies do not run there.
  bool has_cost_only_part = false;

  static constexpr std::uint32_t kNoLayer = std::numeric_limits<std::uint32_t>::max();
  Op() = default;
  explicit Op(const char* op_name, Cause op_cause = Cause::none, std::uint32_t op_layer = kNoLayer)
      : name(op_name), cause(op_cause), layer(op_layer) {}
};

/// Names of operations whose fixed time is a number of the hardware profile.
inline constexpr const char *kPolicy = "plan attention", *kFramework = "framework", *kEngineCode = "engine code";

}  // namespace tandem
