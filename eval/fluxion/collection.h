// A folder of training data for Fluxion's predictor: one safetensors file per prompt (samples.h) and a manifest.
//   manifest.json                     schema, plan (what all rows have in common), shards, finished
//   <task>-<length>-<index>.safetensors
// The manifest is written again after every shard, whose content hash it then holds, so that a run that was ended at
// any time can go on; it names the programs that made shards. Nothing in the folder depends on the time, the
// threads or how often a run was ended: the same command gives the same bytes on the same instruction set.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "eval/fluxion/samples.h"

namespace tandem::eval {

/// What a prompt is called; its tokens are made when its turn comes.
struct CollectPrompt {
  std::string task;  // of RULER, or "text"
  std::uint32_t length = 0, index = 0;
  std::string file() const;  // "niah_single_1-1024-0003.safetensors"
};

/// All prompts of a run and where they come from.
struct CollectSource {
  std::string tandem_version, git_commit, isa;
  std::string model, weights_hash, config_hash, tokenizer_hash;
  ModelShape shape;
  std::string prompts;              // "RULER, embedded" and the files of its texts, or a text's file and hash
  std::vector<CollectPrompt> list;  // in the order in which they are run
  std::function<std::vector<std::int32_t>(const CollectPrompt&)> tokens;
  /// Throws WeightsChanged; called before a prompt counts, and with `all_bytes` when all are finished. May be empty.
  std::function<void(bool all_bytes)> check_weights = {};
};

enum class CollectMode : std::uint8_t { create, replace, resume };

/// Tokens of context done and in all, and the prompt in progress.
using CollectProgress = std::function<void(std::uint64_t done, std::uint64_t total, std::string_view prompt)>;

struct CollectResult {
  std::uint64_t shards = 0, rows = 0;
  std::vector<std::string> repairs;  // sentences about shards that were damaged and made again
};

/// What the folder of --out must be like, asked before anything slow. InputError: for create, a folder with something
/// in it; for replace, one with something in it that is no collection; for resume, one without a collection; for all,
/// one that another process is writing into. The folder is not made.
void check_collection(const std::filesystem::path& folder, CollectMode mode);

/// Runs what the folder lacks, prompt by prompt. Nothing is written, and nothing replaced, before the first prompt is
/// finished; where weights change, no prompt of this process counts. InputError where a collection that is to go on was
/// made from another plan, naming what differs; RunError for a full disk, and where the engine is interrupted, saying
/// how to go on.
CollectResult collect_fluxion(const std::filesystem::path& folder, CollectMode mode, Engine& engine, ThreadPool& pool,
                              const CollectSource& source, const CollectOptions& options,
                              const CollectProgress& progress = {});

}  // namespace tandem::eval
