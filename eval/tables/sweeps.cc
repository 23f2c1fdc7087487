// Sweeps of `tandem simulate` as tables.
#include "engine/common/error.h"
#include "eval/report/csv.h"
#include "eval/report/line_file.h"
#include "eval/report/run_files.h"
#include "eval/tables/latex.h"
#include "eval/tables/tables.h"

namespace tandem::eval {
namespace {

std::string describe(const ReportedSweep& s) {
  return fmt::format("{}: sweep of {}, made by {}: {}{}", s.name, s.file.sweep.model, s.file.program, s.file.command,
                     s.file.complete ? "" : " (NOT COMPLETE)");
}

std::string latex_of(const ReportedSweep& s) {
  std::string text = latex_comment(describe(s));
  for (const SweepTable& part : sweep_tables(s.file.sweep))
    for (const Table& table : part.tables) text += latex_comment(part.title) + latex_table(table) + "\n";
  for (const std::string& note : sweep_notes(s.file.sweep)) text += latex_comment(note);
  return text;
}

}  // namespace

bool holds_sweep(const std::filesystem::path& folder) {
  std::error_code ignored;
  return std::filesystem::exists(folder / kSweepFile, ignored) &&
         !std::filesystem::exists(folder / "manifest.json", ignored);
}

ReportedSweep read_sweep(const std::filesystem::path& folder, const std::string& name) {
  const std::filesystem::path file = folder / kSweepFile;
  refuse_links(folder);
  const std::string text = read_if_there(file);
  if (text.empty()) throw_input_error("The file '{}' is empty or cannot be read.", file.string());
  return {name, parse_sweep(text, file.string())};
}

std::string sweeps_text(std::span<const ReportedSweep> sweeps, TableFormat format) {
  std::string text;
  for (const ReportedSweep& s : sweeps) {
    if (!text.empty()) text += "\n";
    if (format == TableFormat::latex) {
      text += latex_of(s);
    } else {
      const bool markdown = format == TableFormat::markdown;
      text += note(describe(s), markdown);
      if (!s.file.complete && s.file.sweep.complete())  // of what it has places of; whole ones may be missing
        text += note(fmt::format("Not finished: {} points are here.", s.file.sweep.points.size()), markdown);
      text += sweep_text(s.file.sweep, markdown);
    }
  }
  return text;
}

std::string sweeps_csv(std::span<const ReportedSweep> sweeps) {
  std::string out;
  for (const ReportedSweep& s : sweeps) {
    const std::string lines = sweep_csv(s.file.sweep);
    bool head = true;
    for (std::size_t at = 0; at < lines.size();) {
      const std::size_t end = lines.find('\n', at) + 1;  // cells have no line ends
      if (!head || out.empty()) out += (head ? "run" : csv_cell(s.name)) + "," + lines.substr(at, end - at);
      head = false;
      at = end;
    }
  }
  return out;
}

}  // namespace tandem::eval
