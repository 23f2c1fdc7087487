#include "engine/runtime/prefix_cache.h"

#include <algorithm>
#include <numeric>

#include "engine/common/error.h"
#include "engine/runtime/engine.h"

namespace tandem {
namespace {

constexpr std::uint64_t kMostBlock = std::uint64_t{1} << 31;  // tokens: more than any prompt has

}  // namespace

PrefixCache::PrefixCache(const EngineOptions& options)
    : block_tokens_(static_cast<std::uint32_t>(
          std::min(std::lcm(std::uint64_t{options.prefill_chunk}, std::uint64_t{kPageTokens}), kMostBlock))),
      chunk_(options.prefill_chunk),
      keep_queries_(options.keep_queries),
      column_sums_(options.column_sums) {}

std::uint32_t PrefixCache::blocks_of(std::span<const std::int32_t> tokens) const {
  const auto all = static_cast<std::uint32_t>(tokens.size());
  return (all - std::min(all, keep_queries_)) / block_tokens_;
}

std::vector<std::int32_t> PrefixCache::with_end(std::span<const std::int32_t> tokens) {
  constexpr std::int32_t kEnd = -1;
  std::vector<std::int32_t> ended(tokens.begin(), tokens.end());
  ended.push_back(kEnd);
  return ended;
}

PrefillTimes PrefixCache::times_at(std::uint32_t token, std::uint32_t reused,
                                   std::span<const PrefillTimes> chunks) const {
  const std::uint32_t chunk = (token - reused - 1) / chunk_;
  TANDEM_CHECK(token > reused && chunk < chunks.size(), "token {} behind {} in {} chunks", token, reused,
               chunks.size());
  return chunks[chunk];
}

std::unique_ptr<PrefixCache> make_prefix_cache(const EngineOptions& options, Device& device, KvStore& kv,
                                               const ModelShape& shape) {
  if (options.prefix_cache.bytes == 0) return nullptr;
  if (options.prefix_cache.folder.empty()) return make_prefix_memory(options, kv);
  return make_prefix_folder(options, device, kv, shape);
}

}  // namespace tandem
