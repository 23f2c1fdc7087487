#include "eval/needle/needle.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <fmt/core.h>
#include <fmt/ranges.h>

#include "engine/common/error.h"
#include "engine/common/printable.h"
#include "eval/report/markdown.h"
#include "eval/report/table.h"
#include "eval/ruler_tasks/protocol.h"
#include "eval/run/option_values.h"

namespace tandem::eval {
namespace {

constexpr std::string_view kDepthPrefix = "depth_";

RulerOptions ruler_options(const NeedleOptions& asked) {
  find_one_needle_task(asked.task);
  RulerOptions options = static_cast<const RulerOptions&>(asked);
  options.needle = asked.task;
  for (const std::uint32_t depth : asked.depths) {
    if (depth > 100) throw_input_error("--depths: {} is more than 100 %.", depth);
    options.tasks.push_back(depth_task(depth));
    if (!options.percents.emplace(options.tasks.back(), depth).second)
      throw_input_error("--depths: {} is given twice.", depth);
  }
  if (asked.texts.essays != nullptr) check_hidden_in_prose(asked.task);
  return options;
}

/// Darker is more: a block of text for recall in fifths.
std::string shade(double recall) {
  constexpr std::array<const char*, 5> kShades = {"·", "░", "▒", "▓", "█"};
  return kShades[std::min<std::size_t>(kShades.size() - 1, static_cast<std::size_t>(recall * kShades.size()))];
}

std::string per_cent(double share, bool markdown) {
  const std::string number = fmt::format("{:.0f}", 100 * share);
  return markdown ? number : fmt::format("{} {}", number, shade(share));
}

const AccuracyCell* cell_at(const MethodSummary& m, const std::string& task, std::uint32_t length) {
  const auto found = std::find_if(m.cells.begin(), m.cells.end(),
                                  [&](const AccuracyCell& c) { return c.task == task && c.length == length; });
  return found == m.cells.end() ? nullptr : &*found;
}

/// Mean of what is there, by samples; nothing where nothing is.
struct Mean {
  double sum = 0;
  std::uint64_t n = 0;
  void add(const AccuracyCell* cell) {
    if (cell == nullptr) return;
    sum += cell->accuracy.value * static_cast<double>(cell->accuracy.n);
    n += cell->accuracy.n;
  }
  std::string text(bool markdown) const { return n == 0 ? "-" : per_cent(sum / static_cast<double>(n), markdown); }
};

Table map_of(const Summary& s, const MethodSummary& m, const std::string& label, bool markdown) {
  const Manifest& manifest = s.manifest;
  Table t;
  t.clock = markdown ? "" : label;
  t.head = {"depth"};
  for (const std::uint32_t length : manifest.lengths) t.head.push_back(length_text(length));
  t.head.emplace_back("all");
  std::vector<Mean> columns(manifest.lengths.size() + 1);
  for (const std::string& task : manifest.tasks) {
    std::vector<std::string>& row = t.rows.emplace_back();
    row.push_back(fmt::format("{}\u00a0%", depth_of_task(task)));
    Mean all;
    for (std::size_t l = 0; l < manifest.lengths.size(); ++l) {
      const AccuracyCell* cell = cell_at(m, task, manifest.lengths[l]);
      row.push_back(cell == nullptr ? "-" : per_cent(cell->accuracy.value, markdown));
      all.add(cell);
      columns[l].add(cell);
      columns.back().add(cell);
    }
    row.push_back(all.text(markdown));
  }
  std::vector<std::string>& last = t.rows.emplace_back();
  last.emplace_back("all");
  for (const Mean& column : columns) last.push_back(column.text(markdown));
  return t;
}

/// How many needles of `n` that the baseline finds a method has to lose at least, to be listed by losses().
std::uint32_t smallest_listed(std::uint32_t n) {
  for (std::uint32_t lost = 1; lost <= n; ++lost) {
    for (std::uint32_t nobody = 0; nobody <= n - lost; ++nobody) {
      if (newcombe_paired_interval({n - lost - nobody, lost, 0, nobody}).low > 0) return lost;
    }
  }
  return n + 1;
}

/// Cells whose paired difference to the baseline has a 95 % interval below 0, each for itself: a line for each method.
std::vector<std::string> losses(const Summary& s, const std::vector<std::string>& labels) {
  std::vector<std::string> lines;
  for (std::size_t i = 0; i < labels.size(); ++i) {
    std::string cells;
    std::size_t found = 0, all = 0;
    for (const AccuracyCell& cell : s.methods[i].cells) {
      if (!cell.has_difference) continue;
      ++all;
      const Estimate& d = cell.difference.difference;
      if (d.interval.high >= 0) continue;
      ++found;
      constexpr std::size_t kNamed = 4;
      if (found <= kNamed)
        cells += fmt::format("{} {}\u00a0% at {} ({:+.0f} points)", found == 1 ? ":" : ",", depth_of_task(cell.task),
                             length_text(cell.length), 100 * d.value);
      if (found == kNamed + 1) cells += ", ...";
    }
    if (all > 0) lines.push_back(fmt::format("{}: {} of {} cells{}", labels[i], found, all, cells));
  }
  return lines;
}

}  // namespace

std::string depth_task(std::uint32_t percent) {
  return fmt::format("{}{}", kDepthPrefix, percent);
}

std::uint32_t depth_of_task(std::string_view task) {
  std::uint32_t percent = 0;
  const char* end = task.data() + task.size();
  if (task.starts_with(kDepthPrefix)) {
    const auto read = std::from_chars(task.data() + kDepthPrefix.size(), end, percent);
    if (read.ec == std::errc{} && read.ptr == end && percent <= 100) return percent;
  }
  throw_input_error("The task '{}' is no depth of a needle: those are depth_0 to depth_100.", task);
}

void check_hidden_in_prose(std::string_view task) {
  if (find_one_needle_task(task).haystack != RulerTask::Haystack::prose)
    throw_input_error("--ruler-essays has no place in {}, whose haystack is no prose: give --task niah_single_2.",
                      task);
}

Needle::Needle(const NeedleOptions& options, const Model& model)
    : Ruler(ruler_options(options), model), depths_(options.depths) {}

std::string Needle::protocol_id(const Manifest& manifest) const {
  std::string id = fmt::format("needle/v2+task:{}", options_.needle);
  for (const auto& [field, value] : ruler_protocol_fields(Ruler::protocol_id(manifest)))
    id += fmt::format("+{}:{}", field == "variant" ? "source" : field, value);
  return id;
}

std::string Needle::arguments() const {
  const std::string& file = options_.text_files.essays;
  return fmt::format(" --task {}{} --lengths {} --depths {} --samples {} --seed {}", options_.needle,
                     file.empty() ? "" : " --ruler-essays " + shell_word(file), lengths_text(), fmt::join(depths_, ","),
                     options_.samples, options_.seed);
}

RunReport Needle::report(const RunFolder& folder) const {
  RunReport report;
  const Summary& summary = report.summary = summary_of(folder);
  report.files = {{"summary.json", to_json_text(summary)}};
  report.head = [summary](bool markdown, bool) {
    return report_text(summary, markdown, /*with_plot=*/false, /*by_task=*/false);
  };
  report.sections = {{needle_report(summary, true), needle_report(summary, false)}};
  report.plots = {{"eval/needle/plot_needle.py", "plot", "Recall by depth and length"}};
  return report;
}

std::string needle_report(const Summary& s, bool markdown) {
  const std::vector<std::string> labels = labels_of(s, markdown);
  std::string out = section("Recall by depth and length, %", markdown);
  for (std::size_t i = 0; i < labels.size(); ++i) {
    if (i > 0) out += "\n";
    if (markdown) out += fmt::format("**{}**\n\n", markdown_text(labels[i]));
    out += text_of(map_of(s, s.methods[i], labels[i], markdown), markdown);
  }
  const std::uint32_t n = s.manifest.samples;
  out += (markdown ? "" : "\n") +
         note(fmt::format("The needle stands behind so much of the haystack's sentences; {} a cell, of each method the "
                          "same. A cell of {} that are all found is one of 95 %: [{:.0f}, 100].",
                          counted(n, "sample"), n, 100 * wilson_interval(n, n).low),
              markdown);
  if (const std::vector<std::string> lines = losses(s, labels); !lines.empty()) {
    out += section(fmt::format("Cells below {}", labels.front()), markdown);
    for (const std::string& line : lines)
      out += (markdown ? "* " + markdown_paragraph(line) : wrap(printable(line), terminal_width())) + "\n";
    std::string how =
        "Cells whose 95 % interval of the paired difference lies below 0, each for itself: of cells without a true "
        "difference some would, by chance, nominally one in forty.";
    if (n > 0) {
      const std::uint32_t least = smallest_listed(n);
      how += least > n
                 ? fmt::format(" With {} a cell there can be none.", counted(n, "sample"))
                 : fmt::format(" With {} a cell, losses of fewer than {} are not seen.", counted(n, "sample"), least);
    }
    out += note(how, markdown);
  }
  return out;
}

}  // namespace tandem::eval
