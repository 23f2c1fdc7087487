// The prefix cache of one engine: its blocks are sequences of the KV store that share pages with the prompts that they
// come from and go to. Pages stay in the device tier; where that is full, the cache gives up its own first.
#include <algorithm>
#include <unordered_map>
#include <utility>

#include "engine/common/error.h"
#include "engine/kv/prefix_index.h"
#include "engine/runtime/engine.h"
#include "engine/runtime/prefix_cache.h"

namespace tandem {
namespace {

class PrefixMemory final : public PrefixCache {
 public:
  using Block = PrefixIndex::Block;

  PrefixMemory(const EngineOptions& options, KvStore& kv)
      : PrefixCache(options), kv_(kv), index_(options.prefix_cache.bytes, [this](Block block) { evicted(block); }) {
    kv_.on_full([this] { return index_.evict_one(); });
  }
  ~PrefixMemory() override { kv_.on_full({}); }
  PrefixMemory(const PrefixMemory&) = delete;
  PrefixMemory& operator=(const PrefixMemory&) = delete;

  Reused take(std::span<const std::int32_t> tokens, Prefix& prefix) override {
    std::vector<Block> chain = index_.longest(tokens, block_tokens());
    const std::size_t all = tokens.size() / block_tokens();
    std::optional<Block> rest;
    if (chain.size() == all)
      rest = index_.find(chain.empty() ? PrefixIndex::kRoot : chain.back(), tokens.subspan(all * block_tokens()));
    if (rest)
      chain.push_back(*rest);
    else
      chain.resize(usable(static_cast<std::uint32_t>(chain.size()), tokens.size()));
    prefix.block = chain.empty() ? PrefixIndex::kRoot : chain.back();
    index_.pin(prefix.block);
    Reused reused;
    for (const Block block : chain) {
      const Kept& kept = kept_.at(block);
      kv_.share(prefix.sequence, kept.sequence, {0, kv_.tokens(kept.sequence)});
      reused.times = kept.times;
    }
    reused.tokens = kv_.tokens(prefix.sequence);
    if (rest) {
      prefix.queries = kept_.at(*rest).queries;
      prefix.sums = kept_.at(*rest).sums;
    }
    return reused;
  }

  void publish(std::span<const std::int32_t> tokens, Prefix& prefix, std::uint32_t reused,
               std::span<const PrefillTimes> chunks) override {
    const auto all = static_cast<std::uint32_t>(tokens.size());
    for (std::uint32_t first = reused;; first += block_tokens()) {
      const std::uint32_t end = first + std::min(block_tokens(), all - first);
      const bool is_rest = end - first < block_tokens();
      const std::span<const std::int32_t> own = tokens.subspan(first, end - first);
      std::optional<Block> block = index_.find(prefix.block, own);
      if (!block) {
        std::size_t bytes = kv_.shape().slot_bytes() * kv_.shape().layers * blocks_for(end - first);
        if (is_rest) bytes += prefix.queries.values.bytes() + prefix.sums.values.bytes();
        block = index_.insert(prefix.block, own, bytes);
        if (!block) return;
        Kept& kept = kept_[*block];
        kept.sequence = kv_.create();
        kv_.share(kept.sequence, prefix.sequence, {first, end});
        kept.times = times_at(end, reused, chunks);
        if (is_rest) {
          kept.queries = prefix.queries;
          kept.sums = prefix.sums;
        }
      }
      index_.pin(*block);
      index_.unpin(std::exchange(prefix.block, *block));
      if (is_rest) return;
    }
  }

  void release(const Prefix& prefix) override { index_.unpin(prefix.block); }

 private:
  struct Kept {
    SequenceId sequence = 0;  // the block's tokens, from its first page on
    PrefillTimes times;
    PromptQueries queries;  // of a rest
    PromptSums sums;
  };

  void evicted(Block block) {
    kv_.destroy(kept_.at(block).sequence);
    kept_.erase(block);
  }

  KvStore& kv_;
  std::unordered_map<Block, Kept> kept_;
  PrefixIndex index_;
};

}  // namespace

std::unique_ptr<PrefixCache> make_prefix_memory(const EngineOptions& options, KvStore& kv) {
  return std::make_unique<PrefixMemory>(options, kv);
}

}  // namespace tandem
