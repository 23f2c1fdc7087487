// Files whose bytes are read from memory when they are needed. Where such a file becomes shorter, reading a byte that
// is gone raises SIGBUS and would end the program without a word. Here the byte is zero, and the next look finds out.
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>

namespace tandem {

class MappedFile {
 public:
  /// InputError, naming the file, for what is no regular file or cannot be mapped.
  static std::shared_ptr<const MappedFile> open(const std::filesystem::path& file);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const std::byte> bytes() const { return bytes_; }
  /// Whether nobody has written into the file, or cut it, since it was opened. Replacing it (rename) does not change
  /// it.
  bool unchanged() const;

  /// Reads `out.size()` bytes from `at` on into other memory; `keep_cached`: as what the system may go on caching. From
  /// any thread. RunError, naming the file, where they are not there any more.
  void read(std::span<std::byte> out, std::size_t at, bool keep_cached) const;
  /// Takes a part of bytes() out of this process's resident memory; it is read again when it is needed.
  void let_go(std::span<const std::byte> part) const;
  bool is_cached() const;  // whether the system has more than half of it in its cache

  /// RunError, naming the file, where a byte of any mapped file was missing when it was read: results since are wrong.
  /// Cheap; to be called before results leave the engine.
  static void check_all();

 private:
  struct Place;
  explicit MappedFile(const std::filesystem::path& file);

  std::span<const std::byte> bytes_;
  Place* place_ = nullptr;  // among those that the signal handler looks at
};

}  // namespace tandem
