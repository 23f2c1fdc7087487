#include "engine/device/device.h"

#include <algorithm>

#include "engine/common/error.h"

namespace tandem {

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

void Device::drain_after_error() noexcept {
  try {
    drain();
  } catch (...) {
  }
}

LaneId Device::lane(LaneKind kind) const {
  for (const LaneInfo& info : lanes())
    if (info.kind == kind) return info.id;
  check_failed(__FILE__, __LINE__, "lane of kind", fmt::format("the device has no lane of kind '{}'", to_string(kind)));
}

std::vector<LaneId> Device::worker_lanes() const {
  std::vector<LaneId> workers;
  workers.reserve(kMaxWorkers);
  for (const LaneInfo& info : lanes())
    if (info.kind == LaneKind::host_workers && workers.size() < kMaxWorkers) workers.push_back(info.id);
  return workers;
}

}  // namespace tandem
