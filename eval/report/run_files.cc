// The files of a run in its folder.
#include <algorithm>
#include <cctype>
#include <fmt/format.h>
#include <iterator>
#include <nlohmann/json.hpp>

#include "engine/common/error.h"
#include "engine/common/json.h"
#include "engine/common/read_file.h"
#include "eval/report/json_fields.h"
#include "eval/report/run_folder.h"

namespace tandem::eval {
namespace {

namespace fs = std::filesystem;

// Beside the manifest and traces, and with ".damaged" behind it each ".jsonl".
constexpr const char* kOwnFiles[] = {"samples.jsonl",  "windows.jsonl",  "timings.jsonl", "errors.jsonl",
                                     "summary.json",   "report.md",      kTextReport,     kPage,
                                     "plot.png",       "plot.svg",       "pareto.png",    "pareto.svg",
                                     "target.json",    "predicted.json", "equal.json",    "equal.png",
                                     "equal.svg",      "flops.json",     "leval.json",    "longproc.json",
                                     "longbench.json", "reasoning.json", "errors.json"};
constexpr std::string_view kDamaged = ".damaged";
constexpr std::string_view kTrace = "trace-", kJson = ".json";

/// "trace-2-hgca_beta_0.5.json"
bool is_trace(std::string_view name) {
  if (!name.starts_with(kTrace) || !name.ends_with(kJson)) return false;
  name.remove_prefix(kTrace.size());
  const std::size_t digits = name.find_first_not_of("0123456789");
  return digits != 0 && digits != std::string_view::npos && name[digits] == '-';
}

bool is_runs_manifest(const std::string& text) {
  try {
    const auto json = parse_object(text, kManifest);
    ObjectReader manifest(json, kManifest);
    return manifest.integer<int>("schema_version") > 0 && manifest.text("command").starts_with("tandem ");
  } catch (const InputError&) {
    return false;
  }
}

/// Also of a later version's manifest, as far as it says.
std::vector<std::string> names_of(const std::string& manifest) {
  std::vector<std::string> names(std::begin(kOwnFiles), std::end(kOwnFiles));
  for (const std::string_view name : kOwnFiles)
    if (name.ends_with(".jsonl")) names.push_back(std::string(name).append(kDamaged));
  const nlohmann::json json = json_or_discarded(manifest);
  if (json.is_object() && json.contains("benchmark") && json["benchmark"].is_string())
    names.push_back(json["benchmark"].get<std::string>() + ".json");
  if (!json.is_object() || !json.contains("methods") || !json["methods"].is_array()) return names;
  std::size_t number = 0;
  for (const nlohmann::json& method : json["methods"]) {
    ++number;
    if (method.is_object() && method.contains("label") && method["label"].is_string())
      names.push_back(trace_file(number, method["label"].get<std::string>()));
  }
  return names;
}

bool is_possible(std::string_view name) {
  if (name.ends_with(".jsonl.damaged")) name.remove_suffix(kDamaged.size());
  return is_trace(name) || std::ranges::find(kOwnFiles, name) != std::end(kOwnFiles);
}

}  // namespace

std::string trace_file(std::size_t number, std::string_view label) {
  constexpr std::size_t kReadable = 60;  // bytes; a label may be longer than a file's name can be
  std::string name = fmt::format("{}{}-{}", kTrace, number, label.substr(0, kReadable));
  for (char& c : name)
    if (std::isalnum(static_cast<unsigned char>(c)) == 0 && c != '-' && c != '.') c = '_';
  return name.append(kJson);
}

bool holds_run(const fs::path& folder) {
  const fs::path file = folder / kManifest;
  try {
    return path_exists(file) && is_runs_manifest(read_file(file));
  } catch (const InputError&) {
    return false;
  }
}

bool is_part_of_run(const fs::path& file) {
  // What tables are made from; not the tables, which can be made again.
  constexpr std::string_view kParts[] = {"manifest.json",  "samples.jsonl", "windows.jsonl",
                                         "timings.jsonl",  "errors.jsonl",  "target.json",
                                         "predicted.json", "equal.json",    "sweep.json"};
  const std::string name = file.filename().string();
  if (std::ranges::find(kParts, name) == std::end(kParts)) return false;
  if (name != "sweep.json") return holds_run(file.parent_path());
  const nlohmann::json sweep = json_or_discarded(read_file(file, kMostOfData));
  return sweep.is_object() && sweep.contains("points") && sweep.contains("program");
}

void refuse_links(const std::filesystem::path& folder) {
  std::error_code refused;  // whoever reads the files says so
  for (auto entry = std::filesystem::directory_iterator(folder, refused);
       !refused && entry != std::filesystem::directory_iterator(); entry.increment(refused)) {
    if (entry->is_symlink(refused))
      throw_input_error("'{}' is a link, and no link in a run's folder is followed. Put the file itself there.",
                        entry->path().string());
  }
}

const FileSet& run_files() {
  static const FileSet files = {is_runs_manifest, names_of, is_possible};
  return files;
}

}  // namespace tandem::eval
