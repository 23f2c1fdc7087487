#include "engine/device/types.h"

namespace tandem {

const char* to_string(Cause cause) {
  switch (cause) {
    case Cause::none:
      return "compute";
    case Cause::host_attention:
      return "host attention";
    case Cause::selection:
      return "selection";
    case Cause::recall:
      return "recall";
    case Cause::offload:
      return "offload";
    case Cause::transfer:
      return "transfer";
    case Cause::handoff:
      return "handoff";
    case Cause::launch:
      return "launch";
    case Cause::sampling:
      return "sampling";
    case Cause::scheduler:
      return "scheduler";
  }
  return "unknown cause";
}

const char* to_string(Kind kind) {
  switch (kind) {
    case Kind::compute:
      return "compute";
    case Kind::copy:
      return "copy";
    case Kind::wait:
      return "wait";
    case Kind::control:
      return "control";
  }
  return "unknown kind";
}

const char* to_string(LaneKind kind) {
  switch (kind) {
    case LaneKind::device_compute:
      return "device compute";
    case LaneKind::h2d:
      return "h2d";
    case LaneKind::recall:
      return "recall";
    case LaneKind::d2h:
      return "d2h";
    case LaneKind::side_compute:
      return "side stream";
    case LaneKind::peer_compute:
      return "peer compute";
    case LaneKind::to_peer:
      return "to peer";
    case LaneKind::from_peer:
      return "from peer";
    case LaneKind::host_workers:
      return "host workers";
    case LaneKind::control:
      return "control";
  }
  return "unknown lane";
}

}  // namespace tandem
