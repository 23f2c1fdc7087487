// Memory as a strong type: a DeviceBuffer has no pointer that host code could touch, on any device. Operation bodies
// unwrap both kinds through their BodyContext, which checks that the operation declared the access.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "engine/device/types.h"

namespace tandem {

/// host_only: no operation of a device lane touches it, so that on a GPU it need not be page-locked, which takes every
/// page of it at once.
enum class Memory : std::uint8_t { device, host, host_only };

/// Bytes owned by a device. Pages of the memory are touched lazily, so that a large budget costs nothing until used.
struct Allocation {
  BufferId id = 0;
  Memory memory = Memory::device;
  std::size_t bytes = 0;
  std::string name;
  std::shared_ptr<std::byte> data;  // gives the memory back
};

/// Shared handle of an allocation; the memory is returned with the last handle.
template <Memory M>
class BasicBuffer {
 public:
  BasicBuffer() = default;
  explicit BasicBuffer(std::shared_ptr<Allocation> allocation) : allocation_(std::move(allocation)) {}
  BufferId id() const { return allocation_->id; }
  std::size_t bytes() const { return allocation_ ? allocation_->bytes : 0; }
  const std::string& name() const { return allocation_->name; }
  explicit operator bool() const { return allocation_ != nullptr; }

  /// Access to rows [begin, end) of this buffer (a "row" is whatever unit its owner counts in).
  Access reads(std::uint32_t begin = 0, std::uint32_t end = Range{}.end) const { return access(begin, end, false); }
  Access writes(std::uint32_t begin = 0, std::uint32_t end = Range{}.end) const { return access(begin, end, true); }

 private:
  friend class BodyContext;
  friend class Device;
  Access access(std::uint32_t begin, std::uint32_t end, bool write) const {
    return {{.buffer = id(), .heads = {}, .pages = {begin, end}}, write};
  }
  std::shared_ptr<Allocation> allocation_;
};

using DeviceBuffer = BasicBuffer<Memory::device>;
using HostBuffer = BasicBuffer<Memory::host>;

}  // namespace tandem
