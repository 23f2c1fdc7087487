#include "engine/model/json_file.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <nlohmann/json.hpp>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/common/error.h"
#include "engine/common/json.h"

namespace tandem {

std::string read_small_file(const std::filesystem::path& file, std::size_t most) {
  // O_NONBLOCK: opening a pipe would otherwise wait for somebody to write into it.
  const int descriptor = open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) throw_input_error("{} cannot be read: {}.", file.string(), std::strerror(errno));
  struct stat status {};
  std::string problem, bytes;
  if (fstat(descriptor, &status) != 0 || !S_ISREG(status.st_mode)) {
    problem = "is not a regular file";
  } else if (static_cast<std::size_t>(status.st_size) > most) {
    problem = fmt::format("has {} bytes; at most {} are read", status.st_size, most);
  } else {
    bytes.resize(static_cast<std::size_t>(status.st_size));
    std::size_t at = 0;
    while (at < bytes.size() && problem.empty()) {
      const ssize_t n = read(descriptor, bytes.data() + at, bytes.size() - at);
      if (n > 0) {
        at += static_cast<std::size_t>(n);
      } else if (n == 0) {
        bytes.resize(at);  // the file shrank meanwhile
      } else if (errno != EINTR) {
        problem = fmt::format("cannot be read: {}", std::strerror(errno));
      }
    }
  }
  close(descriptor);
  if (!problem.empty()) throw_input_error("{} {}.", file.string(), problem);
  refuse_lfs_pointer(bytes, file);
  return bytes;
}

void refuse_lfs_pointer(std::string_view bytes, const std::filesystem::path& file) {
  if (bytes.starts_with("version https://git-lfs.github.com/"))
    throw_input_error(
        "{} is a pointer of Git LFS, not the file itself: run `git lfs pull` in that folder, or download the file.",
        file.string());
}

bool path_exists(const std::filesystem::path& path) {
  std::error_code refused;
  return std::filesystem::exists(path, refused) && !refused;
}

nlohmann::json read_json_object(const std::filesystem::path& file) {
  const std::string text = read_small_file(file, std::size_t{64} << 20);
  if (nests_deeper(text)) throw_input_error("{} is nested more than {} deep.", file.string(), kJsonNesting);
  nlohmann::json json = json_or_discarded(text);
  if (!json.is_object()) throw_input_error("{} is not a JSON object, or it is damaged.", file.string());
  return json;
}

}  // namespace tandem
