// Tables for people: one content, rendered for the terminal (never wider than asked for) and for Markdown.
#pragma once

#include <algorithm>
#include <filesystem>
#include <fmt/core.h>
#include <optional>
#include <string>
#include <vector>

#include "eval/report/summary.h"

namespace tandem::eval {

inline constexpr std::size_t kTerminalWidth = 100;

/// Columns to write for: kTerminalWidth, or the terminal's that standard output is, where it has fewer (at least 60).
std::size_t terminal_width();

/// While one lives, terminal_width() is kTerminalWidth in this thread: a file's text is the same whatever the terminal
/// of the program that writes it.
class FixedWidth {
 public:
  FixedWidth();
  FixedWidth(const FixedWidth&) = delete;
  FixedWidth& operator=(const FixedWidth&) = delete;
  ~FixedWidth();
};

struct Table {
  std::vector<std::string> head;               // broken at spaces where a column is narrower than its head
  std::vector<std::vector<std::string>> rows;  // as many cells as `head`
  std::size_t leading = 1;  // columns that name a row: left aligned, repeated when a wide table is cut into several
  std::string clock;        // of the other columns: printed above them, in Markdown above the table; empty for counts

  /// Aligned text. Columns that do not fit into `width` follow in a further table with the same rows; too wide a cell
  /// ends in "…".
  std::string text(std::size_t width = terminal_width()) const;
  std::string markdown() const;
};

/// `text`, or its beginning and "…" where it has more than `width` columns.
std::string cut(const std::string& text, std::size_t width);

/// Terminal columns that UTF-8 `text` takes: code points, since no wide or combining ones are used here.
std::size_t text_columns(std::string_view text);

/// `text` of a figure, or "-" where there is none.
std::string figure_text(const std::optional<double>& figure, const auto& text) {
  return figure ? text(*figure) : "-";
}

/// "1 sample", "20 samples".
std::string counted(std::uint64_t number, std::string_view singular);

/// `text` broken at spaces into lines of at most `width` columns where words allow; existing line ends are kept.
std::string wrap(std::string_view text, std::size_t width);

/// Labels as they are or, where one is longer than `longest` columns, its name with the options that tell it from the
/// others; "name#3" of the third where these are too long, too.
std::vector<std::string> short_labels(const std::vector<std::string>& labels, std::size_t longest = 24);

/// Labels of the methods as they are or, for a terminal, short_labels().
std::vector<std::string> labels_of(const Summary& summary, bool markdown);

/// The label of the run's first method, which others are compared with, also where it has no sample yet.
const std::string& baseline_label(const Summary& summary, const std::vector<std::string>& labels);

/// "attends everything at 2K, 4K" of a method; "-" where its budget leaves something out at each length.
std::string budget_text(const std::vector<std::uint32_t>& attends_everything_at);
/// Whether a method attends everything at some length: the table then has a column of budget_text().
bool any_attends_everything(const auto& methods) {
  return std::ranges::any_of(methods, [](const auto& m) { return !m.attends_everything_at.empty(); });
}
/// A sentence for below a table that has that column; empty where none attends everything.
std::string budget_note(const Summary& summary);

/// "80.8" and "+80.8" of 0.808: in per cent, or in points.
std::string percent_text(double share);
std::string signed_percent_text(double share);
/// "80.8 [72.9, 86.9]": a figure with its interval, each by `text`.
std::string interval_text(const Estimate& e, const auto& text) {
  return fmt::format("{} [{}, {}]", text(e.value), text(e.interval.low), text(e.interval.high));
}

/// "80.8 [72.9, 86.9]", in per cent; "-19.2 [-27.0, -11.2]", in points, "-" for the baseline.
std::string accuracy_text(const Estimate& accuracy);
std::string difference_text(const AccuracyCell& cell);

/// A paragraph, a title, a table: Markdown, or for a terminal of terminal_width() columns. Names in the text may be
/// anybody's: they make no Markdown and no line of their own.
std::string note(const std::string& text, bool markdown);
std::string section(const std::string& title, bool markdown);
std::string text_of(const Table& table, bool markdown);

/// "4K", "1000".
std::string length_text(std::uint32_t length);

/// "118–310": three digits each, without exponents.
std::string range_text(double low, double high);
/// "about 1400", rounded up to two digits; "more than <most>" from there on.
std::string about_text(std::uint64_t count, std::uint64_t most);

/// Note on latencies of the embedded model.
inline constexpr const char* kOwnSteps =
    "The embedded model's own steps are launches and hand-offs, not KV: what a method's budget is worth shows in steps "
    "predicted at a large shape (`compare --as`, `tandem gate`).";
bool is_embedded(const Manifest& manifest);

/// "LongBench" of "longbench"; a name without a title as it is.
std::string benchmark_title(const std::string& benchmark);
/// "LongBench on llama".
std::string page_title(const Manifest& manifest);

/// The sections on idle time, latency and bytes; empty where no sample has a timing. Markdown does not name the clock:
/// clock_note() at the report's head does.
std::string latency_report(const Summary& summary, bool markdown);
/// Markdown: ". Times are simulated for h200.", and nothing for a terminal, whose tables name the clock.
std::string clock_note(const Summary& summary, bool markdown);

/// Short labels beside the labels they stand for; empty where no label is too long.
std::string labels_note(const Summary& summary, bool markdown);

/// The summary's remarks, a paragraph each; empty where there are none.
std::string remarks_note(const Summary& summary, bool markdown);

/// Markdown: how the run was made. A report ends with it.
std::string provenance(const Manifest& manifest);

/// Sections with tables and how to read them; `markdown` false: for a terminal of terminal_width() columns. Without
/// `by_task` there is no table of tasks and lengths.
std::string report_text(const Summary& summary, bool markdown, bool with_plot = false, bool by_task = true);

/// Whether kPlot draws pareto.png beside plot.png: two methods or more have steps that take time.
bool has_front(const Summary& summary);
/// Markdown: the picture of the front, or nothing where none is drawn.
std::string front_picture(const Summary& summary, bool with_plot);

/// Draws a run folder's summary.json.
constexpr const char* kPlot = "eval/report/plot.py";
/// Has a shipped script draw what is in a folder. nullopt where it did, else a sentence that says why not: empty where
/// the script lacks its package, which it has said on standard error.
std::optional<std::string> draw_plot(const std::string& script, const std::filesystem::path& folder);

}  // namespace tandem::eval
