#include "eval/tables/tables.h"

#include <algorithm>
#include <cmath>
#include <fmt/ranges.h>

#include "eval/report/manifest_difference.h"
#include "eval/report/table.h"
#include "eval/tables/latex.h"

namespace tandem::eval {
namespace {

/// Labels of all runs, each once, as they come.
std::vector<std::string> all_labels(std::span<const ReportedRun> runs) {
  std::vector<std::string> labels;
  for (const ReportedRun& run : runs)
    for (const ReportedMethod& m : run.methods)
      if (std::find(labels.begin(), labels.end(), m.label) == labels.end()) labels.push_back(m.label);
  return labels;
}

const ReportedMethod* find(const ReportedRun& run, const std::string& label) {
  const auto found =
      std::find_if(run.methods.begin(), run.methods.end(), [&](const ReportedMethod& m) { return m.label == label; });
  return found == run.methods.end() ? nullptr : &*found;
}

std::string with_interval(const Estimate& e, const auto& text) {
  if (e.kind == IntervalKind::none) return text(e.value);
  return fmt::format("{} [{}, {}]", text(e.value), text(e.interval.low), text(e.interval.high));
}

std::string quality(const ReportedRun& run, const ReportedCell& cell) {
  if (cell.value.n == 0) return "-";
  return with_interval(cell.value, [&](double v) {
    return run.perplexity ? fmt::format("{:.4f}", std::exp(v)) : fmt::format("{:.1f}", 100 * v);
  });
}

std::string difference(const ReportedRun& run, const ReportedCell& cell) {
  if (!cell.difference) return "-";
  return with_interval(*cell.difference, [&](double v) {
    return run.perplexity ? fmt::format("{:+.4f}", v) : fmt::format("{:+.1f}", 100 * v);
  });
}

std::string head(std::span<const ReportedRun> runs, const ReportedRun& run, const std::string& what) {
  return runs.size() == 1 ? what : run.name + ": " + what;
}

Table quality_table(std::span<const ReportedRun> runs) {
  Table t;
  t.head = {"method"};
  for (const ReportedRun& run : runs) {
    t.head.push_back(head(runs, run, run.perplexity ? "perplexity [95\u00a0%]" : "accuracy, % [95\u00a0%]"));
    t.head.push_back(head(runs, run,
                          fmt::format("{} than {} [95\u00a0%]", run.perplexity ? "nats more" : "points more",
                                      run.methods.front().label)));
  }
  for (const std::string& label : all_labels(runs)) {
    std::vector<std::string>& row = t.rows.emplace_back();
    row.push_back(label);
    for (const ReportedRun& run : runs) {
      const ReportedMethod* m = find(run, label);
      row.push_back(m == nullptr ? "-" : quality(run, m->cells.front()));
      row.push_back(m == nullptr ? "-" : difference(run, m->cells.front()));
    }
  }
  return t;
}

bool has_peer(const ReportedRun& run) {
  return std::any_of(run.methods.begin(), run.methods.end(),
                     [](const ReportedMethod& m) { return m.latency.peak_peer_kv > 0; });
}

/// Only of runs that have times; no columns where none has.
Table time_table(std::span<const ReportedRun> runs) {
  std::vector<const ReportedRun*> timed;
  for (const ReportedRun& run : runs)
    if (!run.manifest.clock.empty()) timed.push_back(&run);
  Table t;
  t.head = {"method"};
  const bool one_clock = std::all_of(timed.begin(), timed.end(), [&](const ReportedRun* r) {
    return r->manifest.clock == timed.front()->manifest.clock;
  });
  if (one_clock && !timed.empty()) t.clock = timed.front()->manifest.clock;
  const bool one_batch = std::all_of(timed.begin(), timed.end(), [&](const ReportedRun* r) {
    return batch_of(r->manifest) == batch_of(timed.front()->manifest);
  });
  for (const ReportedRun* run : timed) {
    std::string clock = one_clock ? "" : ", " + run->manifest.clock;
    if (!one_batch) clock += fmt::format(", batch {}", batch_of(run->manifest));
    for (const char* what : {"TTFT ms", "TPOT ms", "p99 ms", "idle ms a step"})
      t.head.push_back(head(runs, *run, what + clock));
    for (const char* what : {"idle %", "KV MB, device", "host"}) t.head.push_back(head(runs, *run, what));
    if (has_peer(*run)) t.head.push_back(head(runs, *run, "peer"));
  }
  for (const std::string& label : all_labels(runs)) {
    std::vector<std::string>& row = t.rows.emplace_back();
    row.push_back(label);
    for (const ReportedRun* run : timed) {
      const ReportedMethod* m = find(*run, label);
      if (m == nullptr || m->latency.samples == 0) {
        row.insert(row.end(), has_peer(*run) ? 8 : 7, "-");
        continue;
      }
      const LatencySummary& l = m->latency;
      const auto ms = [](double value) { return fmt::format("{:.4g}", value); };
      const bool later = l.tpot_ms > 0;
      row.insert(row.end(), {ms(l.ttft_ms), later ? ms(l.tpot_ms) : "-", later ? ms(l.tpot_p99_ms) : "-", ms(l.idle_ms),
                             fmt::format("{:.1f}", l.step_ms > 0 ? 100 * l.idle_ms / l.step_ms : 0),
                             fmt::format("{:.2f}", double(l.peak_device_kv) * 1e-6),
                             fmt::format("{:.2f}", double(l.peak_host_kv) * 1e-6)});
      if (has_peer(*run)) row.push_back(fmt::format("{:.2f}", double(l.peak_peer_kv) * 1e-6));
    }
  }
  return t;
}

std::string describe(const ReportedRun& run) {
  const Manifest& m = run.manifest;
  std::string lengths;
  for (const std::uint32_t length : m.lengths) lengths += (lengths.empty() ? "" : ", ") + length_text(length);
  std::string text = fmt::format(
      "{}: {} of {}, {} at {}, {} per method; batch {}{}, {}, commit {}{}.", run.name, m.benchmark, m.model,
      fmt::join(m.tasks, ", "), lengths, counted(m.all_samples(), m.benchmark == kPerplexity ? "window" : "sample"),
      batch_of(m), m.precision.empty() ? "" : ", precision " + m.precision, m.clock.empty() ? "no times" : m.clock,
      m.git_commit, run.complete ? "" : ", NOT COMPLETE");
  if (const ReportedMethod& first = run.methods.front(); first.latency.left_out > 0)
    text += fmt::format(" Times of {} in smaller batches are left out.", counted(first.latency.left_out, "sample"));
  if (const ReportedCell& all = run.methods.front().cells.front(); all.units > 0 && all.units < all.value.n)
    text += fmt::format(" Of these {} are independent: intervals are of them.", all.units);
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

std::string show(const Table& table, TableFormat format, const std::string& title) {
  if (format == TableFormat::latex) return "% " + title + "\n" + latex_table(table) + "\n";
  return section(title, format == TableFormat::markdown) + text_of(table, format == TableFormat::markdown);
}

}  // namespace

std::string tables_text(std::span<const ReportedRun> runs, TableFormat format) {
  const bool markdown = format == TableFormat::markdown;
  std::string text;
  for (const ReportedRun& run : runs) {
    if (format == TableFormat::latex)
      text += latex_comment(describe(run));
    else
      text += note(describe(run), markdown);
  }
  for (const std::string& sentence : other_models_of_a_name(runs))
    text += format == TableFormat::latex ? latex_comment(sentence) : note(sentence, markdown);
  const bool losses = std::any_of(runs.begin(), runs.end(), [](const ReportedRun& r) { return r.perplexity; });
  text += show(quality_table(runs), format, losses ? "Loss" : "Accuracy");
  const Table times = time_table(runs);
  if (times.head.size() > 1) text += show(times, format, "Latency, idle time, memory");
  for (const ReportedRun& run : runs) {
    if (!run.target) continue;
    text += show(target_table(*run.target), format,
                 runs.size() > 1 ? "At a target shape: " + run.name : "At a target shape");
    for (const std::string& sentence : target_notes(*run.target))
      text += format == TableFormat::latex ? latex_comment(sentence) : note(sentence, markdown);
  }
  for (const ReportedRun& run : runs) {
    if (run.target_problem.empty()) continue;
    const std::string sentence =
        fmt::format("{}: the prediction at a target shape cannot be shown. {}", run.name, run.target_problem);
    text += format == TableFormat::latex ? latex_comment(sentence) : note(sentence, markdown);
  }
  for (const std::string& sentence : unlike(runs)) {
    if (format == TableFormat::latex)
      text += latex_comment("Not comparable: " + sentence);
    else
      text += note("Not comparable: " + sentence, markdown);
  }
  return text;
}

}  // namespace tandem::eval
