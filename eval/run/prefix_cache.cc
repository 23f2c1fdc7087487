#include "eval/run/prefix_cache.h"

#include <chrono>
#include <fmt/core.h>

#include "engine/common/error.h"
#include "engine/model/safetensors.h"
#include "engine/model/weight_files.h"

namespace tandem::eval {
namespace {

namespace fs = std::filesystem;

/// Files being written that nobody has written to for a day: their process was killed.
void remove_left_over(const fs::path& folder) {
  constexpr auto kLong = std::chrono::hours(24);
  std::error_code end, error;
  for (auto entry = fs::directory_iterator(folder, end); !end && entry != fs::directory_iterator();
       entry.increment(end)) {
    if (entry->path().filename().native().find(".prefix.part") == std::string::npos) continue;
    const auto written = fs::last_write_time(entry->path(), error);
    if (!error && fs::file_time_type::clock::now() - written > kLong) fs::remove(entry->path(), error);
  }
}

}  // namespace

PrefixCache::PrefixCache(const PrefixFiles& files, const EngineOptions& engine) : files_(files) {
  if (files.folder.empty()) return;
  std::error_code refused;
  fs::create_directories(files_.folder, refused);
  if (refused)
    throw_input_error("--prefix-cache: '{}' cannot be made ({}).", files_.folder.string(), refused.message());
  remove_left_over(files_.folder);
  // Without column sums: the engine leaves them out where they are not needed.
  files_.identity = fmt::format("{}, KV {}, chunks {}, queries {}", files.identity, to_string(engine.precision),
                                engine.prefill_chunk, engine.keep_queries);
}

std::unique_ptr<Prefix> PrefixCache::prefill(Engine& engine, std::span<const std::int32_t> prompt) const {
  if (files_.folder.empty()) return engine.prefill(prompt);
  const std::uint64_t whose = content_hash(std::as_bytes(std::span(files_.identity)), 0);
  const auto file = files_.folder / fmt::format("{:016x}.prefix", content_hash(std::as_bytes(prompt), whose));
  if (auto prefix = engine.load(prompt, file, files_.identity)) return prefix;
  auto prefix = engine.prefill(prompt);
  if (!saves_) return prefix;
  try {
    if (files_.check) files_.check();
    engine.save(*prefix, file, files_.identity);
  } catch (const WeightsChanged&) {
    engine.release(*prefix);
    throw;
  } catch (const RunError& error) {  // a full disk, for example, which is no reason to end a run
    saves_ = false;
    if (files_.warn) files_.warn(fmt::format("{} The run goes on without keeping prompts.", error.what()));
  } catch (...) {
    engine.release(*prefix);
    throw;
  }
  return prefix;
}

}  // namespace tandem::eval
