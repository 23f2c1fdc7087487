// Small files of a model folder, read without trusting them.
#pragma once

#include <cstddef>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace tandem {

/// The bytes of a regular file of at most `most` bytes. InputError for a folder, a pipe (which could block for ever),
/// a device, a larger file, a pointer of Git LFS, or one that cannot be read.
std::string read_small_file(const std::filesystem::path& file, std::size_t most);

/// InputError where the bytes begin a pointer of Git LFS: the file was never downloaded.
void refuse_lfs_pointer(std::string_view bytes, const std::filesystem::path& file);

/// Whether the file or folder exists; false, not an exception, for names the system refuses.
bool path_exists(const std::filesystem::path& path);

/// A file that holds one JSON object of at most 64 MiB, nested at most kJsonNesting deep. InputError otherwise.
nlohmann::json read_json_object(const std::filesystem::path& file);

}  // namespace tandem
