// Some of a sequence's blocks, a bit each: how many there are, and in how many runs, without going through them.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <span>
#include <vector>

namespace tandem {

class BlockSet {
 public:
  /// Empty, with room for blocks below `blocks`.
  explicit BlockSet(std::uint32_t blocks) : words_((blocks + 63) / 64) {}

  void clear() { std::fill(words_.begin(), words_.end(), 0u); }
  void add(std::span<const std::uint32_t> blocks) {
    for (const std::uint32_t block : blocks) words_[block / 64] |= std::uint64_t{1} << block % 64;
  }
  bool contains(std::uint32_t block) const { return (words_[block / 64] >> block % 64 & 1) != 0; }
  std::uint32_t count() const {
    std::uint32_t sum = 0;
    for (const std::uint64_t word : words_) sum += static_cast<std::uint32_t>(std::popcount(word));
    return sum;
  }
  /// Runs of adjacent blocks.
  std::uint32_t runs() const {
    std::uint32_t sum = 0;
    std::uint64_t before = 0;  // whether the block before the word is in the set
    for (const std::uint64_t word : words_) {
      sum += static_cast<std::uint32_t>(std::popcount(word & ~(word << 1 | before)));
      before = word >> 63;
    }
    return sum;
  }
  // first() and last(): the set must not be empty.
  std::uint32_t first() const {
    std::uint32_t at = 0;
    while (words_[at] == 0) ++at;
    return at * 64 + static_cast<std::uint32_t>(std::countr_zero(words_[at]));
  }
  std::uint32_t last() const {
    std::size_t at = words_.size() - 1;
    while (words_[at] == 0) --at;
    return static_cast<std::uint32_t>(at * 64 + 63 - static_cast<std::uint32_t>(std::countl_zero(words_[at])));
  }

 private:
  std::vector<std::uint64_t> words_;
};

}  // namespace tandem
