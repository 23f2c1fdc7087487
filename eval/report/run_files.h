// The files of a run in its folder, and the earlier run that they replace.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace tandem::eval {

inline constexpr const char* kManifest = "manifest.json";
inline constexpr const char* kAside = ".replaced";  // folder of the earlier run while --force is not done yet

/// The trace of the run's method `number`, from 1 on: its label makes the name readable, the number makes it unique.
std::string trace_file(std::size_t number, std::string_view label);

/// Whether the folder's manifest.json is a run's of this program, of whatever version: only such a run is replaced.
bool holds_run(const std::filesystem::path& folder);

/// Whether a file is, by its name and place, one of those that a run or a sweep consists of, which no report may
/// replace.
bool is_part_of_run(const std::filesystem::path& file);

/// Names of what a run and its report may leave in the folder, the manifest first, and of the traces that are there.
/// Nothing else is ever removed.
std::vector<std::string> own_files(const std::filesystem::path& folder);

/// The earlier run's files go into a folder of their own until the new run is kept. InputError where they cannot, and
/// they are back then.
void set_aside(const std::filesystem::path& path);

/// They come back, what is in their place being gone. Never throws: what cannot be moved stays where it is.
void bring_back(const std::filesystem::path& path);

/// What was killed before it had a manifest left nothing of its own, and a run that it had put aside comes back.
void undo_a_killed_beginning(const std::filesystem::path& path);

}  // namespace tandem::eval
