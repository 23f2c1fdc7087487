// What an observer is shown of a GPU, whose memory it cannot read: copies of an operation's rows, for which the control
// thread waits before it submits anything else. Times of a forward pass that is observed mean nothing.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/device/device.h"
#include "engine/device/launch_context.h"
#include "engine/kernels/pointwise.h"
#include "engine/runtime/observer.h"
#include "engine/runtime/plan.h"

namespace tandem {

class ShownRows {
 public:
  ShownRows(Device& device, const ModelShape& shape, std::uint32_t max_rows);

  /// Room for K and V of rows as they are computed, before the store's type rounds them: [row][Hkv][D] f32 each.
  /// Whoever fills it declares it.
  const DeviceBuffer& kv() const { return kv_; }
  /// Where prepare_qkv_cuda puts them, and `tokens` [rows] for that: of each its position and place.
  KvPlaces places(const LaunchContext& ctx, const std::vector<std::uint32_t>& positions,
                  std::vector<QkvToken>& tokens) const;

  /// Rows of x [row][hidden], q [row][Hq][D] and kv() that are there when `written` is done. What the observer throws
  /// comes out of these.
  void show_qkv(ForwardObserver& observer, std::uint32_t layer, const std::vector<std::uint32_t>& positions,
                const DeviceBuffer& x, const DeviceBuffer& q, Event written);
  void show_predicted(ForwardObserver& observer, std::uint32_t layer, const std::vector<std::uint32_t>& positions,
                      const DeviceBuffer& q, Event written);

 private:
  struct Part {
    DeviceBuffer from;
    HostBuffer to;
    std::size_t floats = 0;
  };
  void copy(std::uint32_t layer, std::vector<Part> parts, Event written);

  Device& device_;
  std::size_t hidden_, dim_, q_width_, kv_width_, max_rows_;  // floats; rows
  DeviceBuffer kv_;                                           // K of an operation's rows, then V
  HostBuffer host_x_, host_q_, host_kv_;
};

}  // namespace tandem
