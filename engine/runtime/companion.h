// Data that moves to host memory in the same operation as pages (Ops::move_to_host).
#pragma once

#include <cstdint>

#include "engine/device/device.h"
#include "engine/runtime/copy_op.h"

namespace tandem {

class Companion {
 public:
  Companion() = default;
  Companion(const Companion&) = default;
  Companion& operator=(const Companion&) = default;
  virtual ~Companion() = default;
  /// Adds accesses and waits.
  virtual void declare_move(std::uint32_t layer, Range tokens, Op& op) = 0;
  virtual void move(Copier& copier, std::uint32_t layer, Range tokens) const = 0;
  virtual void moved_by(std::uint32_t layer, Range tokens, Event done) = 0;
};

}  // namespace tandem
