// The arithmetic of sampling that CPU and GPU must agree on to the last bit: every operation here is exact, a whole
// number, or one IEEE operation whose rounding no compiler may change (products that are added go through fma).
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "engine/common/on_both.h"

namespace tandem::sampling {

constexpr double kLog2E = 1.4426950408889634074;

/// The 64 random bits of a counter: Philox4x32-10, the first two words.
TANDEM_ON_BOTH inline std::uint64_t random_bits(std::uint64_t seed, std::uint64_t counter) {
  std::uint32_t c[4] = {static_cast<std::uint32_t>(counter), static_cast<std::uint32_t>(counter >> 32), 0, 0};
  std::uint32_t k[2] = {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)};
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t even = std::uint64_t{0xD2511F53u} * c[0], odd = std::uint64_t{0xCD9E8D57u} * c[2];
    const std::uint32_t next[4] = {static_cast<std::uint32_t>(odd >> 32) ^ c[1] ^ k[0], static_cast<std::uint32_t>(odd),
                                   static_cast<std::uint32_t>(even >> 32) ^ c[3] ^ k[1],
                                   static_cast<std::uint32_t>(even)};
    for (int i = 0; i < 4; ++i) c[i] = next[i];
    k[0] += 0x9E3779B9u;
    k[1] += 0xBB67AE85u;
  }
  return c[0] | std::uint64_t{c[1]} << 32;
}

/// floor(bits * total / 2^64): below `total`, every value with the same probability up to total / 2^64.
TANDEM_ON_BOTH inline std::uint64_t scaled(std::uint64_t bits, std::uint64_t total) {
  const std::uint64_t low = (bits & 0xffffffffu) * (total & 0xffffffffu), a = (bits >> 32) * (total & 0xffffffffu);
  const std::uint64_t b = (bits & 0xffffffffu) * (total >> 32), middle = (low >> 32) + (a & 0xffffffffu) + b;
  return (bits >> 32) * (total >> 32) + (a >> 32) + (middle >> 32);
}

/// exp((logit - best) / temperature) in units of 2^-40, to about 1e-11; log2_scale = kLog2E / temperature. 0 for
/// -infinity and NaN.
TANDEM_ON_BOTH inline std::uint64_t weight(float logit, float best, double log2_scale) {
  const double below = static_cast<double>(logit) - static_cast<double>(best);
  const double whole = floor(below * log2_scale);
  if (!(whole >= -41.0)) return 0;
  const double y = fma(below, log2_scale, -whole - 0.5) * 0.69314718055994530942;  // within ln 2 / 2
  double power = 1.0 / 3628800;                                                    // exp(y) by its series
  const double terms[10] = {1.0 / 362880, 1.0 / 40320, 1.0 / 5040, 1.0 / 720, 1.0 / 120, 1.0 / 24, 1.0 / 6, 0.5, 1, 1};
  for (int i = 0; i < 10; ++i) power = fma(power, y, terms[i]);
  const std::uint64_t exponent = static_cast<std::uint64_t>(static_cast<std::int64_t>(whole) + 40 + 1023) << 52;
  double unit = 0;  // 2^(40 + whole)
  std::memcpy(&unit, &exponent, sizeof unit);
  return static_cast<std::uint64_t>(fma(power * 1.41421356237309504880, unit, 0.5));
}

/// The weight that the best tokens of a filter by top_p have to reach.
TANDEM_ON_BOTH inline std::uint64_t least_sum(float top_p, std::uint64_t total) {
  const std::uint64_t least = static_cast<std::uint64_t>(ceil(static_cast<double>(top_p) * static_cast<double>(total)));
  return least < total ? least : total;
}

TANDEM_ON_BOTH inline bool heavy_enough(std::uint64_t weight, float min_p, std::uint64_t best) {
  return static_cast<double>(weight) >= static_cast<double>(min_p) * static_cast<double>(best);
}

}  // namespace tandem::sampling
