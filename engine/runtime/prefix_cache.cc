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

std::uint32_t PrefixCache::usable(std::uint32_t found, std::size_t tokens) const {
  if (column_sums_ || tokens < keep_queries_) return 0;
  return std::min(found, static_cast<std::uint32_t>((tokens - keep_queries_) / block_tokens_));
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
