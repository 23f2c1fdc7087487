// Perplexity in decode mode: a window's context is prefilled with full attention, then every further token of the text
// is fed and goes through the method, so that its losses add up as in a generation. Methods are compared on the same
// tokens. Writes windows and timings to a run folder as they are finished.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/device/device.h"
#include "engine/model/model.h"
#include "engine/runtime/engine.h"
#include "eval/perplexity/windows.h"
#include "eval/report/run_folder.h"
#include "eval/run/prefix_cache.h"
#include "eval/run/shard.h"

namespace tandem::eval {

inline constexpr std::uint32_t kPositionStretches = 8;  // of the scored tokens; fewer where fewer are scored

struct PerplexityOptions {
  std::vector<std::string> methods;  // specs; the first is the baseline
  std::optional<std::string> text;   // UTF-8; none: invented prose
  std::string text_name;             // stands for it in results: UTF-8, never empty
  std::string text_source;           // stands for it in sentences: the file as it was named
  std::uint64_t seed = 0;            // of invented prose
  std::uint32_t context = 1024;      // tokens of a window before the scored ones, BOS included
  std::uint32_t scored = 256;        // tokens of a window that are scored
  std::uint32_t windows = 32;
  std::uint32_t batch = 1;
  Shard shard = {};  // of the run's batches, those that are decoded here
  EngineOptions engine;
  PrefixFiles prefix_files;                                               // where prefilled windows are kept
  std::function<void(std::uint64_t done, std::uint64_t total)> progress;  // in windows times methods
};

/// Throws InputError for a text that is no UTF-8 or too short for the windows, windows
/// that the model has no positions for or that are too many (kMostWindowTokens), and contexts that are more than the
/// device's KV budget; Interrupted where options.engine.interrupted says so. To be called before the run folder is
/// made.
Windows cut_windows(const PerplexityOptions& options, const Model& model);

/// The manifest's entries that follow from the options (methods spelled out, text, protocol); its tokenizer is set
/// already.
void fill_manifest(const PerplexityOptions& options, Manifest& manifest);

/// Scores what the folder does not hold yet, and puts its lines in order. Windows do not overlap; the first begins with
/// the text. Throws Interrupted when options.engine.interrupted says so; finished windows are in the folder then.
/// `windows`: of these options.
void run_perplexity(const PerplexityOptions& options, const Windows& windows, const Model& model, Device& device,
                    ThreadPool& pool, RunFolder& folder);

}  // namespace tandem::eval
