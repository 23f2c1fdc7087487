// What ran, when and why: the one record that idle accounting, counters and the Perfetto export are computed from.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/device/types.h"

namespace tandem {

struct TraceRecord {
  const char* name = "";
  Kind kind = Kind::compute;
  Cause cause = Cause::none;
  LaneId lane = 0;
  std::uint32_t layer = Op::kNoLayer;
  Nanos start = 0, end = 0;
  // Index of the record that arrived last among: explicit edges, the lane's previous operation, the launch. -1 for
  // none. Time between that record's end and `start` is hand-off latency.
  std::int64_t critical = -1;
  Cost cost;  // settled
};

/// The record of an operation, without times.
inline TraceRecord trace_record(const Op& op, LaneId lane, const Cost& cost) {
  return {.name = op.name, .kind = op.kind, .cause = op.cause, .lane = lane, .layer = op.layer, .cost = cost};
}

/// TraceRecord::critical of a record: of its lane's `previous` one, its edges' (`record_of` an event) and its `launch`,
/// the one that ends last, of equals the first. -1 counts as none.
std::int64_t last_arrival(const auto& records, std::int64_t previous, const std::vector<Event>& after,
                          std::int64_t launch, const auto& record_of) {
  std::int64_t last = previous;
  const auto consider = [&](std::int64_t record) {
    const auto end = [&](std::int64_t index) { return records[static_cast<std::size_t>(index)].end; };
    if (record >= 0 && (last < 0 || end(record) > end(last))) last = record;
  };
  for (const Event& event : after) consider(record_of(event));
  consider(launch);
  return last;
}

struct StepMark {
  std::uint32_t step = 0;  // Device::kSetupStep for the window before the first step
  Nanos begin = 0, end = 0;
  std::int64_t closed_by = -1;  // record whose end (plus hand-off) closed the window
};

struct Trace {
  std::string clock;  // "simulated for ..." or "measured on ..."
  std::vector<LaneInfo> lanes;
  std::vector<TraceRecord> records;  // in submission order
  std::vector<StepMark> steps;       // tile [begin of the first, end of the last]
};

}  // namespace tandem
