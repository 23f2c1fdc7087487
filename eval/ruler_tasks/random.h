// Random numbers of the synthetic tasks and of the bootstrap: integer arithmetic only, so that the same seed gives the
// same sample on every machine and compiler (std::uniform_int_distribution does not promise that).
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/common/drawing.h"

namespace tandem::eval {

/// FNV-1a, 64 bits: names a text (a task, a file's content). Not cryptographic.
constexpr std::uint64_t fnv1a64(std::string_view text) {
  std::uint64_t hash = 0xcbf29ce484222325ull;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ull;
  return hash;
}

/// xoshiro256** 1.0 (Blackman, Vigna 2018), its state filled by splitmix64 as the authors advise.
class Random {
 public:
  explicit constexpr Random(std::uint64_t seed) {
    for (std::uint64_t& word : state_) {
      word = mix64(seed);
      seed += 0x9e3779b97f4a7c15ull;
    }
  }

  constexpr std::uint64_t next() {
    const std::uint64_t result = std::rotl(state_[1] * 5, 7) * 9;
    const std::uint64_t t = state_[1] << 17;
    state_[2] ^= state_[0];
    state_[3] ^= state_[1];
    state_[1] ^= state_[2];
    state_[0] ^= state_[3];
    state_[2] ^= t;
    state_[3] = std::rotl(state_[3], 45);
    return result;
  }

  /// Uniform in [0, n), n > 0, without bias: draws as many bits as n - 1 has and rejects what is too large.
  constexpr std::uint64_t below(std::uint64_t n) {
    if (n <= 1) return 0;
    const int shift = std::countl_zero(n - 1);
    for (;;) {
      const std::uint64_t x = next() >> shift;
      if (x < n) return x;
    }
  }

  /// What below(n) gives, out.size() times; 0 < n < 2^32. Nothing branches on a number that is rejected, which nobody
  /// can predict: several times as fast.
  constexpr void fill_below(std::uint64_t n, std::span<std::uint32_t> out) {
    const int shift = n > 1 ? std::countl_zero(n - 1) : 63;
    for (std::size_t have = 0; have < out.size();) {
      const std::uint64_t x = n > 1 ? next() >> shift : 0;
      out[have] = static_cast<std::uint32_t>(x);
      have += x < n ? 1 : 0;
    }
  }

 private:
  std::uint64_t state_[4] = {};
};

template <class Item>
void shuffle(std::vector<Item>& items, Random& random) {
  for (std::size_t i = items.size(); i > 1; --i) std::swap(items[i - 1], items[random.below(i)]);
}

}  // namespace tandem::eval
