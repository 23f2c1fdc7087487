// Runs with a folder (run_folder.h), as compare and eval make them: their options, what a manifest says about the
// session, and what becomes of the folder when a run ends early.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "cli/command.h"
#include "cli/progress.h"
#include "cli/session.h"
#include "eval/report/run_folder.h"
#include "eval/run/run_dataset.h"

namespace tandem::cli {

struct RunOptions {
  std::string out;                 // empty: runs/<what>-<time>
  std::string shard;               // "2/4"; empty: all of the run
  std::string prefix_cache;        // folder or kInMemory; empty: prefilled prompts are not kept
  std::string prefix_cache_bytes;  // empty: by where they are kept
  bool force = false, resume = false, quiet = false, no_plot = false;
  bool json = false;    // summary.json is printed in place of the answer
  bool ranked = false;  // settle_shard() chose `shard` and `out`
};

/// Where --shard is "rank", it becomes what mpirun or srun say that this process is, and --out a folder of its own in
/// the one that was named; all processes but the first are quiet. InputError where nothing says it, or without --out.
void settle_shard(RunOptions& options);

/// InputError for what is no shard.
eval::Shard shard_of(const RunOptions& options);

/// `what`: "compare".
void add_run_options(Command command, RunOptions& options, const std::string& what);

/// InputError for options that exclude each other, for a folder of --prefix-cache on a measured clock, since a
/// prefill's time has to be of its own run, and for a folder that the run may not have. To be called before anything
/// slow.
void check_run_options(const RunOptions& options, const SessionOptions& session);

/// Has a shipped script draw `picture`.png and .svg of what is in the folder, in the place of those that are there,
/// which stay where none is wanted. Whether there is one now: not where it cannot be drawn, which standard error says.
/// What a run is to leave in any case is written before, since a plot takes its time.
bool draw(const std::string& script, const std::filesystem::path& folder, const std::string& picture, bool wanted);

/// Value of --prefix-cache for prompts that are kept in the run's own memory.
inline constexpr const char* kInMemory = "memory";
/// The cache that --prefix-cache and --prefix-cache-bytes ask for.
PrefixCacheOptions prefix_cache_of(const RunOptions& run, const Session& session);

/// The entries of a manifest that follow from the program, the machine and the session.
void describe_session(const SessionOptions& options, const Session& session, eval::Manifest& manifest);

/// Says on stderr what had to be repaired in a run, a sentence each.
void say_repairs(const std::vector<std::string>& repairs);

/// Makes the folder, or opens the one to continue; says on stderr what had to be repaired in it, and where another
/// program made the samples that are there. A part of --shard rank that was not begun begins with --resume, too. First
/// it sees to it that OpenBLAS is there where a method of the run needs it, and tells the manifest which it is.
eval::RunFolder open_run(const RunOptions& options, const std::string& what, const Session& session,
                         eval::Manifest manifest);

/// Does the work that fills the folder, marks the run finished, and reports on it. Where the work throws, finished
/// samples are kept and the error says how to go on; where the session's weights changed meanwhile, those of this
/// process are removed. A shard is not reported on: it says how shards are joined.
void fill_run(const RunOptions& options, eval::RunFolder& folder, const Session& session, Progress& progress,
              const std::function<void()>& work, const std::function<void()>& report);

}  // namespace tandem::cli
