// Views of stored numbers. No ownership.
#pragma once

#include <cstddef>
#include <cstdint>

#include "engine/common/on_both.h"

namespace tandem {

enum class DType : std::uint8_t { f32, f16, bf16 };
TANDEM_ON_BOTH constexpr std::size_t size_of(DType type) {
  return type == DType::f32 ? 4 : 2;
}
constexpr const char* to_string(DType type) {
  return type == DType::f32 ? "f32" : type == DType::f16 ? "f16" : "bf16";
}

/// A dense row-major matrix [rows][cols] of a stored type; a vector has rows == 1. May be unaligned beyond the element
/// size.
struct MatrixView {
  const void* data = nullptr;
  DType type = DType::f32;
  std::uint32_t rows = 0, cols = 0;
  std::size_t bytes() const { return std::size_t{rows} * cols * size_of(type); }
  explicit operator bool() const { return data != nullptr; }
};

}  // namespace tandem
