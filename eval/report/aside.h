// What --force replaces lies aside, in a folder of its own, until the new run or collection has something worth
// keeping.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace tandem::eval {

inline constexpr const char* kManifest = "manifest.json";
inline constexpr const char* kAside = ".replaced";

/// Whether something earlier lies aside that can come back.
bool lies_aside(const std::filesystem::path& folder);

/// These files of the folder, of which the first is its manifest, go aside; what lay there before is gone. InputError
/// where they cannot, and they are back then.
void set_aside(const std::filesystem::path& folder, const std::vector<std::string>& names);

/// Removes these files of the folder, its manifest last: ended halfway, that still says whose the rest is.
void remove_files(const std::filesystem::path& folder, const std::vector<std::string>& names);

/// What lies aside comes back, what is in its place being gone. Never throws: what cannot be moved stays where it is.
void bring_back(const std::filesystem::path& folder);

/// What lies aside is gone for good.
void drop_aside(const std::filesystem::path& folder);

/// What was killed before it had a manifest left nothing of its own, and what it had put aside comes back. So it does
/// where the manifest in front of it has nothing `worth_keeping`; `files` are removed then. Neither is asked where
/// nothing lies aside.
void undo_a_killed_beginning(const std::filesystem::path& folder, const std::function<bool()>& worth_keeping,
                             const std::function<std::vector<std::string>()>& files);

}  // namespace tandem::eval
