#include "engine/model/json_file.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <nlohmann/json.hpp>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/common/error.h"

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
  return bytes;
}

bool path_exists(const std::filesystem::path& path) {
  std::error_code refused;
  return std::filesystem::exists(path, refused) && !refused;
}

bool nests_deeper(std::string_view json, int most) {
  int depth = 0;
  bool in_text = false;
  for (std::size_t i = 0; i < json.size(); ++i) {
    const char c = json[i];
    if (in_text) {
      if (c == '\\') {
        ++i;
      } else if (c == '"') {
        in_text = false;
      }
    } else if (c == '"') {
      in_text = true;
    } else if (c == '{' || c == '[') {
      if (++depth > most) return true;
    } else if (c == '}' || c == ']') {
      --depth;
    }
  }
  return false;
}

nlohmann::json read_json_object(const std::filesystem::path& file) {
  const std::string text = read_small_file(file, std::size_t{64} << 20);
  if (nests_deeper(text, 32)) throw_input_error("{} is nested more than 32 deep.", file.string());
  nlohmann::json json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) throw_input_error("{} is not a JSON object, or it is damaged.", file.string());
  return json;
}

}  // namespace tandem
