// Where the device's time went: busy, and idle with a cause, per step window and layer, in integer nanoseconds. The
// sums are checked on every run.
//
// Busy is the union of compute intervals on the device's inference lanes and side streams, clipped to the window;
// copies by device kernels, waits, and another device's work are never busy. The rest are gaps. What arrived last
// before the operation that ends a gap held it up, what arrived last before that held that up, and so on: this critical
// path is walked backwards to the gap's beginning, and every piece of the gap gets the cause of the record that covers
// it.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "engine/device/trace.h"

namespace tandem {

using CauseTimes = std::array<Nanos, kCauseCount>;  // indexed by Cause

/// Sums of Cost over operations. 64 bits hold 1.8e19 bytes or FLOPs.
struct CostTotals {
  std::uint64_t hbm = 0, dram = 0, h2d = 0, d2h = 0, flops = 0;
  std::uint64_t peer_link = 0;                 // bytes between the two devices, both ways
  std::uint64_t peer_hbm = 0, peer_flops = 0;  // of the other device, in none of those above
  std::uint64_t touched = 0;                   // Cost::context of all, of either device and the host
  std::uint64_t looked_up = 0, missed = 0;     // Cost::looked_up, and the h2d of those operations
  std::uint64_t late = 0;                      // of `missed`: brought ahead, and the device waited for it
  std::uint64_t cancelled = 0;                 // Cost::cancelled
  Nanos bringing = 0, waited = 0;  // time that the operations took which brought `missed`; of it, the device waited
  /// `waited`: of the record, by the device's gaps.
  void add(const TraceRecord& record, LaneKind lane, Nanos waited);
  void add(const CostTotals& other);
  bool operator==(const CostTotals&) const = default;
};

struct IdleTimes {
  Nanos busy = 0, idle = 0;
  CauseTimes by_cause{};  // sums to idle
  void add(const IdleTimes& other);
  bool operator==(const IdleTimes&) const = default;
};

struct LayerIdle : IdleTimes {
  // Busy: the operation's, where several compute an inference lane's; idle: of the operation that ends the gap.
  std::uint32_t layer = Op::kNoLayer;
};

struct StepIdle : IdleTimes {
  std::uint32_t step = 0;
  Nanos begin = 0, end = 0, window = 0;  // window == busy + idle
  std::vector<LayerIdle> layers;         // ascending, kNoLayer last; sums to busy, idle and by_cause
  CostTotals cost;                       // of the records that start in [begin, end)
};

struct IdleReport {
  std::vector<StepIdle> steps;
  StepIdle decode;     // sum of the windows of real steps (not Device::kSetupStep); begin and end are left empty
  CostTotals outside;  // of records that start in no window
  CostTotals total;    // of all records: the windows' costs and `outside`
};

/// LogicError when an invariant does not hold: windows that do not tile, a record out of range, a sum that is off.
/// Causes: the record's; Cause::none becomes transfer for copies, scheduler for control work and waits,
/// host_attention for host workers, and stays none for compute of a device, which only another one's can be.
/// Between two records of the path: handoff. Before its first record: scheduler.
IdleReport account_idle(const Trace& trace);

/// Adds what was accounted of a later trace; between the two lies time in no window.
void append_idle(IdleReport& report, IdleReport later);

}  // namespace tandem
