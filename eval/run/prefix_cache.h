// Prefilled prompts in a folder, so that a later run, with other methods or after an interruption, decodes behind them
// without computing them again.
#pragma once

#include <filesystem>
#include <memory>
#include <span>
#include <string>

#include "engine/runtime/engine.h"

namespace tandem::eval {

struct PrefixFiles {
  std::filesystem::path folder;  // empty: nothing is kept
  std::string identity;          // what a prefill depends on beside the prompt and EngineOptions
};

class PrefixCache {
 public:
  /// `engine`: the options of the engine that prefills. Makes the folder; InputError where it cannot be made.
  PrefixCache(const PrefixFiles& files, const EngineOptions& engine);

  /// The prompt's prefix: from its file, else prefilled and written. A file that is damaged, or another prompt's, is
  /// written over. Throws what prefilling throws, and RunError where a file cannot be written.
  std::unique_ptr<Prefix> prefill(Engine& engine, std::span<const std::int32_t> prompt) const;

 private:
  std::filesystem::path folder_;
  std::string identity_;
};

}  // namespace tandem::eval
