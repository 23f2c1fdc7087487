// The files of a run in its folder.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "eval/report/output_folder.h"

namespace tandem::eval {

/// The trace of the run's method `number`, from 1 on: its label makes the name readable, the number makes it unique.
std::string trace_file(std::size_t number, std::string_view label);

/// Whether the folder's manifest.json is a run's of this program, of whatever version: only such a run is replaced.
bool holds_run(const std::filesystem::path& folder);

/// Whether a file is, by its name and place, one of those that a run or a sweep consists of, which no report may
/// replace.
bool is_part_of_run(const std::filesystem::path& file);

/// InputError where an entry of the folder is a link: a stranger's could have any file of this machine read, and shown
/// as the run's. The folder's own name may be one.
void refuse_links(const std::filesystem::path& folder);

/// The files of a run and its report: those that its manifest leads to, of whatever version, and no others are ever
/// removed.
const FileSet& run_files();

}  // namespace tandem::eval
