// The index of a prefix cache: blocks of tokens in a tree, each behind the block before it. A block stands for all
// tokens from a prompt's first to its own last, since the KV of a token depends on every token before it.
//
// A block is found by the hash of its parent's hash and its own tokens, and taken only if parent and tokens are the
// same (RadixAttention, Zheng et al. 2024; block hashes, vLLM; the article on long-context serving, section 5, "Prefix
// Caching", whose sketch hashes a block's own tokens alone and would return the KV of another prefix). Eviction takes
// the least recently used of the blocks that nothing stands behind and nobody has pinned, so no block outlives its
// parent. What a block keeps is its owner's matter. Not thread safe; the same calls give the same blocks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

namespace tandem {

/// Hash of tokens behind others: `before` is the hash of those, or a seed. Also of no tokens.
std::uint64_t chain_hash(std::uint64_t before, std::span<const std::int32_t> tokens);

class PrefixIndex {
 public:
  using Block = std::uint64_t;       // a number that no other block gets
  static constexpr Block kRoot = 0;  // before every prompt
  using Hash = std::uint64_t (*)(std::uint64_t before, std::span<const std::int32_t> tokens);

  /// `budget`: bytes of all blocks together. `evicted`: called with every block that goes.
  PrefixIndex(std::size_t budget, std::function<void(Block)> evicted, Hash hash = chain_hash);

  /// The block behind `parent` that has exactly these tokens. It counts as used now.
  std::optional<Block> find(Block parent, std::span<const std::int32_t> tokens);
  /// The longest chain of blocks of `block_tokens` tokens that `tokens` begin with, from the first on; all count as
  /// used.
  std::vector<Block> longest(std::span<const std::int32_t> tokens, std::uint32_t block_tokens);
  /// Adds a block, which must not be there yet, and evicts what the budget has no room for beside it. nullopt where
  /// pinned blocks and the parent leave too little room.
  std::optional<Block> insert(Block parent, std::span<const std::int32_t> tokens, std::size_t bytes);

  /// A pinned block and all before it stay. Pins add up; the root needs none.
  void pin(Block block);
  void unpin(Block block);

  /// Evicts one block; false where there is none to evict.
  bool evict_one();

  std::size_t bytes() const { return bytes_; }
  std::size_t blocks() const { return entries_.size() - 1; }

 private:
  struct Entry {
    Block parent = kRoot;
    std::uint64_t hash = 0;
    std::vector<std::int32_t> tokens;
    std::size_t bytes = 0;
    std::uint32_t children = 0, pins = 0;
    std::uint64_t used = 0;  // by clock_; no two have the same
  };

  Entry& entry(Block block);
  /// Puts a block among the evictable ones where it is one.
  void list(Block block, const Entry& entry);
  void unlist(const Entry& entry) { evictable_.erase(entry.used); }

  std::size_t budget_, bytes_ = 0;
  std::function<void(Block)> evicted_;
  Hash hash_;
  std::unordered_map<Block, Entry> entries_;  // the root, too
  std::unordered_multimap<std::uint64_t, Block> by_hash_;
  std::map<std::uint64_t, Block> evictable_;  // by Entry::used
  std::uint64_t clock_ = 0;
  Block next_ = kRoot + 1;
};

}  // namespace tandem
