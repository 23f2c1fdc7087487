// Sweeps of `tandem simulate` as tables for a paper or a spreadsheet.
#pragma once

#include <filesystem>
#include <span>
#include <string>

#include "eval/predict/sweep.h"
#include "eval/tables/tables.h"

namespace tandem::eval {

/// Whether a folder holds a sweep, and no run.
bool holds_sweep(const std::filesystem::path& folder);

struct ReportedSweep {
  std::string name;  // for heads
  SweepFile file;
};

/// A sweep's folder under a name. InputError where its file is damaged or has no point.
ReportedSweep read_sweep(const std::filesystem::path& folder, const std::string& name);

/// The tables of each sweep, one after another: of other shapes, machines and methods they have nothing to stand side
/// by side.
std::string sweeps_text(std::span<const ReportedSweep> sweeps, TableFormat format);

/// A line for each point of each.
std::string sweeps_csv(std::span<const ReportedSweep> sweeps);

}  // namespace tandem::eval
