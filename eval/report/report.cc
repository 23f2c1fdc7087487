// The report of a run: which tables there are, and how they are to be read.
#include <algorithm>
#include <fmt/ranges.h>
#include <set>

#include "engine/common/error.h"
#include "eval/report/table.h"

namespace tandem::eval {
namespace {

using Labels = std::vector<std::string>;  // by index into Summary::methods

std::string percent(double share) {
  return fmt::format("{:.1f}", 100 * share);
}

std::string with_interval(const Estimate& e) {
  return fmt::format("{} [{}, {}]", percent(e.value), percent(e.interval.low), percent(e.interval.high));
}

std::string points(const AccuracyCell& cell) {
  if (!cell.has_difference) return "-";
  const Estimate& d = cell.difference.difference;
  return fmt::format("{:+.1f} [{:+.1f}, {:+.1f}]", 100 * d.value, 100 * d.interval.low, 100 * d.interval.high);
}

std::string p_text(const AccuracyCell& cell) {
  if (!cell.has_difference || !cell.difference.has_p) return "-";
  return cell.difference.p < 0.001 ? "<0.001" : fmt::format("{:.3f}", cell.difference.p);
}

std::string length_text(std::uint32_t length) {
  return length > 0 && length % 1024 == 0 ? fmt::format("{}K", length / 1024) : fmt::format("{}", length);
}

std::string bytes_text(double bytes) {
  const char* units[] = {"B", "KB", "MB", "GB", "TB"};
  int unit = 0;
  while (bytes >= 999.5 && unit < 4) {
    bytes /= 1000;
    ++unit;
  }
  if (bytes == 0) return "0";
  return fmt::format("{:.{}f} {}", bytes, unit == 0 || bytes >= 99.95 ? 0 : bytes >= 9.995 ? 1 : 2, units[unit]);
}

std::string ms_text(double ms) {
  return ms == 0 ? "0" : fmt::format("{:.{}f}", ms, ms >= 100 ? 1 : ms >= 1 ? 2 : 4);
}

/// Labels as they are, or "name#3" where an option list is too long for a column of a terminal.
Labels labels_of(const Summary& s, bool markdown) {
  constexpr std::size_t kLongest = 24;
  Labels labels;
  for (const MethodSummary& m : s.methods) {
    labels.push_back(m.label);
    if (markdown || text_columns(m.label) <= kLongest) continue;
    for (std::size_t i = 0; i < s.manifest.methods.size(); ++i)
      if (s.manifest.methods[i].label == m.label)
        labels.back() = fmt::format("{}#{}", s.manifest.methods[i].name, i + 1);
  }
  return labels;
}

const std::string& baseline_label(const Summary& s, const Labels& labels) {
  for (std::size_t i = 0; i < labels.size(); ++i)
    if (s.methods[i].label == s.manifest.methods.front().label) return labels[i];
  return s.manifest.methods.front().label;
}

Table accuracy_table(const Summary& s, const Labels& labels) {
  Table t;
  t.head = {"method", "n", "accuracy, % [95\u00a0%]",
            "difference to " + baseline_label(s, labels) + ", points [95\u00a0%]", "McNemar\u00a0p"};
  for (std::size_t i = 0; i < labels.size(); ++i) {
    const AccuracyCell& all = s.methods[i].overall;
    t.rows.push_back(
        {labels[i], std::to_string(all.accuracy.n), with_interval(all.accuracy), points(all), p_text(all)});
  }
  return t;
}

Table task_table(const Summary& s, const Labels& labels) {
  Table t;
  t.head = {"task", "length"};
  t.leading = 2;
  t.head.insert(t.head.end(), labels.begin(), labels.end());
  for (const std::string& task : s.manifest.tasks) {
    for (const std::uint32_t length : s.manifest.lengths) {
      std::vector<std::string> row = {task, length_text(length)};
      for (const MethodSummary& m : s.methods) {
        const auto cell = std::find_if(m.cells.begin(), m.cells.end(),
                                       [&](const AccuracyCell& c) { return c.task == task && c.length == length; });
        row.push_back(cell == m.cells.end() ? "-" : with_interval(cell->accuracy));
      }
      t.rows.push_back(std::move(row));
    }
  }
  return t;
}

/// One row per length and method; `cells` turns a LatencySummary into the row's cells.
template <class Cells>
Table by_length(const Summary& s, const Labels& labels, std::vector<std::string> head, Cells cells) {
  Table t;
  t.leading = 2;
  t.head = {"length", "method"};
  t.head.insert(t.head.end(), head.begin(), head.end());
  for (const std::uint32_t length : s.manifest.lengths) {
    for (std::size_t i = 0; i < labels.size(); ++i) {
      for (const LengthLatency& at : s.methods[i].by_length) {
        if (at.length != length) continue;
        std::vector<std::string> row = {length_text(length), labels[i]};
        for (std::string& cell : cells(at.latency)) row.push_back(std::move(cell));
        t.rows.push_back(std::move(row));
      }
    }
  }
  return t;
}

Table latency_table(const Summary& s, const Labels& labels) {
  Table t = by_length(
      s, labels,
      {"TTFT ms", "= prefill", "+ setup", "+ first step", "TPOT ms", "p50", "p90", "p99", "idle ms", "idle %"},
      [](const LatencySummary& l) -> std::vector<std::string> {
        return {ms_text(l.ttft_ms),     ms_text(l.prefill_ms),
                ms_text(l.setup_ms),    ms_text(l.first_step_ms),
                ms_text(l.tpot_ms),     ms_text(l.tpot_p50_ms),
                ms_text(l.tpot_p90_ms), ms_text(l.tpot_p99_ms),
                ms_text(l.idle_ms),     l.step_ms > 0 ? percent(l.idle_ms / l.step_ms) : "-"};
      });
  t.clock = s.manifest.clock;
  return t;
}

Table idle_table(const Summary& s, const Labels& labels, std::uint32_t length) {
  Table t;
  t.clock = s.manifest.clock;
  t.head = {"us per decode step"};
  std::vector<const LatencySummary*> columns;
  std::vector<std::string> causes;
  for (std::size_t i = 0; i < labels.size(); ++i) {
    for (const LengthLatency& at : s.methods[i].by_length) {
      if (at.length != length) continue;
      t.head.push_back(labels[i]);
      columns.push_back(&at.latency);
      for (const auto& [cause, ms] : at.latency.idle_ms_by_cause)
        if (ms > 0 && std::find(causes.begin(), causes.end(), cause) == causes.end()) causes.push_back(cause);
    }
  }
  const auto row = [&](const std::string& name, auto&& value) {
    std::vector<std::string> cells = {name};
    for (const LatencySummary* l : columns) cells.push_back(fmt::format("{:.1f}", 1000 * value(*l)));
    t.rows.push_back(std::move(cells));
  };
  row("step", [](const LatencySummary& l) { return l.step_ms; });
  row("= busy", [](const LatencySummary& l) { return l.busy_ms; });
  row("+ idle", [](const LatencySummary& l) { return l.idle_ms; });
  for (const std::string& cause : causes) {
    row("· " + cause, [&](const LatencySummary& l) {
      const auto found = l.idle_ms_by_cause.find(cause);
      return found == l.idle_ms_by_cause.end() ? 0.0 : found->second;
    });
  }
  return t;
}

Table bytes_table(const Summary& s, const Labels& labels) {
  return by_length(s, labels,
                   {"HBM", "DRAM", "link to device", "link to host", "attended on device", "attended on host",
                    "peak KV device", "peak KV host"},
                   [](const LatencySummary& l) -> std::vector<std::string> {
                     return {bytes_text(l.hbm),
                             bytes_text(l.dram),
                             bytes_text(l.h2d),
                             bytes_text(l.d2h),
                             fmt::format("{:.0f}", l.attended_device),
                             fmt::format("{:.0f}", l.attended_host),
                             bytes_text(double(l.peak_device_kv)),
                             bytes_text(double(l.peak_host_kv))};
                   });
}

std::string accuracy_note(const Summary& s, const Labels& labels) {
  std::set<std::string> kinds, paired;
  std::uint64_t ties = 0;
  for (const MethodSummary& m : s.methods) {
    kinds.insert(to_string(m.overall.accuracy.kind));
    if (m.overall.has_difference) paired.insert(to_string(m.overall.difference.difference.kind));
    ties += m.near_ties;
  }
  std::string text = fmt::format("n samples; [95 % interval]: {}.", fmt::join(kinds, ", "));
  if (!paired.empty())
    text +=
        fmt::format(" Differences are taken on the same samples ({}); an interval that holds 0 shows no difference.",
                    fmt::join(paired, ", "));
  std::vector<std::string> detectable;
  for (std::size_t i = 0; i < labels.size(); ++i) {
    const AccuracyCell& all = s.methods[i].overall;
    if (all.has_difference && all.difference.has_p)
      detectable.push_back(fmt::format("{:.1f} for {}", 100 * all.difference.detectable, labels[i]));
  }
  if (!detectable.empty()) {
    text += fmt::format(
        " p: McNemar's test, mid-p. Of runs this large, four in five would find a true difference of so many points: "
        "{}.",
        fmt::join(detectable, ", "));
  }
  return text + fmt::format(
                    " {} decode steps were near ties of the two best logits, where rounding may choose the token; "
                    "samples.jsonl names them.",
                    ties);
}

std::string latency_note(const Summary& s) {
  std::string text =
      "TTFT = prefill, which all methods share, + the method's setup + first step. TPOT is the time of a "
      "step after the first: mean, median, 90th and 99th percentile. Idle is per step.";
  const LatencySummary& l = s.methods.front().latency;
  const auto launch = l.idle_ms_by_cause.find("launch");
  const double share = launch == l.idle_ms_by_cause.end() || l.step_ms <= 0 ? 0 : launch->second / l.step_ms;
  if (share > 0.3)
    text += fmt::format(
        " {:.0f} % of a step of {} is waiting for launches: for a model this small, latency compares "
        "overheads rather than attention.",
        100 * share, s.methods.front().label);
  return text;
}

}  // namespace

std::string report_text(const Summary& s, bool markdown, bool with_plot) {
  const Manifest& m = s.manifest;
  const Labels labels = labels_of(s, markdown);
  std::string out;
  const auto section = [&](const std::string& title) {
    out += markdown ? "\n## " + title + "\n\n" : "\n" + title + "\n";
  };
  const auto table = [&](const Table& t) { out += markdown ? t.markdown() : t.text(); };
  const auto note = [&](const std::string& text) {
    out += markdown ? "\n" + text + "\n" : wrap(text, kTerminalWidth) + "\n";
  };
  if (markdown) out += fmt::format("# {} on {}\n\n", m.benchmark == "ruler" ? "RULER" : m.benchmark, m.model);
  out += fmt::format("{} samples per task and length, seed {}, {}\n", m.samples, m.seed,
                     s.complete ? "complete" : "NOT COMPLETE: some samples are missing");
  for (std::size_t i = 0; i < labels.size(); ++i)
    if (labels[i] != s.methods[i].label) note(labels[i] + " = " + s.methods[i].label);
  section("Accuracy");
  table(accuracy_table(s, labels));
  note(accuracy_note(s, labels));
  if (m.tasks.size() * m.lengths.size() > 1) {
    out += "\n";
    table(task_table(s, labels));
  }
  const bool timed =
      std::any_of(s.methods.begin(), s.methods.end(), [](const MethodSummary& x) { return !x.by_length.empty(); });
  if (timed) {
    section("Latency");
    table(latency_table(s, labels));
    note(latency_note(s));
    section("Where the device waits");
    bool first = true;
    for (const std::uint32_t length : m.lengths) {
      const Table t = idle_table(s, labels, length);
      if (t.head.size() < 2) continue;
      if (m.lengths.size() > 1)
        out += fmt::format("{}{} {}{}\n{}", first ? "" : "\n", "length", length_text(length), markdown ? ":" : "",
                           markdown ? "\n" : "");
      table(t);
      first = false;
    }
    note(
        "A step is the time from its first operation being ready to its token being on the host: busy + idle. Idle "
        "time "
        "is named after what the device waits for.");
    section("Bytes per decoded token");
    table(bytes_table(s, labels));
    note(
        "Bytes are those that the operations declared. Attended: tokens per KV head and layer in a step. Peak KV: of "
        "the "
        "largest sample.");
  }
  if (markdown) {
    out += fmt::format(
        "\n## How it was made\n\n- command: `{}`\n- tandem {} ({}), weights {}, tokenizer {}\n- protocol: `{}`\n"
        "- clock: {}\n- machine: {}, {} cores, {} threads\n- {} to {}\n",
        m.command, m.tandem_version, m.git_commit, m.weights_hash, m.tokenizer_hash, m.protocol_id, m.clock,
        m.machine.cpu_model, m.machine.cores, m.threads, m.started_utc, m.finished_utc);
    if (with_plot) out += "\n![Accuracy and where a step's time goes](plot.png)\n";
  }
  return out;
}

}  // namespace tandem::eval
