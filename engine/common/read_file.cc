#include "engine/common/read_file.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>

#include "engine/common/cgroup.h"
#include "engine/common/error.h"
#include "engine/common/interrupt.h"

namespace tandem {
namespace {

constexpr std::size_t kPiece = std::size_t{8} << 20;   // bytes read between two looks at the user's wish to stop
constexpr std::size_t kSmall = std::size_t{16} << 20;  // bytes for which nobody looks at the free memory

/// An open file; closed at the end of its scope.
struct Descriptor {
  explicit Descriptor(int descriptor) : number(descriptor) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (number >= 0) close(number);
  }
  const int number;
};

}  // namespace

std::string read_file(const std::filesystem::path& file, std::size_t most, std::string_view what) {
  const std::string name(what.empty() ? file.string() : what);
  // O_NONBLOCK: opening a pipe would otherwise wait for a writer.
  const Descriptor in(open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (in.number < 0) throw_input_error("{} cannot be read ({}).", name, std::strerror(errno));
  struct stat status {};
  if (fstat(in.number, &status) != 0 || !S_ISREG(status.st_mode))
    throw_input_error("{} cannot be read (not a regular file).", name);
  const auto size = static_cast<std::size_t>(status.st_size);
  if (size > most) throw_input_error("{} has {} bytes; at most {} are read.", name, size, most);
  if (const std::size_t room = size < kSmall ? size : available_memory(); size > room)
    throw_input_error("{} has {} bytes; there are {} bytes of free memory.", name, size, room);
  std::string bytes;
  bytes.reserve(size);
  while (bytes.size() < size) {
    const std::size_t at = bytes.size();
    if (at > 0) stop_if_interrupted();  // a small file is read whole: what an interrupted run keeps needs some
    bytes.resize(std::min(at + kPiece, size));
    const ssize_t n = read(in.number, bytes.data() + at, bytes.size() - at);
    if (n == 0) throw_input_error("{} became shorter while it was read.", name);
    if (n < 0 && errno != EINTR) throw_input_error("{} cannot be read ({}).", name, std::strerror(errno));
    bytes.resize(at + static_cast<std::size_t>(std::max<ssize_t>(n, 0)));
  }
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
  return std::filesystem::exists(std::filesystem::symlink_status(path, refused));
}

}  // namespace tandem
