// Joins the shards of a run (eval/run/shard.h), or any runs of one command that have different samples.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>

namespace tandem::eval {

struct Merged {
  std::uint64_t there = 0, all = 0;  // samples, counted with every method
  bool documents_dropped = false;    // some runs are of before version 11, and say not which document a sample is about
};

/// Makes a run in `out` of what is in `runs`, in the run's order: on a simulated clock the bytes that one process would
/// have written. Of runs of several schema versions it is one of the oldest. InputError where runs are of different
/// commands, inputs or clocks (check_resumable()), where two have a sample in common that is not the same, where `out`
/// is one of them, for damaged lines, and as RunFolder::create(); RunError where the disk is full, for example. Either
/// way there is no new folder, and a run that `force` would have replaced is as it was.
Merged merge_runs(std::span<const std::filesystem::path> runs, const std::filesystem::path& out, bool force);

}  // namespace tandem::eval
