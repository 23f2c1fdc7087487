// Weights and KV of 8 or 4 bits, as bytes to hold and to read. Shapes are simulated in bf16; fewer bits change the
// machine's rates in place of the shape, so that the engine needs no type that no kernel computes with.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "engine/device/profile.h"

namespace tandem::eval {

struct Precision {
  std::uint32_t weight_bits = 16, kv_bits = 16;  // of a number: 16 (bf16), 8 or 4
  bool operator==(const Precision&) const = default;

  /// Bytes that `bf16_bytes` become. Scales of quantisation groups are not counted.
  std::size_t weights(std::size_t bf16_bytes) const { return bf16_bytes * weight_bits / 16; }
  std::size_t kv(std::size_t bf16_bytes) const { return bf16_bytes * kv_bits / 16; }
};

/// InputError that names the option where a number of bits is not 16, 8 or 4.
void check_precision(const Precision& precision);

/// "bf16", "8 bits".
std::string bits_text(std::uint32_t bits);
/// "weights and KV in bf16", "weights in 4 bits and KV in bf16".
std::string precision_text(const Precision& precision);

/// The machine on which a shape in bf16 takes as long as one of this precision takes on `machine`: products of a decode
/// step read weights, and attention, the link and host memory move KV, at rates that are higher by 16 / bits. All KV
/// over the link and all pieces shrink; launches, products, digests on the device and each CPU thread's own rate stay.
/// Attention's arithmetic speeds up with its bytes, which limit it at every shape here. Unpacking is free. InputError
/// for a CPU that plays the device, whose weights share the memory of the KV.
HardwareProfile at_precision(HardwareProfile machine, const Precision& precision);

/// A sentence on this for reports of fewer bits.
inline constexpr const char* kHowBitsCount =
    "Fewer bits count as fewer bytes to hold and to read; unpacking and scales of groups count nothing, and what "
    "quantised weights or KV lose is not measured here.";

}  // namespace tandem::eval
