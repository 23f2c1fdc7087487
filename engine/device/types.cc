#include "engine/device/types.h"

namespace tandem {

const char* to_string(Cause cause) {
  static constexpr const char* kNames[kCauseCount] = {"compute",  "host attention", "selection", "recall",
                                                      "offload",  "transfer",       "handoff",   "launch",
                                                      "sampling", "scheduler"};
  return kNames[static_cast<int>(cause)];
}

const char* to_string(Kind kind) {
  static constexpr const char* kNames[] = {"compute", "copy", "wait", "control"};
  return kNames[static_cast<int>(kind)];
}

const char* to_string(LaneKind kind) {
  static constexpr const char* kNames[] = {"device compute", "h2d",     "recall",    "d2h",          "side stream",
                                           "peer compute",   "to peer", "from peer", "host workers", "control"};
  return kNames[static_cast<int>(kind)];
}

}  // namespace tandem
