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
  /// Whether nobody has written into the file, nor cut it, since it was opened. A file that is replaced as a whole
  /// (rename) does not change.
  bool unchanged() const;

  /// RunError, naming the file, where a byte that was read of any mapped file was not there: what was computed since is
  /// wrong. Cheap; to be called before results leave the engine.
  static void check_all();

 private:
  struct Place;
  explicit MappedFile(const std::filesystem::path& file);

  std::span<const std::byte> bytes_;
  Place* place_ = nullptr;  // among those that the signal handler looks at
};

}  // namespace tandem
