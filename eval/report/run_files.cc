#include "eval/report/run_files.h"

#include <algorithm>
#include <cctype>
#include <fmt/format.h>
#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>

#include "engine/common/error.h"
#include "engine/common/json.h"
#include "engine/common/read_file.h"
#include "eval/report/aside.h"
#include "eval/report/json_reader.h"

namespace tandem::eval {
namespace {

namespace fs = std::filesystem;

// The manifest first, as set_aside() takes them.
constexpr const char* kOwnFiles[] = {"manifest.json",
                                     "samples.jsonl",
                                     "windows.jsonl",
                                     "timings.jsonl",
                                     "samples.jsonl.damaged",
                                     "windows.jsonl.damaged",
                                     "timings.jsonl.damaged",
                                     "errors.jsonl.damaged",
                                     "summary.json",
                                     "report.md",
                                     "plot.png",
                                     "plot.svg",
                                     "target.json",
                                     "equal.json",
                                     "equal.png",
                                     "equal.svg",
                                     "flops.json",
                                     "leval.json",
                                     "longbench.json",
                                     "reasoning.json",
                                     "errors.json",
                                     "errors.jsonl",
                                     "manifest.json.new",
                                     "samples.jsonl.new",
                                     "windows.jsonl.new",
                                     "timings.jsonl.new",
                                     "errors.jsonl.new"};
constexpr const char* kPlots[] = {"plot.png", "plot.svg", "equal.png", "equal.svg"};
constexpr std::string_view kTrace = "trace-", kJson = ".json";

/// "trace-2-hgca_beta_0.5.json": no other name of a file is a trace's.
bool is_trace(std::string_view name) {
  if (!name.starts_with(kTrace) || !name.ends_with(kJson)) return false;
  name.remove_prefix(kTrace.size());
  const std::size_t digits = name.find_first_not_of("0123456789");
  return digits != 0 && digits != std::string_view::npos && name[digits] == '-';
}

}  // namespace

std::string trace_file(std::size_t number, std::string_view label) {
  constexpr std::size_t kReadable = 60;  // bytes; a label may be longer than a file's name can be
  std::string name = fmt::format("{}{}-{}", kTrace, number, label.substr(0, kReadable));
  for (char& c : name) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0 && c != '-' && c != '.') c = '_';
  }
  return name.append(kJson);
}

bool holds_run(const fs::path& folder) {
  const fs::path file = folder / kManifest;
  if (!path_exists(file)) return false;
  try {
    const auto json = parse_object(read_file(file), file.string());
    ObjectReader manifest(json, file.string());
    return manifest.integer<int>("schema_version") > 0 && manifest.text("command").starts_with("tandem ");
  } catch (const InputError&) {
    return false;
  }
}

bool is_part_of_run(const fs::path& file) {
  // What tables are made from; not the tables, which can be made again.
  constexpr std::string_view kParts[] = {"manifest.json", "samples.jsonl", "windows.jsonl", "timings.jsonl",
                                         "errors.jsonl",  "target.json",   "equal.json",    "sweep.json"};
  const std::string name = file.filename().string();
  if (std::find(std::begin(kParts), std::end(kParts), name) == std::end(kParts)) return false;
  if (name != "sweep.json") return holds_run(file.parent_path());
  const nlohmann::json sweep = json_or_discarded(read_file(file, kMostOfData));
  return sweep.is_object() && sweep.contains("points") && sweep.contains("program");
}

std::vector<std::string> own_files(const fs::path& folder) {
  std::vector<std::string> names(std::begin(kOwnFiles), std::end(kOwnFiles));
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    std::string name = entry.path().filename().string();
    if (is_trace(name)) names.push_back(std::move(name));
  }
  return names;
}

void remove_plots(const fs::path& folder) {
  std::error_code ignored;
  for (const char* name : kPlots) fs::remove(folder / name, ignored);
}

}  // namespace tandem::eval
