// A folder that one process writes into: locked, held open, and known again when somebody moves or removes it.
//
// A run or a collection is a set of files that manifest.json names. replace() begins such a set or puts it in the place
// of an earlier one: a process that is killed at any moment leaves the one or the other, whole.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <unistd.h>
#include <utility>
#include <vector>

#include "engine/common/error.h"

namespace tandem::eval {

inline constexpr const char* kManifest = "manifest.json";

/// The folder, or a file that is being written in it, was moved, removed or changed by somebody else.
class FolderLost : public RunError {
 public:
  using RunError::RunError;
};

/// An open file or folder; closed at its end.
class Descriptor {
 public:
  explicit Descriptor(int number = -1) : number_(number) {}
  Descriptor(Descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }
  ~Descriptor() {
    if (is_open()) ::close(number_);
  }
  bool is_open() const { return number_ >= 0; }
  int number() const { return number_; }

 private:
  int number_;
};

/// Which files belong to a manifest. All names are plain names of files in the folder, manifest.json left out.
struct FileSet {
  std::function<bool(const std::string& manifest)> is_ours;                    // whole, and of a program of this name
  std::function<std::vector<std::string>(const std::string& manifest)> names;  // also of files that need not be there
  std::function<bool(std::string_view name)> is_possible;                      // of any manifest
};

class OutputFolder {
 public:
  OutputFolder() = default;  // holds nothing
  /// Locks an existing folder. InputError where it cannot be opened or another process writes into it.
  static OutputFolder lock(const std::filesystem::path& path);
  /// The same; makes missing folders. InputError also where it is not writable.
  static OutputFolder make(const std::filesystem::path& path);
  OutputFolder(OutputFolder&&) noexcept = default;
  OutputFolder& operator=(OutputFolder&&) noexcept = default;
  /// Gives the lock back. Folders that make() made are removed where they are empty.
  ~OutputFolder();

  bool held() const { return folder_.is_open(); }
  int descriptor() const { return folder_.number(); }
  /// Without links and "..", relative where it was given so.
  const std::filesystem::path& path() const { return path_; }

  /// FolderLost where path() no longer names this folder; the sentence says where it is now.
  void check_there() const;

  bool has(const std::string& name) const;
  /// As write_file(), by way of a file of this name and ".new", which it replaces.
  void write(const std::string& name, std::string_view text) const;
  /// The same by a function that writes the file of a given path.
  void write_by(const std::string& name, const std::function<void(const std::filesystem::path&)>& writer) const;
  /// No error where there is no such file; a folder of that name stays.
  void remove(const std::string& name) const;

  /// Makes `files` (name, text) and `manifest` the folder's files, in place of those of the manifest that is there.
  /// RunError, with all as it was, where the disk is full, for example.
  void replace(const std::vector<std::pair<std::string, std::string>>& files, const std::string& manifest,
               const FileSet& set) const;
  /// Ends a replace() whose process was killed. To be called before anything else looks at the files.
  void finish_replacement(const FileSet& set) const;
  /// Whether there is nothing in it, or nothing but what a replace() left that was killed early.
  bool is_free(const FileSet& set) const;

 private:
  std::vector<std::string> names() const;
  bool is_at(const std::filesystem::path& path) const;
  void take_place(const std::string& next, const FileSet& set) const;
  void rename(const std::string& from, const std::string& to) const;
  void make_missing(const std::filesystem::path& folder);
  bool open_at_path();

  std::filesystem::path path_;
  Descriptor folder_;
  std::vector<std::filesystem::path> made_;  // outermost first
};

/// Without links and "..", as far as it exists; relative where `path` is and it stays below the working folder.
/// InputError where the system refuses the path.
std::filesystem::path normalised(const std::filesystem::path& path);

/// InputError where OutputFolder::make() would have no place to make the folder, which is not made.
void check_can_be_made(const std::filesystem::path& path);

}  // namespace tandem::eval
