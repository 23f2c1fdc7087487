#include "engine/kv/prefix_index.h"

#include <algorithm>
#include <utility>

#include "engine/common/error.h"

namespace tandem {
namespace {

/// Mixes all bits (SplitMix64's last step; Steele, Lea, Flood 2014).
std::uint64_t mixed(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

}  // namespace

std::uint64_t chain_hash(std::uint64_t before, std::span<const std::int32_t> tokens) {
  constexpr std::uint64_t kStep = 0x9e3779b97f4a7c15ull;
  std::uint64_t hash = mixed(before + kStep * (tokens.size() + 1));  // differs from `before` for no tokens, too
  for (const std::int32_t token : tokens) hash = mixed((hash ^ static_cast<std::uint32_t>(token)) + kStep);
  return hash;
}

PrefixIndex::PrefixIndex(std::size_t budget, std::function<void(Block)> evicted, Hash hash)
    : budget_(budget), evicted_(std::move(evicted)), hash_(hash) {
  entries_[kRoot].pins = 1;  // never evicted
}

PrefixIndex::Entry& PrefixIndex::entry(Block block) {
  const auto found = entries_.find(block);
  TANDEM_CHECK(found != entries_.end(), "block {} of the prefix cache does not exist", block);
  return found->second;
}

void PrefixIndex::list(Block block, const Entry& entry) {
  if (entry.children == 0 && entry.pins == 0) evictable_.emplace(entry.used, block);
}

std::optional<PrefixIndex::Block> PrefixIndex::find(Block parent, std::span<const std::int32_t> tokens) {
  const auto [begin, end] = by_hash_.equal_range(hash_(entry(parent).hash, tokens));
  for (auto candidate = begin; candidate != end; ++candidate) {
    const Block block = candidate->second;
    Entry& e = entry(block);
    if (e.parent != parent || !std::ranges::equal(e.tokens, tokens)) continue;  // another's hash
    unlist(e);
    e.used = ++clock_;
    list(block, e);
    return block;
  }
  return std::nullopt;
}

std::vector<PrefixIndex::Block> PrefixIndex::longest(std::span<const std::int32_t> tokens, std::uint32_t block_tokens) {
  std::vector<Block> chain;
  Block last = kRoot;
  for (std::size_t first = 0; first + block_tokens <= tokens.size(); first += block_tokens) {
    const std::optional<Block> next = find(last, tokens.subspan(first, block_tokens));
    if (!next) break;
    chain.push_back(last = *next);
  }
  return chain;
}

std::optional<PrefixIndex::Block> PrefixIndex::insert(Block parent, std::span<const std::int32_t> tokens,
                                                      std::size_t bytes) {
  TANDEM_CHECK(!find(parent, tokens), "a block of {} tokens is in the prefix cache already", tokens.size());
  if (bytes > budget_) return std::nullopt;
  pin(parent);
  while (bytes > budget_ - bytes_ && evict_one()) {
  }
  unpin(parent);
  if (bytes > budget_ - bytes_) return std::nullopt;
  const Block block = next_++;
  Entry& before = entry(parent);
  unlist(before);
  ++before.children;
  Entry& e = entries_[block];
  e.parent = parent;
  e.hash = hash_(entry(parent).hash, tokens);
  e.tokens.assign(tokens.begin(), tokens.end());
  e.bytes = bytes;
  e.used = ++clock_;
  by_hash_.emplace(e.hash, block);
  bytes_ += bytes;
  list(block, e);
  return block;
}

void PrefixIndex::pin(Block block) {
  if (block == kRoot) return;
  Entry& e = entry(block);
  unlist(e);
  ++e.pins;
}

void PrefixIndex::unpin(Block block) {
  if (block == kRoot) return;
  Entry& e = entry(block);
  TANDEM_CHECK(e.pins > 0, "block {} of the prefix cache is not pinned", block);
  --e.pins;
  list(block, e);
}

bool PrefixIndex::evict_one() {
  if (evictable_.empty()) return false;
  const Block block = evictable_.begin()->second;
  const Entry& e = entry(block);
  unlist(e);
  const auto [begin, end] = by_hash_.equal_range(e.hash);
  by_hash_.erase(std::find_if(begin, end, [block](const auto& candidate) { return candidate.second == block; }));
  bytes_ -= e.bytes;
  const Block parent = e.parent;
  entries_.erase(block);
  Entry& before = entry(parent);
  --before.children;
  list(parent, before);
  evicted_(block);
  return true;
}

}  // namespace tandem
