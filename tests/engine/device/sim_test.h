// What tests of the simulated device share: operations of a fixed time, a trace's records by name, lanes by kind.
#pragma once

#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "engine/device/device.h"

namespace tandem {

inline Op fixed(const char* name, Nanos ns, std::vector<Event> after = {}) {
  Op op;
  op.name = name;
  op.cost.work = Work::fixed;
  op.cost.fixed_ns = ns;
  op.after = std::move(after);
  return op;
}

inline const TraceRecord& find(const Trace& trace, const std::string& name) {
  for (const TraceRecord& record : trace.records) {
    if (name == record.name) return record;
  }
  throw std::runtime_error("no record " + name);
}

struct Lanes {
  explicit Lanes(const Device& d)
      : device(d.lane(LaneKind::device_compute)),
        h2d(d.lane(LaneKind::h2d)),
        d2h(d.lane(LaneKind::d2h)),
        host(d.lane(LaneKind::host_workers)),
        control(d.lane(LaneKind::control)) {}
  LaneId device, h2d, d2h, host, control;
};

}  // namespace tandem
