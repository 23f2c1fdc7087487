// Interface that finishes a layer's attention after the device's part, in place of the merge with the host's part
// (AttendPlan::finisher).
#pragma once

#include <cstdint>
#include <vector>

#include "engine/runtime/plan.h"

namespace tandem {

class AttentionFinisher {
 public:
  virtual ~AttentionFinisher() = default;
  /// Room that attention has anyway.
  struct Room {
    PartialBuffers rest;  // of the plan's items
    HostRoom host;
    HostBuffer device_attended;  // [row] u64
  };
  /// Receives attention over AttendPlan::apart.
  virtual const PartialBuffers& apart(std::uint32_t i) = 0;
  /// After all parts of the device's own attention: into the layer's attention. Ends the open segment and begins
  /// another.
  virtual void finish(const LayerContext& context, const Room& room, Event query_on_host) = 0;

  /// Tasks per side and row since the last call.
  struct Taken {
    std::uint64_t by[2] = {0, 0};            // tasks, by Side
    std::vector<std::uint64_t> host_tokens;  // that the host attended, by layer; summed over KV heads
  };
  virtual std::vector<Taken> take_taken(std::uint32_t rows) = 0;
};

}  // namespace tandem
