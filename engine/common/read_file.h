// Reads a file that a user names, or that lies in a folder that a user names, without trusting it. All such files are
// read here, so that none waits for a pipe's writer and no device without an end fills the memory.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>

namespace tandem {

inline constexpr std::size_t kMostOfAFile = std::size_t{64} << 20;  // bytes: configurations, tokenizers, reports
inline constexpr std::size_t kMostOfData = std::size_t{4} << 30;    // data sets and runs

/// The bytes that a regular file of at most `most` bytes had when it was opened. `what` begins the sentences, such as
/// "--text 'book.txt'"; empty: the path. InputError for anything but a regular file, one that is larger (than `most` or
/// the free memory), becomes shorter meanwhile or cannot be read, and a pointer of Git LFS. Interrupted where the user
/// asks to stop.
std::string read_file(const std::filesystem::path& file, std::size_t most = kMostOfAFile, std::string_view what = {});

/// InputError where the bytes begin a pointer of Git LFS: the file was never downloaded.
void refuse_lfs_pointer(std::string_view bytes, const std::filesystem::path& file);

/// Whether there is anything of that name, be it a link that leads nowhere; false for names the system refuses.
bool path_exists(const std::filesystem::path& path);

}  // namespace tandem
