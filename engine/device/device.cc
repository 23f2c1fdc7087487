#include "engine/device/device.h"

#include <algorithm>
#include <utility>

#include "engine/common/error.h"

namespace tandem {
namespace {

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

}  // namespace

void BodyContext::check_declared(const Allocation& buffer, bool write) const {
  // A declared write also allows reading: it conflicts with everything a read would conflict with.
  const bool declared = std::ranges::any_of(
      op_->access, [&](const Access& access) { return access.extent.buffer == buffer.id && (access.write || !write); });
  TANDEM_CHECK(declared, "operation '{}' {} buffer '{}' without having declared it", op_->name,
               write ? "writes" : "reads", buffer.name);
  TANDEM_CHECK(reach_ != Reach::host || buffer.memory != Memory::device,
               "operation '{}' of the CPU touches buffer '{}' on the GPU", op_->name, buffer.name);
  TANDEM_CHECK(reach_ != Reach::gpu || buffer.memory != Memory::host_only,
               "operation '{}' of the GPU touches buffer '{}', which only the CPU reaches", op_->name, buffer.name);
}

void BodyContext::settle(const Cost& cost, std::vector<Access> access) {
  settle(cost);
  access_ = std::move(access);
  has_access_ = true;
}

void BodyContext::settle(const Cost& cost) {
  TANDEM_CHECK(!has_cost_, "operation '{}' settles its cost twice", op_->name);
  cost_ = cost;
  cost_.upper_bound = false;
  cost_.launched_as(op_->cost);
  has_cost_ = true;
}

Device::Device(std::uint32_t host_threads, std::string clock_name)
    : lanes_(make_lanes(host_threads)),
      clock_name_(std::move(clock_name)),
      control_(lane(LaneKind::control)),
      history_(lanes_.size()) {}

void Device::drain_after_error() noexcept {
  try {
    drain();
  } catch (...) {
  }
}

LaneId Device::lane(LaneKind kind) const {
  for (const LaneInfo& info : lanes_)
    if (info.kind == kind) return info.id;
  check_failed(__FILE__, __LINE__, "lane of kind", fmt::format("the device has no lane of kind '{}'", to_string(kind)));
}

std::vector<LaneId> Device::worker_lanes() const {
  std::vector<LaneId> workers;
  workers.reserve(kMaxWorkers);
  for (const LaneInfo& info : lanes_)
    if (info.kind == LaneKind::host_workers && workers.size() < kMaxWorkers) workers.push_back(info.id);
  return workers;
}

void Device::begin_segment(const char* name) {
  TANDEM_CHECK(segment_ == nullptr, "segment '{}' begins inside segment '{}'", name, segment_);
  segment_ = name;
}

void Device::end_segment() {
  TANDEM_CHECK(segment_ != nullptr, "a segment ends that never began");
  segment_ = nullptr;
}

void Device::check_lane(LaneId lane_id, const char* name) const {
  TANDEM_CHECK(lane_id < lanes_.size(), "'{}' is submitted to lane {}, which does not exist", name, lane_id);
}

void Device::check_event(Event event, const char* name) const {
  TANDEM_CHECK(!event.valid() || (event.lane < lanes_.size() && event.value <= history_[event.lane].submitted),
               "'{}' waits for operation {} of lane {}, which was never submitted", name, event.value, event.lane);
}

std::int64_t Device::record_of(Event event) const {
  if (!event.valid()) return -1;
  const LaneHistory& lane = history_[event.lane];
  return event.value <= lane.drained ? -1 : lane.records[event.value - lane.drained - 1];
}

std::int64_t Device::last_of(LaneId lane_id) const {
  const std::vector<std::int64_t>& own = history_[lane_id].records;
  return own.empty() ? -1 : own.back();
}

std::exception_ptr Device::error_of(Event event) const {
  if (!event.valid()) return nullptr;
  const LaneHistory& lane = history_[event.lane];
  return lane.error && event.value >= lane.failed_at ? lane.error : nullptr;
}

void Device::rethrow_error_of(Event event) {
  const std::exception_ptr error = error_of(event);
  if (!error) return;
  if (error == unreported_) unreported_ = nullptr;
  std::rethrow_exception(error);
}

void Device::fail(LaneId lane_id, std::uint64_t value, const std::exception_ptr& error) {
  LaneHistory& lane = history_[lane_id];
  if (!error || lane.error) return;
  lane.error = error;
  lane.failed_at = value;
}

void Device::rethrow_unreported() {
  if (const std::exception_ptr error = std::exchange(unreported_, nullptr)) std::rethrow_exception(error);
}

void Device::all_drained() {
  for (LaneHistory& lane : history_) {
    lane.drained = lane.submitted;
    lane.records.clear();
    lane.error = nullptr;
  }
}

}  // namespace tandem
