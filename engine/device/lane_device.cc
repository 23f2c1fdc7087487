#include "engine/device/lane_device.h"

#include <utility>

#include "engine/common/error.h"

namespace tandem {

std::vector<LaneInfo> make_lanes(std::uint32_t host_threads) {
  std::vector<LaneInfo> lanes = {{0, LaneKind::control, "control", 1, false},
                                 {1, LaneKind::device_compute, "device", 1, true},
                                 {2, LaneKind::h2d, "h2d", 1, false},
                                 {3, LaneKind::d2h, "d2h", 1, false},
                                 {4, LaneKind::host_workers, "host", host_threads, false},
                                 {5, LaneKind::recall, "recall", 1, false},
                                 {6, LaneKind::side_compute, "side stream", 1, false},
                                 {7, LaneKind::peer_compute, "peer", 1, false},
                                 {8, LaneKind::to_peer, "to peer", 1, false},
                                 {9, LaneKind::from_peer, "from peer", 1, false}};
  for (std::uint32_t worker = 2; worker <= Device::kMaxWorkers; ++worker)
    lanes.push_back({static_cast<LaneId>(lanes.size()), LaneKind::host_workers, fmt::format("host {}", worker),
                     host_threads, false});
  return lanes;
}

LaneDevice::LaneDevice(std::vector<LaneInfo> lanes, std::string clock_name)
    : lanes_(std::move(lanes)),
      clock_name_(std::move(clock_name)),
      control_(LaneDevice::lane(LaneKind::control)),
      history_(lanes_.size()) {}

void LaneDevice::begin_segment(const char* name) {
  TANDEM_CHECK(segment_ == nullptr, "segment '{}' begins inside segment '{}'", name, segment_);
  segment_ = name;
}

void LaneDevice::end_segment() {
  TANDEM_CHECK(segment_ != nullptr, "a segment ends that never began");
  segment_ = nullptr;
}

void LaneDevice::check_lane(LaneId lane_id, const char* name) const {
  TANDEM_CHECK(lane_id < lanes_.size(), "'{}' is submitted to lane {}, which does not exist", name, lane_id);
}

void LaneDevice::check_event(Event event, const char* name) const {
  TANDEM_CHECK(!event.valid() || (event.lane < lanes_.size() && event.value <= history_[event.lane].submitted),
               "'{}' waits for operation {} of lane {}, which was never submitted", name, event.value, event.lane);
}

std::int64_t LaneDevice::record_of(Event event) const {
  if (!event.valid()) return -1;
  const LaneHistory& lane = history_[event.lane];
  return event.value <= lane.drained ? -1 : lane.records[event.value - lane.drained - 1];
}

std::int64_t LaneDevice::last_of(LaneId lane_id) const {
  const std::vector<std::int64_t>& own = history_[lane_id].records;
  return own.empty() ? -1 : own.back();
}

std::exception_ptr LaneDevice::error_of(Event event) const {
  if (!event.valid()) return nullptr;
  const LaneHistory& lane = history_[event.lane];
  return lane.error && event.value >= lane.failed_at ? lane.error : nullptr;
}

void LaneDevice::rethrow_error_of(Event event) {
  const std::exception_ptr error = error_of(event);
  if (!error) return;
  if (error == unreported_) unreported_ = nullptr;
  std::rethrow_exception(error);
}

void LaneDevice::fail(LaneId lane_id, std::uint64_t value, const std::exception_ptr& error) {
  LaneHistory& lane = history_[lane_id];
  if (!error || lane.error) return;
  lane.error = error;
  lane.failed_at = value;
}

void LaneDevice::rethrow_unreported() {
  if (const std::exception_ptr error = std::exchange(unreported_, nullptr)) std::rethrow_exception(error);
}

void LaneDevice::all_drained() {
  for (LaneHistory& lane : history_) {
    lane.drained = lane.submitted;
    lane.records.clear();
    lane.error = nullptr;
  }
}

TraceRecord RealTimeDevice::launch_record(const Op& op, LaneId lane_id, Nanos entered) const {
  return {.name = lanes_[lane_id].kind == LaneKind::host_workers ? "submit" : "launch",
          .kind = Kind::control,
          .cause = Cause::launch,
          .lane = control_,
          .layer = op.layer,
          .start = entered,
          .end = now(),
          .cost = {}};
}

TraceRecord RealTimeDevice::wait_record(Nanos seen) const {
  return {.name = "host wait", .kind = Kind::wait, .lane = control_, .start = seen, .end = seen, .cost = {}};
}

}  // namespace tandem
