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
    const std::uint32_t blocks = blocks_of(tokens);
    std::vector<Block> chain = index_.longest(tokens.first(std::size_t{blocks} * block_tokens()), block_tokens());
    std::optional<Block> rest;
    if (chain.size() == blocks) rest = index_.find(last_of(chain), with_end(tokens.subspan(blocks * block_tokens())));
    if (rest)
      chain.push_back(*rest);
    else if (!reuses_blocks())
      chain.clear();
    prefix.block = last_of(chain);
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
    const std::uint32_t all = static_cast<std::uint32_t>(tokens.size()), rest = blocks_of(tokens) * block_tokens();
    for (std::uint32_t first = reused; first < rest; first += block_tokens()) {
      Kept kept;
      kept.times = times_at(first + block_tokens(), reused, chunks);
      if (!keep(tokens.subspan(first, block_tokens()), {first, first + block_tokens()}, prefix, std::move(kept)))
        return;
    }
    keep(with_end(tokens.subspan(rest)), {rest, all}, prefix,
         {.times = times_at(all, reused, chunks), .queries = prefix.queries, .sums = prefix.sums});
  }

  void release(const Prefix& prefix) override { index_.unpin(prefix.block); }

 private:
  struct Kept {
    SequenceId sequence = 0;  // the block's tokens, from its first page on
    PrefillTimes times;
    PromptQueries queries;  // of a rest
    PromptSums sums;
  };

  static Block last_of(const std::vector<Block>& chain) { return chain.empty() ? PrefixIndex::kRoot : chain.back(); }

  /// Keeps tokens of the prefix as the block behind its last one, unless it is there. False where there is no room.
  bool keep(std::span<const std::int32_t> key, Range own, Prefix& prefix, Kept kept) {
    std::optional<Block> block = index_.find(prefix.block, key);
    if (!block) {
      const std::size_t pages = kv_.shape().layers * std::size_t{blocks_for(own.end - own.begin)};
      block = index_.insert(prefix.block, key,
                            pages * kv_.shape().slot_bytes() + kept.queries.values.bytes() + kept.sums.values.bytes());
      if (!block) return false;
      kept.sequence = kv_.create();
      kv_.share(kept.sequence, prefix.sequence, own);
      kept_[*block] = std::move(kept);
    }
    index_.pin(*block);
    index_.unpin(std::exchange(prefix.block, *block));
    return true;
  }

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
