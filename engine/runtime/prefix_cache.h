// The prefix cache keeps the KV of prompts' beginnings for later prompts: of the same engine in its KV store, whose
// pages they share (prefix_memory.cc), or of later runs and other processes in a folder (prefix_folder.cc).
//
// A prompt is cut into blocks, whole prefill chunks that end with a whole page, and a rest, which has all queries that
// are kept (EngineOptions::keep_queries). A prompt reuses the longest chain of blocks that it begins with; the chunks
// behind them are submitted as without the cache, on the same bits, so that logits and KV are those of a prefill
// without the cache bit for bit, on every device. The rest, with its last queries and column sums, serves the same
// prompt only. Column sums take in every query: an engine that keeps them reuses whole prompts only.
//
// Only Engine::prefill publishes. What methods evict from their forks and what they append with attention of their own
// has no way in. A block's time is that of its first prefill, so that a reused prompt tells the prefill time that it
// would have taken.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/device/device.h"

namespace tandem {

class KvStore;
struct EngineOptions;
struct ModelShape;
struct Prefix;

struct PrefixCacheOptions {
  std::size_t bytes = 0;         // of all that is kept; the least recently used goes first. 0: there is no cache
  std::filesystem::path folder;  // empty: in the KV store
  // For a folder:
  std::string identity;         // what a prefill depends on beside its tokens and EngineOptions
  std::function<void()> check;  // called before anything is kept; what it throws keeps it out, and ends the prefill
  std::function<void(const std::string&)> warn;  // told once, in a sentence, that nothing more can be written
};

/// Device time of a prompt from its beginning to the end of a block; `sums_ns`, what made column sums, is part of it.
struct PrefillTimes {
  Nanos prefill_ns = 0, sums_ns = 0;
};

class PrefixCache {
 public:
  /// A prompt's tokens whose KV was in the cache, from the first on, and the times of their prefill.
  struct Reused {
    std::uint32_t tokens = 0;
    PrefillTimes times;
  };

  explicit PrefixCache(const EngineOptions& options);
  virtual ~PrefixCache() = default;

  /// Gives the prefix, whose sequence is empty and which has room for queries and sums, the KV of as many of `tokens`
  /// as can be reused; of all of them, then with queries and sums. The device is idle, before and after. InputError
  /// where the KV store is full; the caller destroys the sequence then.
  virtual Reused take(std::span<const std::int32_t> tokens, Prefix& prefix) = 0;
  /// Keeps what is missing of a prefix that the engine has prefilled behind what was reused. `chunks`: times at the end
  /// of each chunk of that, from the prompt's beginning on. Throws what PrefixCacheOptions::check throws.
  virtual void publish(std::span<const std::int32_t> tokens, Prefix& prefix, std::uint32_t reused,
                       std::span<const PrefillTimes> chunks) = 0;
  /// The prefix is about to be destroyed.
  virtual void release(const Prefix&) {}

 protected:
  std::uint32_t block_tokens() const { return block_tokens_; }
  /// Blocks of a prompt before its rest.
  std::uint32_t blocks_of(std::span<const std::int32_t> tokens) const;
  /// Whether blocks may be reused without the rest.
  bool reuses_blocks() const { return !column_sums_; }
  /// Tokens and a mark behind them that is no token, so that a rest is never taken for a block.
  static std::vector<std::int32_t> with_end(std::span<const std::int32_t> tokens);
  /// Times at a token behind the reused ones.
  PrefillTimes times_at(std::uint32_t token, std::uint32_t reused, std::span<const PrefillTimes> chunks) const;

 private:
  std::uint32_t block_tokens_, chunk_, keep_queries_;
  bool column_sums_;
};

/// nullptr where the options want none. InputError where the folder cannot be made.
std::unique_ptr<PrefixCache> make_prefix_cache(const EngineOptions& options, Device& device, KvStore& kv,
                                               const ModelShape& shape);

// The two kinds.
std::unique_ptr<PrefixCache> make_prefix_memory(const EngineOptions& options, KvStore& kv);
std::unique_ptr<PrefixCache> make_prefix_folder(const EngineOptions& options, Device& device, KvStore& kv,
                                                const ModelShape& shape);

}  // namespace tandem
