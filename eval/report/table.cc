#include "eval/report/table.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/common/error.h"
#include "engine/common/paths.h"

namespace tandem::eval {
namespace {

std::size_t columns_of(const std::string& text) {  // code points; the tables use no wide ones
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

std::string percent(double share) {
  return fmt::format("{:.1f}", 100 * share);
}

std::string with_interval(const Estimate& e) {
  return fmt::format("{} [{}, {}]", percent(e.value), percent(e.interval.low), percent(e.interval.high));
}

std::string points(const AccuracyCell& cell) {
  if (!cell.has_difference) return "";
  const Estimate& d = cell.difference.difference;
  return fmt::format("{:+.1f} [{:+.1f}, {:+.1f}]", 100 * d.value, 100 * d.interval.low, 100 * d.interval.high);
}

std::string length_text(std::uint32_t length) {
  return length % 1024 == 0 ? fmt::format("{}K", length / 1024) : fmt::format("{}", length);
}

std::string bytes_text(double bytes) {
  const char* units[] = {"B", "KB", "MB", "GB"};
  int unit = 0;
  while (bytes >= 999.5 && unit < 3) {
    bytes /= 1000;
    ++unit;
  }
  return bytes == 0 ? "0"
                    : fmt::format("{:.{}f} {}", bytes,
                                  unit == 0 || bytes >= 100 ? 0
                                  : bytes >= 10             ? 1
                                                            : 2,
                                  units[unit]);
}

std::string ms_text(double ms) {
  return ms == 0 ? "0" : fmt::format("{:.{}f}", ms, ms >= 100 ? 1 : ms >= 1 ? 2 : 4);
}

Table accuracy_table(const Summary& s) {
  Table t;
  t.head = {"method", "n", "accuracy % [95 %]", "difference to " + s.methods.front().label + ", points [95 %]"};
  for (const MethodSummary& m : s.methods) {
    t.rows.push_back(
        {m.label, std::to_string(m.overall.accuracy.n), with_interval(m.overall.accuracy), points(m.overall)});
  }
  return t;
}

/// Rows are tasks and lengths, columns methods; more methods than fit become several tables.
std::vector<Table> task_tables(const Summary& s) {
  constexpr std::size_t kPerTable = 3;
  std::vector<Table> tables;
  for (std::size_t first = 0; first < s.methods.size(); first += kPerTable) {
    const std::size_t last = std::min(first + kPerTable, s.methods.size());
    Table t;
    t.head = {"task", "length"};
    for (std::size_t i = first; i < last; ++i) t.head.push_back(s.methods[i].label);
    for (const std::string& task : s.manifest.tasks) {
      for (const std::uint32_t length : s.manifest.lengths) {
        std::vector<std::string> row = {task, length_text(length)};
        for (std::size_t i = first; i < last; ++i) {
          const auto& cells = s.methods[i].cells;
          const auto cell = std::find_if(cells.begin(), cells.end(),
                                         [&](const AccuracyCell& c) { return c.task == task && c.length == length; });
          row.push_back(cell == cells.end() ? "-" : with_interval(cell->accuracy));
        }
        t.rows.push_back(std::move(row));
      }
    }
    tables.push_back(std::move(t));
  }
  return tables;
}

Table latency_table(const Summary& s) {
  Table t;
  t.head = {"method",  "TTFT ms", "= prefill", "+ setup",      "+ 1st step",
            "TPOT ms", "p50",     "p99",       "idle ms/step", "idle %"};
  for (const MethodSummary& m : s.methods) {
    const LatencySummary& l = m.latency;
    t.rows.push_back({m.label, ms_text(l.ttft_ms), ms_text(l.prefill_ms), ms_text(l.setup_ms), ms_text(l.first_step_ms),
                      ms_text(l.tpot_ms), ms_text(l.tpot_p50_ms), ms_text(l.tpot_p99_ms), ms_text(l.idle_ms),
                      l.step_ms > 0 ? percent(l.idle_ms / l.step_ms) : "-"});
  }
  return t;
}

Table idle_table(const Summary& s) {
  std::vector<std::string> causes;
  for (const MethodSummary& m : s.methods) {
    for (const auto& [cause, ms] : m.latency.idle_ms_by_cause) {
      if (ms > 0 && std::find(causes.begin(), causes.end(), cause) == causes.end()) causes.push_back(cause);
    }
  }
  Table t;
  t.head = {"us per step"};
  for (const MethodSummary& m : s.methods) t.head.push_back(m.label);
  const auto row = [&](const std::string& name, auto&& value) {
    std::vector<std::string> cells = {name};
    for (const MethodSummary& m : s.methods) cells.push_back(fmt::format("{:.1f}", 1000 * value(m.latency)));
    t.rows.push_back(std::move(cells));
  };
  row("step", [](const LatencySummary& l) { return l.step_ms; });
  row("busy", [](const LatencySummary& l) { return l.busy_ms; });
  row("idle", [](const LatencySummary& l) { return l.idle_ms; });
  for (const std::string& cause : causes) {
    row("  " + cause, [&](const LatencySummary& l) {
      const auto found = l.idle_ms_by_cause.find(cause);
      return found == l.idle_ms_by_cause.end() ? 0.0 : found->second;
    });
  }
  return t;
}

Table bytes_table(const Summary& s) {
  Table t;
  t.head = {"method", "HBM", "DRAM", "to device", "to host", "tokens on device", "on host", "KV device", "KV host"};
  for (const MethodSummary& m : s.methods) {
    const LatencySummary& l = m.latency;
    t.rows.push_back({m.label, bytes_text(l.hbm), bytes_text(l.dram), bytes_text(l.h2d), bytes_text(l.d2h),
                      fmt::format("{:.0f}", l.attended_device), fmt::format("{:.0f}", l.attended_host),
                      bytes_text(double(l.peak_device_kv)), bytes_text(double(l.peak_host_kv))});
  }
  return t;
}

}  // namespace

std::string Table::text() const {
  std::vector<std::size_t> width(head.size());
  for (std::size_t c = 0; c < head.size(); ++c) {
    width[c] = columns_of(head[c]);
    for (const auto& row : rows) width[c] = std::max(width[c], columns_of(row[c]));
  }
  const auto line = [&](const std::vector<std::string>& cells) {
    std::string out;
    for (std::size_t c = 0; c < cells.size(); ++c) {
      const std::string padding(width[c] - columns_of(cells[c]), ' ');
      if (c > 0) out.append("  ");
      out.append(c == 0 ? cells[c] + padding : padding + cells[c]);
    }
    out.erase(out.find_last_not_of(' ') + 1);
    return out + "\n";
  };
  std::string out = line(head);
  std::string rule;
  for (std::size_t c = 0; c < width.size(); ++c) {
    if (c > 0) rule.append("  ");
    for (std::size_t i = 0; i < width[c]; ++i) rule.append("─");
  }
  out += rule + "\n";
  for (const auto& row : rows) out += line(row);
  return out;
}

std::string Table::markdown() const {
  const auto line = [](const std::vector<std::string>& cells) {
    std::string out = "|";
    for (const std::string& cell : cells) out.append(" ").append(cell).append(" |");
    return out + "\n";
  };
  std::string out = line(head) + "|";
  for (std::size_t c = 0; c < head.size(); ++c) out.append(c == 0 ? "---|" : "---:|");
  out += "\n";
  for (const auto& row : rows) out += line(row);
  return out;
}

std::string report_text(const Summary& s, bool markdown) {
  const Manifest& m = s.manifest;
  std::string out;
  const auto section = [&](const std::string& title) {
    out += markdown ? "\n## " + title + "\n\n" : "\n" + title + "\n";
  };
  const auto table = [&](const Table& t) { out += markdown ? t.markdown() : t.text(); };
  const auto note = [&](const std::string& text) { out += markdown ? "\n" + text + "\n" : text + "\n"; };
  if (markdown) out += fmt::format("# {} on {}\n\n", m.benchmark == "ruler" ? "RULER" : m.benchmark, m.model);
  out += fmt::format("{} samples per task and length, seed {}, {}\n", m.samples, m.seed,
                     s.complete ? "complete" : "NOT COMPLETE: some samples are missing");
  section("Accuracy");
  table(accuracy_table(s));
  std::uint64_t ties = 0;
  for (const MethodSummary& method : s.methods) ties += method.near_ties;
  note(fmt::format(
      "Intervals: {}; differences on the same samples. Near ties (two best logits within 1e-3): {}, listed in "
      "samples.jsonl.",
      to_string(s.methods.front().overall.accuracy.kind), ties));
  for (const Table& t : task_tables(s)) {
    out += "\n";
    table(t);
  }
  section("Latency, " + m.clock);
  table(latency_table(s));
  note(
      "TPOT is the mean time of a decode step after the first. A model this small is mostly launch cost: its latency "
      "ranks"
      "\nnothing but overheads.");
  section("Where the device waits, " + m.clock);
  table(idle_table(s));
  section("Bytes per decode step, and largest KV of a sample");
  table(bytes_table(s));
  note("Tokens: attended per KV head and layer in a step. Bytes are those the operations declared.");
  if (markdown) {
    out += fmt::format(
        "\n## How it was made\n\n- command: `{}`\n- tandem {} ({}), weights {}, tokenizer {}\n- protocol: `{}`\n"
        "- machine: {}, {} cores, {} threads\n- {} to {}\n\n![Accuracy and where a step's time goes](plot.png)\n",
        m.command, m.tandem_version, m.git_commit, m.weights_hash, m.tokenizer_hash, m.protocol_id, m.machine.cpu_model,
        m.machine.cores, m.threads, m.started_utc, m.finished_utc);
  }
  return out;
}

std::string make_plot(const std::filesystem::path& folder) {
  const std::string script = data_path("eval/report/plot.py").string(), target = folder.string();
  const pid_t child = fork();
  if (child < 0) return "The plot was not drawn: no new process could be started.";
  if (child == 0) {
    // The system's Python first: it is the one that Debian's matplotlib belongs to.
    execl("/usr/bin/python3", "python3", script.c_str(), target.c_str(), static_cast<char*>(nullptr));
    execlp("python3", "python3", script.c_str(), target.c_str(), static_cast<char*>(nullptr));
    _exit(127);
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return "";
  if (WIFEXITED(status) && WEXITSTATUS(status) == 127) return "The plot was not drawn: python3 is not installed.";
  if (WIFEXITED(status) && WEXITSTATUS(status) == 4) {
    return "The plot was not drawn: python3 has no matplotlib (Debian package python3-matplotlib).";
  }
  return "The plot was not drawn: eval/report/plot.py failed.";
}

}  // namespace tandem::eval
