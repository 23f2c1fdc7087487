#include "eval/report/output_folder.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "eval/report/line_file.h"

namespace tandem::eval {
namespace {

namespace fs = std::filesystem;

constexpr const char* kOld = "manifest.json.old";  // what it names is being removed
constexpr std::string_view kNew = ".new";

std::string staged(const std::string& name) {
  return name + std::string(kNew);
}

void check_access(const fs::path& folder) {
  if (access(folder.c_str(), W_OK) != 0)
    throw_input_error("The folder '{}' cannot be written to ({}). Choose another one.", folder.string(),
                      std::strerror(errno));
}

}  // namespace

fs::path normalised(const fs::path& path) {
  std::error_code refused;
  if (path.empty()) throw_input_error("The name of a folder is empty.");
  fs::path whole = fs::weakly_canonical(fs::absolute(path, refused), refused);
  if (refused) throw_input_error("The folder '{}' cannot be found ({}).", path.string(), refused.message());
  if (!whole.has_filename() && whole.has_relative_path()) whole = whole.parent_path();  // a slash at the end
  if (path.is_absolute()) return whole;
  const fs::path here = fs::current_path(refused);
  if (refused) return whole;
  const fs::path relative = whole.lexically_relative(here);
  return relative.empty() || *relative.begin() == ".." ? whole : relative;
}

void check_can_be_made(const fs::path& given) {
  const fs::path path = normalised(given);
  std::error_code ignored;
  fs::path above = fs::absolute(path);  // the nearest that is there
  while (!fs::exists(above, ignored) && above.has_parent_path() && above.parent_path() != above)
    above = above.parent_path();
  if (above != path && fs::is_symlink(fs::absolute(path), ignored))
    throw_input_error("'{}' is a link to nothing. Choose another name.", path.string());
  if (!fs::is_directory(above, ignored))
    throw_input_error("'{}' is a file, but '{}' needs a folder there. Choose another name.", above.string(),
                      path.string());
  check_access(above);
}

OutputFolder::~OutputFolder() {
  if (!held() || !is_at(path_)) return;
  for (auto folder = made_.rbegin(); folder != made_.rend(); ++folder) rmdir(folder->c_str());  // refuses a full one
}

/// False where the path names another folder by now, which its maker removed, for example.
bool OutputFolder::open_at_path() {
  folder_ = Descriptor(::open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW));
  if (!held()) {
    const int why = errno;
    std::error_code ignored;
    if (why == ENOENT && !fs::is_symlink(path_, ignored)) return false;
    throw_input_error("The folder '{}' cannot be opened ({}). Choose another one.", path_.string(), std::strerror(why));
  }
  // A file system without locks refuses with another error, and then nothing is locked.
  const bool other_has_it = flock(descriptor(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  if (!other_has_it && is_at(path_)) return true;
  folder_ = Descriptor();
  if (other_has_it)
    throw_input_error("Another process is writing into the folder '{}': wait for its end, or choose another one.",
                      path_.string());
  return false;
}

OutputFolder OutputFolder::lock(const fs::path& path) {
  OutputFolder folder;
  folder.path_ = normalised(path);
  std::error_code refused;
  if (fs::exists(folder.path_, refused) && !fs::is_directory(folder.path_, refused))
    throw_input_error("'{}' is a file, but the run needs a folder there. Choose another name.", folder.path_.string());
  if (!folder.open_at_path()) throw_input_error("There is no folder '{}'.", folder.path_.string());
  return folder;
}

void OutputFolder::make_missing(const fs::path& folder) {
  const auto made = [&] {
    if (mkdir(folder.c_str(), 0777) != 0) return false;
    made_.push_back(folder);
    return true;
  };
  if (made()) return;
  if (errno == ENOENT && folder.has_parent_path() && folder.parent_path() != folder) {
    make_missing(folder.parent_path());
    if (made()) return;
  }
  std::error_code ignored;
  const int why = errno;
  if (why == EEXIST && fs::is_directory(folder, ignored)) return;
  if (why == ENOENT) return;  // another process removes the one above: the caller tries again
  if (why == EEXIST && !fs::is_symlink(folder, ignored))
    throw_input_error("'{}' is a file, but the run needs a folder there. Choose another name.", folder.string());
  throw_input_error("The folder '{}' cannot be made ({}). Choose another one.", folder.string(),
                    why == EEXIST ? "it is a link to nothing" : std::strerror(why));
}

OutputFolder OutputFolder::make(const fs::path& path) {
  constexpr int kAttempts = 20;  // of processes that make and remove the same folders at a time
  OutputFolder folder;
  folder.path_ = normalised(path);
  for (int attempt = 0; attempt < kAttempts && !folder.held(); ++attempt) {
    folder.made_.clear();
    folder.make_missing(folder.path_);
    folder.open_at_path();
  }
  if (!folder.held())
    throw_input_error("The folder '{}' cannot be made ({}). Choose another one.", folder.path_.string(),
                      std::strerror(ENOENT));
  check_access(folder.path_);
  return folder;
}

bool OutputFolder::is_at(const fs::path& path) const {
  struct stat mine {
  }, there{};
  return fstat(descriptor(), &mine) == 0 && lstat(path.c_str(), &there) == 0 && mine.st_dev == there.st_dev &&
         mine.st_ino == there.st_ino;
}

void OutputFolder::check_there() const {
  if (is_at(path_)) return;
  std::error_code ignored;
  // Where the kernel says; a folder that was removed has a name that leads nowhere.
  const fs::path now = fs::read_symlink("/proc/self/fd/" + std::to_string(descriptor()), ignored);
  if (!now.empty() && is_at(now))
    throw FolderLost(fmt::format(
        "The folder '{}' was moved to '{}' while it was being written. What was finished is there: go on with the same "
        "command and --resume, and that folder as --out.",
        path_.string(), now.string()));
  struct stat mine {};
  fstat(descriptor(), &mine);
  throw FolderLost(fmt::format("The folder '{}' was {} while it was being written.", path_.string(),
                               mine.st_nlink == 0 ? "removed" : "moved away"));
}

bool OutputFolder::has(const std::string& name) const {
  struct stat status {};
  return fstatat(descriptor(), name.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0;
}

std::vector<std::string> OutputFolder::names() const {
  std::vector<std::string> names;
  std::error_code refused;
  for (const auto& entry : fs::directory_iterator(path_, refused)) names.push_back(entry.path().filename().string());
  if (refused) throw_input_error("The folder '{}' cannot be read ({}).", path_.string(), refused.message());
  return names;
}

void OutputFolder::write(const std::string& name, std::string_view text) const {
  check_there();
  write_new(descriptor(), staged(name), path_ / name, text);
  rename(staged(name), name);
}

void OutputFolder::write_by(const std::string& name, const std::function<void(const fs::path&)>& writer) const {
  check_there();
  remove(staged(name));  // which may be a link
  writer(path_ / staged(name));
  rename(staged(name), name);
}

void OutputFolder::remove(const std::string& name) const {
  if (unlinkat(descriptor(), name.c_str(), 0) == 0 || errno == ENOENT || errno == EISDIR) return;
  throw_run_error("The file '{}' cannot be removed ({}).", (path_ / name).string(), std::strerror(errno));
}

void OutputFolder::rename(const std::string& from, const std::string& to) const {
  if (renameat(descriptor(), from.c_str(), descriptor(), to.c_str()) == 0) return;
  throw_run_error("The file '{}' cannot be written ({}).", (path_ / to).string(), std::strerror(errno));
}

// All that is new is written beside what is there, the manifest last. Then the manifest that is there is renamed, and
// from here on there is no way back: what it names is removed, and what is new gets its names, the manifest last again.
// While manifest.json is missing, finish_replacement() ends what is left of this. Readers see no run meanwhile.
void OutputFolder::replace(const std::vector<std::pair<std::string, std::string>>& files, const std::string& manifest,
                           const FileSet& set) const {
  check_there();
  const std::vector<std::string> before = names();
  for (const std::string& name : before)
    if (name.ends_with(kNew) && set.is_possible(std::string_view(name).substr(0, name.size() - kNew.size())))
      remove(name);  // a killed beginning left it
  std::error_code ignored;
  for (const auto& [name, text] : files)
    if (fs::is_directory(fs::symlink_status(path_ / name, ignored)))
      throw_run_error("'{}' is a folder, where a file is needed.", (path_ / name).string());
  try {
    for (const auto& [name, text] : files) write_new(descriptor(), staged(name), path_ / name, text);
    write_new(descriptor(), staged(kManifest), path_ / kManifest, manifest);
  } catch (...) {
    for (const auto& [name, text] : files) unlinkat(descriptor(), staged(name).c_str(), 0);
    throw;
  }
  if (has(kManifest)) rename(kManifest, kOld);
  take_place(manifest, set);
  fsync(descriptor());
}

void OutputFolder::finish_replacement(const FileSet& set) const {
  if (has(kManifest)) return;
  const std::string next = read_if_there(path_ / staged(kManifest));
  if (set.is_ours(next)) return take_place(next, set);
  if (has(kOld)) rename(kOld, kManifest);
}

void OutputFolder::take_place(const std::string& next, const FileSet& set) const {
  if (has(kOld)) {
    for (const std::string& name : set.names(read_if_there(path_ / kOld))) remove(name);
    remove(kOld);
  }
  for (const std::string& name : set.names(next))
    if (has(staged(name))) rename(staged(name), name);
  rename(staged(kManifest), kManifest);
}

bool OutputFolder::is_free(const FileSet& set) const {
  const std::vector<std::string> all = names();
  return std::ranges::all_of(all, [&](std::string_view name) {
    if (!name.ends_with(kNew)) return false;
    name.remove_suffix(kNew.size());
    return name == kManifest || set.is_possible(name);
  });
}

}  // namespace tandem::eval
