// A buffer in device or in host memory, chosen at run time, for data that methods place on either side.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <variant>

#include "engine/device/device.h"
#include "engine/kv/kv_store.h"

namespace tandem {

class TierBuffer {
 public:
  TierBuffer() = default;
  // NOLINTNEXTLINE(google-explicit-constructor)
  TierBuffer(DeviceBuffer buffer) : buffer_(std::move(buffer)) {}
  // NOLINTNEXTLINE(google-explicit-constructor)
  TierBuffer(HostBuffer buffer) : buffer_(std::move(buffer)) {}
  TierBuffer(Device& device, Tier tier, std::size_t bytes, std::string name) {
    if (tier == Tier::device) {
      buffer_ = device.allocate_device(bytes, std::move(name));
    } else {
      buffer_ = device.allocate_host(bytes, std::move(name));
    }
  }
  Tier tier() const { return buffer_.index() == 0 ? Tier::device : Tier::host; }
  std::size_t bytes() const {
    return std::visit([](const auto& b) { return b.bytes(); }, buffer_);
  }
  template <class T>
  const T* read(const BodyContext& ctx) const {
    return std::visit([&](const auto& b) { return ctx.read<T>(b); }, buffer_);
  }
  template <class T>
  T* write(const BodyContext& ctx) const {
    return std::visit([&](const auto& b) { return ctx.write<T>(b); }, buffer_);
  }
  Access reads(std::uint32_t begin = 0, std::uint32_t end = Range{}.end) const {
    return std::visit([&](const auto& b) { return b.reads(begin, end); }, buffer_);
  }
  Access writes(std::uint32_t begin = 0, std::uint32_t end = Range{}.end) const {
    return std::visit([&](const auto& b) { return b.writes(begin, end); }, buffer_);
  }

 private:
  std::variant<DeviceBuffer, HostBuffer> buffer_;
};

}  // namespace tandem
