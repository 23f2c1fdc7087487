// Finished runs as tables for a paper or a spreadsheet: one run, or several side by side; sweeps of `tandem simulate`
// one after another, since other shapes, machines and methods have nothing to stand side by side.
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "eval/predict/prediction.h"
#include "eval/predict/sweep.h"
#include "eval/report/summary.h"

namespace tandem::eval {

/// A run's figures. MethodSummary::latency is mean_of_lengths(). Where the run is a perplexity, `overall` has mean nats
/// of a token in place of an accuracy, and there are no other cells.
struct ReportedRun : Summary {
  std::string name;  // for heads
  bool perplexity = false;
  std::optional<Prediction> target;  // what --as predicted
  std::string target_problem;        // why its file cannot be shown: a sentence; else empty
  std::string whole;  // all tables, as the run itself wrote them (kTextReport); empty where it is not complete
  std::string json;   // what the run's summary.json says, from its samples; empty unless it was asked for
};

struct ReportedSweep {
  std::string name;  // for heads
  SweepFile file;
  std::string json;  // the file's text
};

/// A run's folder under a name, with ReportedRun::json where that is wanted. InputError where it is none, or a damaged
/// one.
ReportedRun read_run(const std::filesystem::path& folder, const std::string& name, bool with_json = false);

/// In what the runs' questions differ, a sentence for each later run, beside another budget of methods that only one of
/// them has; empty: they are alike. Figures of unlike runs are not comparable.
std::vector<std::string> unlike(std::span<const ReportedRun> runs);

/// Runs, read with their JSON, and sweeps with their names, as one document: {"runs": [{"name", "summary"}], "sweeps":
/// [{"name", "sweep"}]}, where a summary is what summary.json has, and a sweep what sweep.json has.
std::string tables_json(std::span<const ReportedRun> runs, std::span<const ReportedSweep> sweeps);

enum class TableFormat : std::uint8_t { terminal, markdown, latex };

/// Two tables, of quality and of times, with a line for each method and columns for each run, and one of each
/// prediction at a target shape.
std::string tables_text(std::span<const ReportedRun> runs, TableFormat format);

/// A folder as it stands in a page.
struct PageFolder {
  std::string name, path;
  bool complete = false;
};

/// One HTML page: `tables`, in Markdown, and each folder's own report with its plots. Nothing of it lies in another
/// file. `made_by`: the program. InputError where Python or a package of it is missing.
std::string tables_page(const std::string& title, const std::string& tables, std::span<const PageFolder> folders,
                        const std::string& made_by);
/// Of a page of these: what they measure, and of which model where that is one.
std::string title_of(std::span<const ReportedRun> runs);

/// A line for each run, method, task and length, and for all together. Shares and milliseconds as they are.
std::string tables_csv(std::span<const ReportedRun> runs);

/// Whether a folder holds a sweep, and no run.
bool holds_sweep(const std::filesystem::path& folder);

/// A sweep's folder under a name. InputError where its file is damaged or has no point.
ReportedSweep read_sweep(const std::filesystem::path& folder, const std::string& name);

/// The tables of each sweep.
std::string sweeps_text(std::span<const ReportedSweep> sweeps, TableFormat format);

/// A line for each point of each.
std::string sweeps_csv(std::span<const ReportedSweep> sweeps);

/// In LaTeX with the rules of the package booktabs: a tabular environment. The clock spans the columns that it is of.
std::string latex_table(const Table& table);

/// printable() text as LaTeX prints it: its special characters escaped, minus signs as such.
std::string latex_text(const std::string& text);

/// A line that LaTeX does not see.
std::string latex_comment(const std::string& text);

}  // namespace tandem::eval
