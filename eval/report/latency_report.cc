// The parts that the reports of all runs have: latency, where the device waits, bytes, how the run was made.
#include <algorithm>
#include <fmt/core.h>

#include "engine/common/printable.h"
#include "engine/model/model.h"
#include "eval/report/manifest_difference.h"
#include "eval/report/markdown.h"
#include "eval/report/table.h"
#include "eval/ruler/protocol.h"

namespace tandem::eval {
namespace {

using Labels = std::vector<std::string>;  // by index into Summary::methods
using L = LatencySummary;

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

/// One row per length and method; `cells` turns a LatencySummary into the row's cells.
Table by_length(const Summary& s, const Labels& labels, const std::vector<std::string>& head, const auto& cells) {
  Table t;
  t.leading = 2;
  t.head = {"length", "method"};
  t.head.insert(t.head.end(), head.begin(), head.end());
  for (const std::uint32_t length : s.manifest.lengths) {
    for (std::size_t i = 0; i < labels.size(); ++i) {
      for (const LengthLatency& at : s.methods[i].by_length) {
        if (at.length != length) continue;
        std::vector<std::string>& row = t.rows.emplace_back();
        row = {length_text(length), labels[i]};
        for (std::string& cell : cells(at.latency)) row.push_back(std::move(cell));
      }
    }
  }
  return t;
}

Table latency_table(const Summary& s, const Labels& labels) {
  Table t = by_length(
      s, labels,
      {"TTFT ms", "= prefill", "+ setup", "+ first step", "TPOT ms", "p50", "p90", "p99", "idle ms", "idle %"},
      [](const L& l) {
        std::vector<std::string> cells;
        for (const double ms : {l.ttft_ms, l.prefill_ms, l.setup_ms, l.first_step_ms}) cells.push_back(ms_text(ms));
        for (const auto& ms : {l.tpot_ms, l.tpot_p50_ms, l.tpot_p90_ms, l.tpot_p99_ms})
          cells.push_back(figure_text(ms, ms_text));
        cells.insert(cells.end(), {ms_text(l.idle_ms), figure_text(l.idle_share(), percent_text)});
        return cells;
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
        if (ms > 0 && std::ranges::find(causes, cause) == causes.end()) causes.push_back(cause);
    }
  }
  const auto row = [&](const std::string& name, auto&& value) {
    std::vector<std::string> cells = {name};
    for (const LatencySummary* l : columns) cells.push_back(fmt::format("{:.1f}", 1000 * value(*l)));
    t.rows.push_back(std::move(cells));
  };
  row("step", [](const L& l) { return l.step_ms; });
  row("= busy", [](const L& l) { return l.busy_ms; });
  row("+ idle", [](const L& l) { return l.idle_ms; });
  row("(in layer 0)", [](const L& l) { return l.layer0_idle_ms; });
  for (const std::string& cause : causes) {
    row("· " + cause, [&](const L& l) {
      const auto found = l.idle_ms_by_cause.find(cause);
      return found == l.idle_ms_by_cause.end() ? 0.0 : found->second;
    });
  }
  return t;
}

bool any_has(const Summary& s, const auto& has) {
  return std::ranges::any_of(s.methods, [&](const MethodSummary& m) { return m.latency && has(*m.latency); });
}

Table bytes_table(const Summary& s, const Labels& labels) {
  const bool peers = any_has(s, [](const L& l) { return l.peer_link > 0; });
  const bool touched = any_has(s, [](const L& l) { return l.touched.has_value(); });
  std::vector<std::string> head = {"HBM", "DRAM", "link to device", "link to host"};
  if (touched) head.insert(head.begin(), "touched");
  if (peers) head.insert(head.end(), {"link of the two devices", "HBM of the other one"});
  return by_length(s, labels, head, [peers, touched](const L& l) {
    std::vector<std::string> cells = {bytes_text(l.hbm), bytes_text(l.dram), bytes_text(l.h2d), bytes_text(l.d2h)};
    if (touched) cells.insert(cells.begin(), figure_text(l.touched, bytes_text));
    if (peers) cells.insert(cells.end(), {bytes_text(l.peer_link), bytes_text(l.peer_hbm)});
    return cells;
  });
}

Table attended_table(const Summary& s, const Labels& labels) {
  const bool peers = any_has(s, [](const L& l) { return l.peak_peer_kv > 0; });
  std::vector<std::string> head = {"attended on device", "attended on host", "host share %", "peak KV device",
                                   "peak KV host"};
  if (peers) head.emplace_back("peak KV peer");
  return by_length(s, labels, head, [peers](const L& l) {
    std::vector<std::string> cells = {fmt::format("{:.0f}", l.attended_device), fmt::format("{:.0f}", l.attended_host),
                                      figure_text(l.host_share(), percent_text), bytes_text(double(l.peak_device_kv)),
                                      bytes_text(double(l.peak_host_kv))};
    if (peers) cells.push_back(bytes_text(double(l.peak_peer_kv)));
    return cells;
  });
}

/// `l`: of the first method that has times.
std::string latency_note(const Summary& s, const std::string& label, const L& l) {
  std::string text =
      "TTFT = prefill of all prompts of the batch, which all methods share (but for column sums of the prompt's "
      "attention, which are in the prefill of the methods that need them), + the method's setup + first step. TPOT is "
      "the time of a step after the first: "
      "mean, median, 90th and 99th percentile; \"-\" where every sample ends with its first token. Idle is per step, "
      "the first included.";
  if (const std::uint32_t batch = batch_of(s.manifest); batch > 1) {
    text += fmt::format(" A step is one of {} sequences, or of those that have not ended yet.", batch);
    if (l.left_out > 0)
      text += fmt::format(" Times of {} in smaller batches are left out here and below.",
                          l.left_out == 1 ? "a sample" : fmt::format("{} samples", l.left_out));
  }
  if (is_embedded(s.manifest)) text += fmt::format(" {}", kOwnSteps);
  const auto launch = l.idle_ms_by_cause.find("launch");
  const std::optional<double> share =
      launch == l.idle_ms_by_cause.end() ? std::nullopt : ratio(launch->second, l.step_ms);
  if (share && *share > 0.3)
    text += fmt::format(
        " {:.0f} % of a step of {} is waiting for launches: for a model this small, latency compares "
        "overheads rather than attention.",
        100 * *share, label);
  return text;
}

}  // namespace

bool is_embedded(const Manifest& manifest) {
  return manifest.model == "embedded" || manifest.model == kEmbeddedModel;
}

std::string remarks_note(const Summary& s, bool markdown) {
  std::string out;
  for (const std::string& remark : s.remarks) out += note(remark, markdown);
  return out;
}

std::string note(const std::string& text, bool markdown) {
  return markdown ? "\n" + markdown_paragraph(text) + "\n" : wrap(printable(text), terminal_width()) + "\n";
}

std::string section(const std::string& title, bool markdown) {
  return markdown ? "\n## " + markdown_text(title) + "\n\n" : "\n" + printable(title) + "\n";
}

std::string text_of(const Table& table, bool markdown) {
  return markdown ? table.markdown() : table.text();
}

std::string range_text(double low, double high) {
  constexpr double kFourDigits = 999.5;
  const auto end = [](double value) {
    return value < kFourDigits ? fmt::format("{:.3g}", value) : fmt::format("{:.0f}", value);
  };
  return end(low) + "\u2013" + end(high);
}

std::string length_text(std::uint32_t length) {
  if (length == 0) return "as is";
  return length % 1024 == 0 ? fmt::format("{}K", length / 1024) : fmt::format("{}", length);
}

std::string latency_report(const Summary& s, bool markdown) {
  const auto timed = std::ranges::find_if(s.methods, [](const MethodSummary& m) { return m.latency.has_value(); });
  if (timed == s.methods.end()) return "";
  const std::optional<L>& times = timed->latency;
  if (!times) return "";
  const Labels labels = labels_of(s, markdown);
  std::string out = section("Latency", markdown) + text_of(latency_table(s, labels), markdown);
  out += note(latency_note(s, timed->label, *times), markdown) + section("Where the device waits", markdown);
  bool first = true;
  for (const std::uint32_t length : s.manifest.lengths) {
    const Table t = idle_table(s, labels, length);
    if (t.head.size() < 2) continue;
    if (s.manifest.lengths.size() > 1)
      out += fmt::format("{}length {}{}\n", first ? "" : "\n", length_text(length), markdown ? ":\n" : "");
    out += text_of(t, markdown);
    first = false;
  }
  out += note(
      "A step is the time from its first operation being ready to its token being on the host: busy + idle. Idle time "
      "is named after what the device waits for.",
      markdown);
  out += section("Bytes per decoded token", markdown) + text_of(bytes_table(s, labels), markdown);
  out += note(
      "Touched: what computing reads and writes of what is kept about the context, wherever it lies: KV, indices, "
      "statistics. HBM and DRAM have weights, activations and scores too, but not what copies over the link read and "
      "write there: that is in the link's columns. Bytes are those that the operations declared.",
      markdown);
  out += section("Tokens attended, and peak KV", markdown) + text_of(attended_table(s, labels), markdown);
  return out + note(
                   "Attended: tokens per KV head and layer in a step. Host share: of all that is attended, what "
                   "is on the host. Peak KV: of the largest sample, with all that a method keeps about it.",
                   markdown);
}

std::string provenance(const Manifest& m) {
  std::string programs;
  for (const auto& [version, commit] : m.programs)
    programs += fmt::format("{}{} ({})", programs.empty() ? "" : " and, where it was resumed, ", version, commit);
  const std::string data = ruler_data_text(m.protocol_id, m.tasks);
  return fmt::format(
      "\n## How it was made\n\n- command: {}\n- tandem {}, weights {}, tokenizer {}\n{}- protocol: {}\n"
      "- clock: {}\n- machine: {}, {} cores, {} threads\n- {} to {}\n",
      markdown_code(m.command), markdown_text(programs), markdown_text(m.weights_hash), markdown_text(m.tokenizer_hash),
      data.empty() ? "" : "- prompts: " + markdown_text(data) + "\n", markdown_code(m.protocol_id),
      markdown_text(m.clock), markdown_text(m.machine.cpu_model), m.machine.cores, m.threads,
      markdown_text(m.started_utc), markdown_text(m.finished_utc));
}

}  // namespace tandem::eval
