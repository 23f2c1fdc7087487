// The parts that the reports of all runs have: latency, where the device waits, bytes, how the run was made.
#include <algorithm>
#include <fmt/core.h>

#include "engine/common/printable.h"
#include "engine/model/model.h"
#include "eval/report/manifest_difference.h"
#include "eval/report/markdown.h"
#include "eval/report/table.h"
#include "eval/ruler_tasks/protocol.h"

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

/// One row per length and method, without the length's column where there is one alone; `cells` turns a LatencySummary
/// into the row's cells.
Table by_length(const Summary& s, const Labels& labels, const std::vector<std::string>& head, const auto& cells) {
  Table t;
  const bool lengths = s.manifest.lengths.size() > 1;
  t.head = {"method"};
  if (lengths) t.head.emplace_back("length");
  t.leading = t.head.size();
  t.head.insert(t.head.end(), head.begin(), head.end());
  for (const std::uint32_t length : s.manifest.lengths) {
    for (std::size_t i = 0; i < labels.size(); ++i) {
      for (const LengthLatency& at : s.methods[i].by_length) {
        if (at.length != length) continue;
        std::vector<std::string>& row = t.rows.emplace_back();
        row = {labels[i]};
        if (lengths) row.push_back(length_text(length));
        for (std::string& cell : cells(at.latency)) row.push_back(std::move(cell));
      }
    }
  }
  return t;
}

Table latency_table(const Summary& s, const Labels& labels) {
  return by_length(
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
}

/// Microseconds per decode step: the step, its parts, and a column for each cause that some method waits for.
Table idle_table(const Summary& s, const Labels& labels) {
  std::vector<std::string> causes;
  for (const MethodSummary& m : s.methods)
    for (const LengthLatency& at : m.by_length)
      for (const auto& [cause, ms] : at.latency.idle_ms_by_cause)
        if (ms > 0 && std::ranges::find(causes, cause) == causes.end()) causes.push_back(cause);
  std::vector<std::string> head = {"step, µs", "= busy", "+ idle", "(in layer 0)"};
  for (const std::string& cause : causes) head.push_back("· " + cause);
  return by_length(s, labels, head, [&](const L& l) {
    std::vector<std::string> cells;
    cells.reserve(head.size());
    const auto add = [&](double ms) { cells.push_back(fmt::format("{:.1f}", 1000 * ms)); };
    for (const double ms : {l.step_ms, l.busy_ms, l.idle_ms, l.layer0_idle_ms}) add(ms);
    for (const std::string& cause : causes) {
      const auto found = l.idle_ms_by_cause.find(cause);
      add(found == l.idle_ms_by_cause.end() ? 0 : found->second);
    }
    return cells;
  });
}

bool any_has(const Summary& s, const auto& has) {
  return std::ranges::any_of(s.methods, [&](const MethodSummary& m) { return m.latency && has(*m.latency); });
}

Table bytes_table(const Summary& s, const Labels& labels) {
  const bool peers = any_has(s, [](const L& l) { return l.peer_link > 0; });
  const bool touched = any_has(s, [](const L& l) { return l.touched.has_value(); });
  const bool looked_up = any_has(s, [](const L& l) { return l.looked_up > 0; });
  std::vector<std::string> head = {"HBM", "DRAM", "link to device", "link to host"};
  if (touched) head.insert(head.begin(), "touched");
  if (peers) head.insert(head.end(), {"link of the two devices", "HBM of the other one"});
  if (looked_up) head.insert(head.end(), {"missed", "hit rate %", "overlap %", "late", "cancelled"});
  return by_length(s, labels, head, [peers, touched, looked_up](const L& l) {
    std::vector<std::string> cells = {bytes_text(l.hbm), bytes_text(l.dram), bytes_text(l.h2d), bytes_text(l.d2h)};
    if (touched) cells.insert(cells.begin(), figure_text(l.touched, bytes_text));
    if (peers) cells.insert(cells.end(), {bytes_text(l.peer_link), bytes_text(l.peer_hbm)});
    if (looked_up) {
      cells.insert(cells.end(), {bytes_text(l.missed), figure_text(l.hit_rate(), percent_text),
                                 figure_text(l.overlap(), percent_text), bytes_text(l.late), bytes_text(l.cancelled)});
    }
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

/// `l`: of the first method that has times. A page says at its head what an embedded model's times are worth.
std::string latency_note(const Summary& s, const std::string& label, const L& l, bool markdown) {
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
  if (!markdown && is_embedded(s.manifest)) text += fmt::format(" {}", kOwnSteps);
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
  const auto timed_table = [&](Table table) {
    if (!markdown) table.clock = s.manifest.clock;
    return text_of(table, markdown);
  };
  std::string out = section("Where the device waits", markdown) + timed_table(idle_table(s, labels));
  out += note(
      "Microseconds per decode step. A step is the time from its first operation being ready to its token being on the "
      "host: busy + idle. Idle time is named after what the device waits for.",
      markdown);
  out += section("Latency", markdown) + timed_table(latency_table(s, labels));
  out += note(latency_note(s, timed->label, *times, markdown), markdown);
  out += section("Bytes per decoded token", markdown) + text_of(bytes_table(s, labels), markdown);
  if (any_has(s, [](const L& l) { return l.looked_up > 0; })) {
    out += note(
        "Missed: KV that a step looked for on the device and that was in host memory, part of the link to device. Hit "
        "rate: of what was looked for, what was there. Overlap: of the time that bringing the missed KV took, when the "
        "device did not wait for it. Late: brought ahead, and still waited for. Cancelled: was to come ahead and found "
        "no room in "
        "time.",
        markdown);
  }
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

std::string clock_note(const Summary& s, bool markdown) {
  return markdown && !s.manifest.clock.empty() ? ". Times are " + s.manifest.clock + "." : "";
}

bool has_front(const Summary& s) {
  return std::ranges::count_if(s.methods, [](const MethodSummary& m) { return m.latency && m.latency->step_ms > 0; }) >
         1;
}

std::string front_picture(const Summary& s, bool with_plot) {
  return with_plot && has_front(s) ? "\n![The score over what a step costs](pareto.png)\n" : "";
}

std::string provenance(const Manifest& m) {
  std::string programs;
  for (const auto& [version, commit] : m.programs)
    programs += fmt::format("{}{} ({})", programs.empty() ? "" : " and, where it was resumed, ", version, commit);
  const std::string data = ruler_data_text(m.protocol_id, m.tasks);
  return fmt::format(
      "\n## How it was made\n\n- command: {}\n- tandem {}, weights {}, tokenizer {}\n{}- protocol: {}\n"
      "- machine: {}, {} cores, {} threads\n- {} to {}\n",
      markdown_code(m.command), markdown_text(programs), markdown_text(m.weights_hash), markdown_text(m.tokenizer_hash),
      data.empty() ? "" : "- prompts: " + markdown_text(data) + "\n", markdown_code(m.protocol_id),
      markdown_text(m.machine.cpu_model), m.machine.cores, m.threads, markdown_text(m.started_utc),
      markdown_text(m.finished_utc));
}

}  // namespace tandem::eval
