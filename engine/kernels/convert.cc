#include "engine/kernels/convert.h"

#include <bit>
#include <cstring>

#include "engine/kernels/kernel_table.h"

namespace tandem {

float bf16_to_float(std::uint16_t bits) {
  return std::bit_cast<float>(std::uint32_t{bits} << 16);
}

float f16_to_float(std::uint16_t bits) {
  const std::uint32_t sign = std::uint32_t{bits & 0x8000u} << 16;
  const std::uint32_t magnitude = std::uint32_t{bits & 0x7fffu} << 13;
  if ((bits & 0x7c00u) == 0x7c00u) return std::bit_cast<float>(sign | magnitude | 0x7f800000u);
  const float value = std::bit_cast<float>(magnitude) * 0x1p112f;  // moves the exponent's bias from 15 to 127
  return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(value));
}

std::uint16_t float_to_bf16(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<std::uint16_t>((bits >> 16) | 0x40u);
  return static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

std::uint16_t float_to_f16(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (bits >> 16) & 0x8000u, magnitude = bits & 0x7fffffffu;
  const auto result = [&](std::uint32_t rest) { return static_cast<std::uint16_t>(sign | rest); };
  if (magnitude > 0x7f800000u) return result(0x7e00u);
  if (magnitude >= 0x477ff000u) return result(0x7c00u);  // 65520 and more round to infinity
  if (magnitude < 0x38800000u) {                         // below 2^-14: a multiple of 2^-24, which adding 0.5 rounds to
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    return result(std::bit_cast<std::uint32_t>(shifted) - std::bit_cast<std::uint32_t>(0.5f));
  }
  return result((magnitude - 0x38000000u + 0xfffu + ((magnitude >> 13) & 1u)) >> 13);
}

float load_element(const void* data, DType type, std::size_t i) {
  const char* at = static_cast<const char*>(data) + i * size_of(type);
  if (type == DType::f32) {
    float value;
    std::memcpy(&value, at, sizeof value);
    return value;
  }
  std::uint16_t bits;
  std::memcpy(&bits, at, sizeof bits);
  return type == DType::f16 ? f16_to_float(bits) : bf16_to_float(bits);
}

void to_f32(const void* data, DType type, std::size_t first, std::size_t n, float* out) {
  kernels().widen(data, type, first, n, out);
}

void from_f32(const float* x, DType type, std::size_t n, void* out) {
  kernels().narrow(x, type, n, out);
}

}  // namespace tandem
