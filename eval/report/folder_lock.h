// That no two processes write into one folder.
#pragma once

#include <filesystem>
#include <utility>

namespace tandem::eval {

/// A lock on an existing folder itself, without a file of its own, given back with this or with the process. Of a
/// folder that is not there, and of a file system without locks, it holds nothing.
class FolderLock {
 public:
  FolderLock() = default;
  /// InputError where another process has it.
  explicit FolderLock(const std::filesystem::path& folder);
  FolderLock(FolderLock&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  FolderLock& operator=(FolderLock&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }
  ~FolderLock();

  /// The folder was there.
  bool held() const { return descriptor_ >= 0; }

 private:
  int descriptor_ = -1;
};

}  // namespace tandem::eval
