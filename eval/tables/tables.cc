#include "eval/tables/tables.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>
#include <ranges>

#include "engine/common/error.h"
#include "engine/common/json.h"
#include "engine/common/printable.h"
#include "engine/common/python.h"
#include "eval/report/answer.h"
#include "eval/report/manifest_difference.h"
#include "eval/report/table.h"

namespace tandem::eval {
namespace {

/// Labels of all runs, each once, as they come.
std::vector<std::string> all_labels(std::span<const ReportedRun> runs) {
  std::vector<std::string> labels;
  for (const ReportedRun& run : runs)
    for (const MethodSummary& m : run.methods)
      if (std::ranges::find(labels, m.label) == labels.end()) labels.push_back(m.label);
  return labels;
}

const MethodSummary* find(const ReportedRun& run, const std::string& label) {
  const auto found = std::ranges::find(run.methods, label, &MethodSummary::label);
  return found == run.methods.end() ? nullptr : &*found;
}

std::string with_interval(const Estimate& e, const auto& text) {
  if (e.n == 0) return "-";
  return e.kind == IntervalKind::none ? text(e.value) : interval_text(e, text);
}

std::string head(std::span<const ReportedRun> runs, const ReportedRun& run, const std::string& what) {
  return runs.size() == 1 ? what : run.name + ": " + what;
}

const std::string& baseline_of(const ReportedRun& run) {
  return run.manifest.methods.front().label;
}

/// Whether the baseline has a sample: a run that is not finished may have only others'.
bool has_baseline(const ReportedRun& run) {
  return find(run, baseline_of(run)) != nullptr;
}

Table quality_table(std::span<const ReportedRun> runs) {
  Table t;
  t.head = {"method"};
  for (const ReportedRun& run : runs) {
    t.head.push_back(head(runs, run, measure_of(run.manifest.benchmark) + " [95\u00a0%]"));
    if (has_baseline(run))
      t.head.push_back(
          head(runs, run,
               fmt::format("{} than {} [95\u00a0%]", run.perplexity ? "nats more" : "points more", baseline_of(run))));
    if (any_attends_everything(run.methods)) t.head.push_back(head(runs, run, "budget"));
  }
  for (const std::string& label : all_labels(runs)) {
    std::vector<std::string>& row = t.rows.emplace_back();
    row.push_back(label);
    for (const ReportedRun& run : runs) {
      static const MethodSummary kNone = {};
      const MethodSummary* found = find(run, label);
      const MethodSummary& m = found == nullptr ? kNone : *found;
      row.push_back(with_interval(m.overall.accuracy, [&](double v) {
        return run.perplexity ? fmt::format("{:.4f}", std::exp(v)) : percent_text(v);
      }));
      if (has_baseline(run))
        row.push_back(with_interval(m.overall.difference.difference, [&](double v) {
          return run.perplexity ? fmt::format("{:+.4f}", v) : signed_percent_text(v);
        }));
      if (any_attends_everything(run.methods)) row.push_back(budget_text(m.attends_everything_at));
    }
  }
  return t;
}

bool has_peer(const ReportedRun& run) {
  return std::ranges::any_of(run.methods,
                             [](const MethodSummary& m) { return m.latency && m.latency->peak_peer_kv > 0; });
}

/// Cells of a method in a run that has times, as many as time_heads().
std::vector<std::string> time_cells(const ReportedRun& run, const MethodSummary& m, const LatencySummary& l) {
  const auto ms = [](double value) { return fmt::format("{:.4g}", value); };
  const auto megabytes = [](std::uint64_t bytes) { return fmt::format("{:.2f}", double(bytes) * 1e-6); };
  std::vector<std::string> cells = {ms(l.ttft_ms), figure_text(l.tpot_ms, ms)};
  if (run.manifest.lengths.size() == 1) cells.push_back(figure_text(l.tpot_p99_ms, ms));
  cells.insert(cells.end(), {ms(l.idle_ms), figure_text(mean_idle_share(m), percent_text), megabytes(l.peak_device_kv),
                             megabytes(l.peak_host_kv)});
  if (has_peer(run)) cells.push_back(megabytes(l.peak_peer_kv));
  return cells;
}

/// `clock`: behind the columns that are times.
std::vector<std::string> time_heads(const ReportedRun& run, const std::string& clock) {
  std::vector<std::string> heads = {"TTFT ms" + clock, "TPOT ms" + clock};
  if (run.manifest.lengths.size() == 1) heads.push_back("p99 ms" + clock);
  heads.insert(heads.end(), {"idle ms a step" + clock, "idle %", "KV MB, device", "host"});
  if (has_peer(run)) heads.emplace_back("peer");
  return heads;
}

/// Only of runs that have times; no columns where none has.
Table time_table(std::span<const ReportedRun> runs) {
  std::vector<const ReportedRun*> timed;
  for (const ReportedRun& run : runs)
    if (!run.manifest.clock.empty()) timed.push_back(&run);
  Table t;
  t.head = {"method"};
  const bool one_clock = std::ranges::all_of(
      timed, [&](const ReportedRun* r) { return r->manifest.clock == timed.front()->manifest.clock; });
  if (one_clock && !timed.empty()) t.clock = timed.front()->manifest.clock;
  const bool one_batch = std::ranges::all_of(
      timed, [&](const ReportedRun* r) { return batch_of(r->manifest) == batch_of(timed.front()->manifest); });
  for (const ReportedRun* run : timed) {
    std::string clock = one_clock ? "" : ", " + run->manifest.clock;
    if (!one_batch) clock += fmt::format(", batch {}", batch_of(run->manifest));
    for (const std::string& what : time_heads(*run, clock)) t.head.push_back(head(runs, *run, what));
  }
  for (const std::string& label : all_labels(runs)) {
    std::vector<std::string>& row = t.rows.emplace_back();
    row.push_back(label);
    for (const ReportedRun* run : timed) {
      const MethodSummary* m = find(*run, label);
      std::vector<std::string> cells(time_heads(*run, "").size(), "-");
      if (m != nullptr && m->latency) cells = time_cells(*run, *m, *m->latency);
      row.insert(row.end(), cells.begin(), cells.end());
    }
  }
  return t;
}

std::string describe(const ReportedRun& run) {
  const Manifest& m = run.manifest;
  std::string text =
      fmt::format("{}: {} of {}, {} at {}, {} per method; batch {}{}, {}, commit {}{}.", run.name, m.benchmark, m.model,
                  fmt::join(m.tasks, ", "), fmt::join(m.lengths | std::views::transform(length_text), ", "),
                  counted(m.all_samples(), m.benchmark == kPerplexity ? "window" : "sample"), batch_of(m),
                  m.precision.empty() ? "" : ", precision " + m.precision, m.clock.empty() ? "no times" : m.clock,
                  m.programs.front().git_commit, run.complete ? "" : ", NOT COMPLETE");
  if (const auto& times = run.methods.front().latency; times && times->left_out > 0)
    text += fmt::format(" Times of {} in smaller batches are left out.", counted(times->left_out, "sample"));
  if (const AccuracyCell& all = run.methods.front().overall; all.units > 0 && all.units < all.accuracy.n)
    text += fmt::format(" Of these {} are independent: intervals are of them.", all.units);
  if (!has_baseline(run))
    text += fmt::format(" {}, its first method, has no {} yet: there are no differences to it.", baseline_of(run),
                        run.perplexity ? "window" : "sample");
  return text;
}

/// Runs whose models have one name and are not the same.
std::vector<std::string> other_models_of_a_name(std::span<const ReportedRun> runs) {
  std::vector<std::string> sentences;
  for (std::size_t i = 1; i < runs.size(); ++i) {
    const Manifest& m = runs[i].manifest;
    const auto first = std::find_if(runs.begin(), runs.begin() + static_cast<std::ptrdiff_t>(i),
                                    [&](const ReportedRun& r) { return r.manifest.model == m.model; });
    const Manifest& other = first->manifest;
    if (&other == &m) continue;
    if (m.weights_hash != other.weights_hash)
      sentences.push_back(fmt::format("{} has other weights in {} than in {} ({} and {}).", m.model, runs[i].name,
                                      first->name, m.weights_hash, other.weights_hash));
    else if (!m.config_hash.empty() && !other.config_hash.empty() && m.config_hash != other.config_hash)
      sentences.push_back(
          fmt::format("{} has another config.json in {} than in {}.", m.model, runs[i].name, first->name));
  }
  return sentences;
}

std::string describe(const ReportedSweep& s) {
  return fmt::format("{}: sweep of {}, made by {}: {}{}", s.name, s.file.sweep.model, s.file.program, s.file.command,
                     s.file.complete ? "" : " (NOT COMPLETE)");
}

std::string show(const Table& table, TableFormat format, const std::string& title) {
  if (format == TableFormat::latex) return latex_comment(title) + latex_table(table) + "\n";
  return section(title, format == TableFormat::markdown) + text_of(table, format == TableFormat::markdown);
}

std::string say(const std::string& sentence, TableFormat format) {
  return format == TableFormat::latex ? latex_comment(sentence) : note(sentence, format == TableFormat::markdown);
}

bool is_sign(const std::string& text, std::size_t at) {
  if (text[at] != '-' || at + 1 == text.size() || std::isdigit(static_cast<unsigned char>(text[at + 1])) == 0)
    return false;
  return at == 0 || text[at - 1] == ' ' || text[at - 1] == '[';
}

std::string latex_line(const std::vector<std::string>& cells) {
  std::string out;
  for (std::size_t c = 0; c < cells.size(); ++c) out += (c == 0 ? "" : " & ") + latex_text(cells[c]);
  return out + " \\\\\n";
}

constexpr const char* kScript = "eval/tables/page.py";

}  // namespace

std::string tables_text(std::span<const ReportedRun> runs, TableFormat format) {
  std::string text;
  const auto add = [&](const std::string& sentence) { text += say(sentence, format); };
  for (const ReportedRun& run : runs) add(describe(run));
  for (const std::string& sentence : other_models_of_a_name(runs)) add(sentence);
  const bool losses = std::ranges::any_of(runs, [](const ReportedRun& r) { return r.perplexity; });
  const bool right_or_wrong =
      std::ranges::all_of(runs, [](const ReportedRun& r) { return score_name(r.manifest.benchmark) == "accuracy"; });
  text += show(quality_table(runs), format, losses ? "Loss" : right_or_wrong ? "Accuracy" : "Scores");
  const Table times = time_table(runs);
  if (times.head.size() > 1) text += show(times, format, "Latency, idle time, memory");
  if (std::ranges::any_of(
          runs, [](const ReportedRun& r) { return !r.manifest.clock.empty() && r.manifest.lengths.size() > 1; })) {
    add("Of runs at several lengths, times and idle % are means of the lengths' means: each length has the same "
        "weight, whatever a method generated there. Times by length, with percentiles, are in report.md and in "
        "--format csv.");
  }
  for (const ReportedRun& run : runs) {
    if (!run.target) continue;
    text += show(prediction_table(*run.target), format,
                 runs.size() > 1 ? "At a target shape: " + run.name : "At a target shape");
    for (const std::string& sentence : prediction_notes(*run.target)) add(sentence);
  }
  for (const ReportedRun& run : runs)
    if (!run.target_problem.empty())
      add(fmt::format("{}: the prediction at a target shape cannot be shown. {}", run.name, run.target_problem));
  for (const std::string& sentence : unlike(runs)) add("Not comparable: " + sentence);
  return text;
}

std::string sweeps_text(std::span<const ReportedSweep> sweeps, TableFormat format) {
  std::string text;
  for (const ReportedSweep& s : sweeps) {
    const Sweep& sweep = s.file.sweep;
    text += (text.empty() ? "" : "\n") + say(describe(s), format);
    if (format == TableFormat::latex) {
      for (const SweepTable& part : sweep_tables(sweep))
        for (const Table& table : part.tables) text += show(table, format, part.title);
      for (const std::string& sentence : sweep_notes(sweep)) text += say(sentence, format);
      continue;
    }
    const bool markdown = format == TableFormat::markdown;
    if (!s.file.complete && sweep.complete())  // of what it has places of; whole ones may be missing
      text += note(fmt::format("Not finished: {} points are here.", sweep.points.size()), markdown);
    text += sweep_text(sweep, markdown);
  }
  return text;
}

std::string tables_json(std::span<const ReportedRun> runs, std::span<const ReportedSweep> sweeps) {
  nlohmann::ordered_json json = {{"runs", nlohmann::ordered_json::array()},
                                 {"sweeps", nlohmann::ordered_json::array()}};
  for (const ReportedRun& run : runs)
    json["runs"].push_back({{"name", run.name}, {"summary", parse_ordered_json(run.json, "summary.json")}});
  for (const ReportedSweep& sweep : sweeps)
    json["sweeps"].push_back({{"name", sweep.name}, {"sweep", parse_ordered_json(sweep.json, kSweepFile)}});
  return json_text(json, 2) + "\n";
}

std::string latex_text(const std::string& anybodys) {
  constexpr std::string_view kNoBreak = "\u00a0";
  const std::string text = printable(anybodys);
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (std::string_view(text).substr(i).starts_with(kNoBreak)) {
      out += '~';
      i += kNoBreak.size() - 1;
    } else if (std::string_view("&%$#_{}").find(c) != std::string_view::npos) {
      out += std::string("\\") + c;
    } else if (c == '\\') {
      out += "\\textbackslash{}";
    } else if (c == '~') {
      out += "\\textasciitilde{}";
    } else if (c == '^') {
      out += "\\textasciicircum{}";
    } else if (c == '<' || c == '>' || c == '|') {  // other characters in TeX's old fonts
      out += std::string("$") + c + "$";
    } else if (i == 0 && (c == '[' || c == '*')) {  // behind \\ or \midrule an argument of these
      out += std::string("{") + c + "}";
    } else if (is_sign(text, i)) {
      out += "$-$";
    } else {
      out += c;
    }
  }
  return out;
}

std::string latex_comment(const std::string& text) {
  return "% " + printable(text) + "\n";
}

std::string latex_table(const Table& table) {
  const std::size_t columns = table.head.size();
  std::string out = fmt::format("\\begin{{tabular}}{{{}{}}}\n\\toprule\n", std::string(table.leading, 'l'),
                                std::string(columns - table.leading, 'r'));
  if (!table.clock.empty()) {
    for (std::size_t c = 0; c < table.leading; ++c) out += "& ";
    out += fmt::format("\\multicolumn{{{}}}{{c}}{{{}}} \\\\\n\\cmidrule(lr){{{}-{}}}\n", columns - table.leading,
                       latex_text(table.clock), table.leading + 1, columns);
  }
  out += latex_line(table.head) + "\\midrule\n";
  for (const auto& row : table.rows) out += latex_line(row);
  return out + "\\bottomrule\n\\end{tabular}\n";
}

std::string title_of(std::span<const ReportedRun> runs) {
  const Manifest& first = runs.front().manifest;
  std::string title = page_title(first);
  if (runs.size() == 1) return title;
  for (const ReportedRun& run : runs)
    if (run.manifest.model != first.model || run.manifest.benchmark != first.benchmark) title = "Tandem";
  return fmt::format("{}: {} runs", title, runs.size());
}

std::string tables_page(const std::string& title, const std::string& tables, std::span<const PageFolder> folders,
                        const std::string& made_by) {
  nlohmann::ordered_json page = {
      {"title", title}, {"tables", tables}, {"runs", nlohmann::ordered_json::array()}, {"made_by", made_by}};
  for (const PageFolder& folder : folders) {
    std::string hex;  // as text of JSON it would have to be UTF-8, which a folder's name need not be
    for (const char byte : folder.path) hex += fmt::format("{:02x}", static_cast<unsigned char>(byte));
    page["runs"].push_back({{"name", folder.name}, {"folder", hex}, {"complete", folder.complete}});
  }
  PythonAnswer answer = ask_python(kScript, json_text(page));
  if (answer.end == PythonEnd::done) return std::move(answer.text);
  if (answer.end == PythonEnd::no_package || answer.end == PythonEnd::not_installed)
    throw_input_error(
        "An HTML page needs python3 and its markdown: install the Debian package python3-markdown "
        "(scripts/install_packages.sh does).");
  throw_run_error("{}: there is no page.", answer.end == PythonEnd::failed ? fmt::format("{} failed", kScript)
                                                                           : "No new process could be started");
}

}  // namespace tandem::eval
