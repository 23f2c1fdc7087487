// One page of runs, for people who look at them in a browser.
#include <fmt/core.h>
#include <nlohmann/json.hpp>
#include <utility>

#include "engine/common/error.h"
#include "engine/common/json.h"
#include "engine/common/python.h"
#include "eval/tables/tables.h"

namespace tandem::eval {
namespace {

constexpr const char* kScript = "eval/tables/page.py";

/// As text of JSON it would have to be UTF-8, which a folder's name need not be.
std::string hex_of(const std::string& bytes) {
  std::string text;
  for (const char byte : bytes) text += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  return text;
}

}  // namespace

std::string title_of(std::span<const ReportedRun> runs) {
  const Manifest& first = runs.front().manifest;
  std::string title = fmt::format("{} on {}", first.benchmark, first.model);
  if (runs.size() == 1) return title;
  for (const ReportedRun& run : runs)
    if (run.manifest.model != first.model || run.manifest.benchmark != first.benchmark) title = "Tandem";
  return fmt::format("{}: {} runs", title, runs.size());
}

std::string tables_page(const std::string& title, const std::string& tables, std::span<const PageFolder> folders,
                        const std::string& made_by) {
  nlohmann::ordered_json page = {
      {"title", title}, {"tables", tables}, {"runs", nlohmann::ordered_json::array()}, {"made_by", made_by}};
  for (const PageFolder& folder : folders)
    page["runs"].push_back({{"name", folder.name}, {"folder", hex_of(folder.path)}, {"complete", folder.complete}});
  PythonAnswer answer = ask_python(kScript, json_text(page));
  if (answer.end == PythonEnd::done) return std::move(answer.text);
  if (answer.end == PythonEnd::no_package || answer.end == PythonEnd::not_installed)
    throw_input_error(
        "--format html needs python3 and its markdown: install the Debian package python3-markdown "
        "(scripts/install_packages.sh does).");
  throw_run_error("{}: there is no page.", answer.end == PythonEnd::failed ? fmt::format("{} failed", kScript)
                                                                           : "No new process could be started");
}

}  // namespace tandem::eval
