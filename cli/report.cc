// tandem report: finished runs as tables for a paper or a spreadsheet.
#include <algorithm>
#include <filesystem>
#include <fmt/core.h>
#include <fmt/ranges.h>

#include "cli/commands.h"
#include "cli/output.h"
#include "eval/report/line_file.h"
#include "eval/tables/tables.h"

namespace tandem::cli {
namespace {

constexpr const char* kReportFooter = R"(
Examples:
  tandem report runs/a                                   all tables of a run, as its report.md has them
  tandem report runs/a --format latex --out table.tex    for a paper (booktabs)
  tandem report runs/* --format csv --out all.csv        every figure by run, method, task and length
  tandem report runs/a runs/b --out page.html            one page with all tables and plots, to look at or to send
  tandem report runs/sweep --format latex                a sweep of `tandem simulate`
  tandem report runs/llama runs/qwen --mixed             side by side, though other models saw other tokens

Folders are those of compare, eval and simulate. Several runs stand side by side where they ask the same questions in the
same way (benchmark, tasks, lengths, samples, seed, protocol id). Others are refused, since their figures are not
comparable; --mixed shows them all the same and says in what they differ. Sweeps of simulate follow, one by one.)";

struct ReportArguments {
  std::vector<std::string> runs;
  std::string format;
  OutFile out;
  bool mixed = false, json = false;
};

struct Ending {
  const char* ending;
  const char* format;
};
constexpr Ending kEndings[] = {{".txt", "text"}, {".md", "markdown"}, {".tex", "latex"},
                               {".csv", "csv"},  {".html", "html"},   {".json", "json"}};

/// By --format or --json, or by what the file's name ends in. InputError where the two contradict each other.
std::string format_of(const ReportArguments& a) {
  std::vector<std::string> formats;
  for (const Ending& one : kEndings) formats.emplace_back(one.format);
  if (!a.format.empty() && std::find(formats.begin(), formats.end(), a.format) == formats.end())
    throw_input_error("--format is '{}'.{} There are {}.", a.format, did_you_mean(a.format, formats),
                      join_names(formats));
  if (a.json && !a.format.empty() && a.format != "json")
    throw_input_error("--json and --format {} ask for two formats: give one of them.", a.format);
  const std::string asked = a.json ? "json" : a.format;
  for (const Ending& one : kEndings) {
    if (a.out.ending() != one.ending) continue;
    if (!asked.empty() && asked != one.format)
      throw_input_error("--format is {}, and --out is '{}', a name of {}: leave one away, or name another file.", asked,
                        a.out.name, one.format);
    return one.format;
  }
  return asked.empty() ? "text" : asked;
}

/// Without "." and links where it is there.
std::filesystem::path whole_path(const std::string& folder) {
  std::error_code refused;
  std::filesystem::path path = std::filesystem::weakly_canonical(folder, refused);
  if (refused) path = std::filesystem::path(folder).lexically_normal();
  return path.has_filename() ? path : path.parent_path();
}

/// The last parts of the folders' names; as they were typed where two have the same.
std::vector<std::string> names_of(const std::vector<std::string>& folders) {
  std::vector<std::string> names;
  names.reserve(folders.size());
  for (const std::string& folder : folders) names.push_back(whole_path(folder).filename().string());
  std::vector<std::string> sorted = names;
  std::sort(sorted.begin(), sorted.end());
  return std::adjacent_find(sorted.begin(), sorted.end()) == sorted.end() ? names : folders;
}

std::string text_of(const std::vector<eval::ReportedRun>& runs, const std::vector<eval::ReportedSweep>& sweeps,
                    const std::vector<eval::PageFolder>& folders, const std::string& format) {
  if (format == "json") return eval::tables_json(runs, sweeps);
  if (format == "csv") return sweeps.empty() ? eval::tables_csv(runs) : eval::sweeps_csv(sweeps);
  if (format == "html") {
    const std::string tables = runs.empty() ? "" : eval::tables_text(runs, eval::TableFormat::markdown);
    const bool one_model = std::all_of(sweeps.begin(), sweeps.end(), [&](const eval::ReportedSweep& s) {
      return s.file.sweep.model == sweeps.front().file.sweep.model;
    });
    const std::string title = sweeps.empty() ? eval::title_of(runs)
                              : runs.empty() && one_model
                                  ? fmt::format("Predictions for {}", sweeps[0].file.sweep.model)
                                  : "Tandem";
    return eval::tables_page(title, tables, folders, fmt::format("Made by {}.", program_text()));
  }
  const eval::TableFormat as = format == "latex"      ? eval::TableFormat::latex
                               : format == "markdown" ? eval::TableFormat::markdown
                                                      : eval::TableFormat::terminal;
  const bool whole = format == "text" && runs.size() == 1 && sweeps.empty() && runs[0].target_problem.empty() &&
                     !runs[0].whole.empty();
  std::string text = runs.empty() ? "" : whole ? runs[0].whole : eval::tables_text(runs, as);
  if (!runs.empty() && !sweeps.empty()) text += "\n";
  return text + eval::sweeps_text(sweeps, as);
}

void report(const ReportArguments& a) {
  const std::string format = format_of(a);
  if (a.format.empty()) {
    a.out.check({".txt", ".md", ".tex", ".csv", ".html", ".json"});
  } else {
    a.out.check({});
  }
  for (std::size_t i = 0; i < a.runs.size(); ++i)
    for (std::size_t j = 0; j < i; ++j)
      if (whole_path(a.runs[i]) == whole_path(a.runs[j])) throw_input_error("'{}' is given twice.", a.runs[i]);
  const std::vector<std::string> names = names_of(a.runs);
  std::vector<eval::ReportedRun> runs;
  std::vector<eval::ReportedSweep> sweeps;
  std::vector<eval::PageFolder> folders;
  for (std::size_t i = 0; i < a.runs.size(); ++i) {
    const bool sweep = eval::holds_sweep(a.runs[i]);
    if (sweep) {
      sweeps.push_back(eval::read_sweep(a.runs[i], names[i]));
      std::error_code ignored;
      if (format == "html" && !std::filesystem::exists(std::filesystem::path(a.runs[i]) / "report.md", ignored))
        throw_input_error("'{}' has no report.md, which a page shows of a sweep: `simulate --resume` writes it.",
                          a.runs[i]);
    } else {
      runs.push_back(eval::read_run(a.runs[i], names[i], format == "json"));
    }
    folders.push_back({names[i], a.runs[i], sweep ? sweeps.back().file.complete : runs.back().complete});
  }
  if (const auto differences = eval::unlike(runs); !differences.empty() && !a.mixed)
    throw_input_error("The runs are not comparable: {} --mixed shows them side by side all the same.",
                      fmt::join(differences, " "));
  if (format == "csv" && !runs.empty() && !sweeps.empty())
    throw_input_error("--format csv: '{}' is a sweep of simulate, which has other columns than runs: name it alone.",
                      sweeps.front().name);
  const std::string text = text_of(runs, sweeps, folders, format);
  a.out.write(text);
  a.out.name.empty() ? print("{}", text) : print("Wrote {}.\n", a.out.name);
  check_stdout();
}

}  // namespace

void add_report(Command app) {
  Command command = app.subcommand(
      "report", "Finished runs as tables: text, Markdown, LaTeX, CSV, HTML or JSON, side by side", kReportFooter);
  auto a = std::make_shared<ReportArguments>();
  command.required("runs", a->runs, "Folders of compare, eval and simulate");
  command.option("--format", a->format, "text, markdown, latex, csv, html or json [by the name of --out, else text]");
  a->out.add_to(command, "File for the tables; none: printed");
  command.flag("--json", a->json, json_help("the runs' summaries, as --format json does,"));
  command.flag("--mixed", a->mixed, "Show runs side by side that are not comparable, and say why");
  command.callback([a] { report(*a); });
}

}  // namespace tandem::cli
