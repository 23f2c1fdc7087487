// What goes to host memory along with pages, in one operation (Ops::move_to_host).
#pragma once

#include <cstdint>

#include "engine/device/copy_list.h"
#include "engine/device/device.h"
#include "engine/device/launch_context.h"

namespace tandem {

class Companion {
 public:
  Companion() = default;
  Companion(const Companion&) = default;
  Companion& operator=(const Companion&) = default;
  virtual ~Companion() = default;
  /// Adds accesses, waits and costs.
  virtual void declare_move(std::uint32_t layer, Range tokens, Op& op) = 0;
  virtual void move(BodyContext& ctx, std::uint32_t layer, Range tokens) const = 0;
  virtual void launch_move(LaunchContext& ctx, std::uint32_t layer, Range tokens, CopyList& list) const = 0;
  virtual void moved_by(std::uint32_t layer, Range tokens, Event done) = 0;
};

}  // namespace tandem
