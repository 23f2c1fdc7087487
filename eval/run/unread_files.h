// Files of data that no task is read from, because of their names. People keep notes beside their data, so they are not
// refused; but a misspelt name would leave out data without a word, so the user is told.
#pragma once

#include <filesystem>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace tandem::eval {

/// The .jsonl files in these folders, folders in them aside, that are not `read`; sorted, each once. None of a folder
/// that is not there.
std::vector<std::filesystem::path> unread_files(const std::vector<std::filesystem::path>& folders,
                                                const std::set<std::filesystem::path>& read);

/// One sentence about these files in `folder`, the value of `option`, which names five of them at most; empty where
/// there are none. A path that ends with a slash is a folder that cannot be opened. `rule`: what names must be.
std::string unread_note(std::string_view option, const std::filesystem::path& folder,
                        const std::vector<std::filesystem::path>& files, std::string_view rule);

}  // namespace tandem::eval
