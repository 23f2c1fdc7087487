#include "eval/report/run_files.h"

#include <iterator>
#include <utility>

#include "engine/common/error.h"

namespace tandem::eval {
namespace {

namespace fs = std::filesystem;

// The manifest is the first to go and the last to come back, so that a run is never seen without its samples.
constexpr const char* kOwnFiles[] = {"manifest.json",
                                     "samples.jsonl",
                                     "windows.jsonl",
                                     "timings.jsonl",
                                     "samples.jsonl.damaged",
                                     "windows.jsonl.damaged",
                                     "timings.jsonl.damaged",
                                     "summary.json",
                                     "report.md",
                                     "plot.png",
                                     "plot.svg",
                                     "target.json",
                                     "flops.json",
                                     "errors.json",
                                     "errors.jsonl",
                                     "manifest.json.new",
                                     "samples.jsonl.new",
                                     "windows.jsonl.new",
                                     "timings.jsonl.new"};

}  // namespace

std::vector<std::string> own_files(const fs::path& folder) {
  std::vector<std::string> names(std::begin(kOwnFiles), std::end(kOwnFiles));
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    std::string name = entry.path().filename().string();
    if (name.starts_with("trace-") && name.ends_with(".json")) names.push_back(std::move(name));
  }
  return names;
}

void bring_back(const fs::path& path) {
  std::error_code ignored;
  for (const std::string& name : own_files(path / kAside)) {
    if (name != kManifest && fs::exists(path / kAside / name, ignored))
      fs::rename(path / kAside / name, path / name, ignored);
  }
  fs::rename(path / kAside / kManifest, path / kManifest, ignored);
  fs::remove_all(path / kAside, ignored);
}

void set_aside(const fs::path& path) {
  std::error_code error;
  fs::remove_all(path / kAside, error);
  fs::create_directory(path / kAside, error);
  for (const std::string& name : own_files(path)) {
    if (error || !fs::exists(path / name, error)) continue;
    fs::rename(path / name, path / kAside / name, error);
  }
  if (!error) return;
  bring_back(path);
  throw_input_error("The run in '{}' cannot be put aside ({}).", path.string(), error.message());
}

void undo_a_killed_beginning(const fs::path& path) {
  std::error_code ignored;
  if (fs::exists(path / kManifest, ignored)) return;
  fs::remove(path / "manifest.json.new", ignored);
  if (fs::exists(path / kAside / kManifest, ignored)) bring_back(path);
}

}  // namespace tandem::eval
