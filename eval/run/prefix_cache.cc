#include "eval/run/prefix_cache.h"

#include <fmt/core.h>

#include "engine/common/error.h"
#include "engine/model/safetensors.h"

namespace tandem::eval {

PrefixCache::PrefixCache(const PrefixFiles& files, const EngineOptions& engine) : folder_(files.folder) {
  if (folder_.empty()) return;
  std::error_code refused;
  std::filesystem::create_directories(folder_, refused);
  if (refused) throw_input_error("--prefix-cache: '{}' cannot be made ({}).", folder_.string(), refused.message());
  identity_ = fmt::format("{}, KV {}, chunks {}, queries {}, sums {}", files.identity, to_string(engine.precision),
                          engine.prefill_chunk, engine.keep_queries, engine.column_sums ? 1 : 0);
}

std::unique_ptr<Prefix> PrefixCache::prefill(Engine& engine, std::span<const std::int32_t> prompt) const {
  if (folder_.empty()) return engine.prefill(prompt);
  const std::uint64_t whose = content_hash(std::as_bytes(std::span(identity_.data(), identity_.size())), 0);
  const auto file = folder_ / fmt::format("{:016x}.prefix", content_hash(std::as_bytes(prompt), whose));
  if (auto prefix = engine.load(prompt, file, identity_)) return prefix;
  auto prefix = engine.prefill(prompt);
  try {
    engine.save(*prefix, file, identity_);
  } catch (...) {
    engine.release(*prefix);
    throw;
  }
  return prefix;
}

}  // namespace tandem::eval
