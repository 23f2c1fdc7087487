// Prefilled prompts in a folder, so that a later run, with other methods or after an interruption, decodes behind them
// without computing them again.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "engine/runtime/engine.h"

namespace tandem::eval {

struct PrefixFiles {
  std::filesystem::path folder;      // empty: nothing is kept
  std::string identity;              // what a prefill depends on beside the prompt and EngineOptions
  std::function<void()> check = {};  // called before a prompt is kept; what it throws keeps it out, and ends the run
  std::function<void(const std::string&)> warn = {};  // told once, in a sentence, where prompts cannot be kept any more
};

class PrefixCache {
 public:
  /// `engine`: the options of the engine that prefills. Makes the folder; InputError where it cannot be made. Removes
  /// what killed processes left half written in it.
  PrefixCache(const PrefixFiles& files, const EngineOptions& engine);

  /// The prompt's prefix: from its file, else prefilled and written. A file that is damaged, or another prompt's, is
  /// written over, and so is one without column sums where they are needed. Where a file cannot be written, no more
  /// are, and the run goes on. Throws what prefilling throws.
  std::unique_ptr<Prefix> prefill(Engine& engine, std::span<const std::int32_t> prompt) const;

 private:
  PrefixFiles files_;
  mutable bool saves_ = true;  // no file could not be written yet
};

}  // namespace tandem::eval
