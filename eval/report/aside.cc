#include "eval/report/aside.h"

#include <iterator>

#include "engine/common/error.h"

namespace tandem::eval {
namespace {

namespace fs = std::filesystem;

}  // namespace

// The manifest is the first to go and the last to come back, so that nothing is ever seen without what it names.

bool lies_aside(const fs::path& folder) {
  std::error_code ignored;
  return fs::exists(folder / kAside / kManifest, ignored);
}

void set_aside(const fs::path& folder, const std::vector<std::string>& names) {
  TANDEM_CHECK(!names.empty() && names.front() == kManifest, "'{}' is put aside without its manifest", folder.string());
  std::error_code error;
  fs::remove_all(folder / kAside, error);
  if (!error) fs::create_directory(folder / kAside, error);
  for (const std::string& name : names) {
    if (error || !fs::exists(folder / name, error)) continue;
    fs::rename(folder / name, folder / kAside / name, error);
  }
  if (!error) return;
  bring_back(folder);
  throw_input_error("What is in '{}' cannot be put aside ({}). Choose another folder.", folder.string(),
                    error.message());
}

void remove_files(const fs::path& folder, const std::vector<std::string>& names) {
  std::error_code ignored;
  for (const std::string& name : names)
    if (name != kManifest) fs::remove(folder / name, ignored);
  fs::remove(folder / kManifest, ignored);
}

void bring_back(const fs::path& folder) {
  std::error_code ignored;
  std::vector<fs::path> names;
  for (const auto& entry : fs::directory_iterator(folder / kAside, ignored)) names.push_back(entry.path().filename());
  for (const fs::path& name : names)
    if (name != kManifest) fs::rename(folder / kAside / name, folder / name, ignored);
  fs::rename(folder / kAside / kManifest, folder / kManifest, ignored);
  fs::remove(folder / kAside, ignored);  // refuses what is not empty
}

void drop_aside(const fs::path& folder) {
  std::error_code ignored;
  fs::remove_all(folder / kAside, ignored);
}

void undo_a_killed_beginning(const fs::path& folder, const std::function<bool()>& worth_keeping,
                             const std::function<std::vector<std::string>()>& files) {
  std::error_code ignored;
  const bool earlier = lies_aside(folder);
  if (fs::exists(folder / kManifest, ignored)) {
    if (!earlier || worth_keeping()) return;
    remove_files(folder, files());
  } else {
    // Alone it is what a killed beginning left; beside other files it may be somebody's.
    const auto entries = std::distance(fs::directory_iterator(folder, ignored), fs::directory_iterator());
    if (earlier || entries == 1) fs::remove(folder / "manifest.json.new", ignored);
  }
  if (earlier) bring_back(folder);
}

}  // namespace tandem::eval
