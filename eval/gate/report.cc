// What a gate says: a table, a sentence for each thing that failed or could not be told, and JSON.
#include <algorithm>
#include <cmath>
#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "engine/common/error.h"
#include "engine/common/json.h"
#include "eval/gate/gate.h"
#include "eval/report/answer.h"
#include "eval/report/table.h"

namespace tandem::eval {
namespace {

/// However small a change is, it is not 0.0.
std::string percent(double share) {
  const bool small = share != 0 && std::abs(share) < 0.0005;
  return small ? fmt::format("{:+.2g} %", 100 * share) : fmt::format("{:+.1f} %", 100 * share);
}
std::string percent(const TimeVerdict& time) {
  const std::string change = figure_text(time.change, [](double share) { return percent(share); });
  if (!time.interval) return change;
  return fmt::format("{} [{:+.1f}, {:+.1f}]", change, 100 * time.interval->low, 100 * time.interval->high);
}

/// The gate's methods, as far as their labels go.
Summary names_of(const Gate& gate) {
  Summary names{gate.baseline, {}, false, {}, {}};
  for (const MethodVerdict& m : gate.methods) names.methods.emplace_back().label = m.label;
  return names;
}

std::string at_length(const TimeVerdict& time) {
  if (!time.shape.empty()) return " at " + time.shape;
  return time.length == 0 ? "" : " at " + length_text(time.length);
}

std::string accuracy_failure(const Gate& gate, const MethodVerdict& m) {
  const PairedEstimate& change = m.accuracy.change;
  std::string text =
      fmt::format("{}: {} fell by {:.1f} points, from {:.1f} to {:.1f} %", m.label, score_name(gate.run.benchmark),
                  -100 * change.difference.value, 100 * m.accuracy.before, 100 * m.accuracy.after);
  if (change.has_p)
    text += fmt::format(" ({} {} lost and {} gained, McNemar's p {:.2g})", change.counts.first_only,
                        change.counts.total() == change.difference.n ? "samples" : "questions or documents",
                        change.counts.second_only, change.p);
  if (!m.worst_task.empty()) text += ", most in " + m.worst_task;
  return text + ".";
}

std::string time_failure(const MethodVerdict& m, const TimeVerdict& time) {
  if (!time.shape.empty() && !time.change)
    return fmt::format("{}: the run has no {}{}, and the baseline has one: {}.", m.label, time.what, at_length(time),
                       time.remark);
  // Measured: of each sample's ratio, where the table has the ratio of the means.
  std::string from = " in the geometric mean of the samples' ratios";
  if (time.before_ms && time.after_ms)
    from = fmt::format(", from {:.4g} to {:.4g} ms", *time.before_ms, *time.after_ms);
  return fmt::format("{}: {}{} rose by {}{}; the margin is {:.3g} %{}.", m.label, time.what, at_length(time),
                     percent(time), from, 100 * time.margin, time.remark.empty() ? "" : "; " + time.remark);
}

/// A predicted step in both runs; "-" where it was not compared.
std::string step_text(const MethodVerdict& m, const std::string& shape) {
  for (const TimeVerdict& time : m.times)
    if (time.shape == shape && time.before_ms && time.after_ms)
      return fmt::format("{:.4g} → {:.4g} {}", *time.before_ms, *time.after_ms, percent(time));
  return "-";
}

std::string tpot_text(const MethodVerdict& m) {
  const auto of = [](const std::optional<LatencySummary>& l) { return l ? l->tpot_ms : std::nullopt; };
  const std::optional<double> before = of(m.before), after = of(m.after);
  if (!before || !after) return "-";
  const std::optional<double> times = ratio(*after, *before);
  return fmt::format("{:.4g} → {:.4g}{}", *before, *after, times ? " " + percent(*times - 1) : "");
}

Table table_of(const Gate& gate, bool markdown) {
  const std::vector<std::string> labels = labels_of(names_of(gate), markdown);
  Table t;
  t.head = {"method", score_name(gate.run.benchmark) + " %", "difference, points [95\u00a0%]"};
  const bool timed = !gate.run.clock.empty();
  if (timed) t.head.push_back("TPOT ms, " + gate.run.clock);
  for (const PredictedSteps& steps : gate.predictions)
    t.head.push_back(fmt::format("step ms, predicted: {}", steps.shape));
  t.head.emplace_back("verdict");
  for (std::size_t i = 0; i < labels.size(); ++i) {
    const MethodVerdict& m = gate.methods[i];
    const bool there = !m.run_label.empty();
    std::vector<std::string>& row = t.rows.emplace_back();
    row = {labels[i], there ? fmt::format("{:.1f} → {:.1f}", 100 * m.accuracy.before, 100 * m.accuracy.after) : "-",
           there ? interval_text(m.accuracy.change.difference, signed_percent_text) : "-"};
    if (timed) row.push_back(tpot_text(m));
    for (const PredictedSteps& steps : gate.predictions) row.push_back(step_text(m, steps.shape));
    row.emplace_back(to_string(m.verdict));
  }
  return t;
}

std::string origin(const std::string& path, const Manifest& m) {
  std::vector<std::string> programs;
  programs.reserve(m.programs.size());
  for (const auto& [version, commit] : m.programs) programs.push_back(fmt::format("{} ({})", version, commit));
  return fmt::format("{}: tandem {}, finished {}", path, join_names(programs), m.finished_utc);
}

std::string other_tokens(const Gate& gate, const MethodVerdict& m) {
  return fmt::format("{}: {} of {} samples have other tokens than in the baseline.", m.label, m.other_tokens,
                     gate.samples);
}

/// One sentence for all methods whose accuracy the samples cannot judge.
std::string accuracy_doubt(const Gate& gate) {
  std::vector<std::string> methods;
  std::uint64_t needed = 0;
  for (const MethodVerdict& m : gate.methods) {
    if (m.run_label.empty() || m.accuracy.verdict != Verdict::cannot_tell) continue;
    methods.push_back(fmt::format("{:.1f} with {}", -100 * m.accuracy.change.difference.interval.low, m.label));
    needed = std::max(needed, m.accuracy.needed);
  }
  if (methods.empty()) return "";
  std::string text = fmt::format(
      "{} samples cannot exclude that {} fell by more than {:.3g} points: it may have fallen by {}.", gate.samples,
      score_name(gate.run.benchmark), 100 * gate.options.accuracy_margin, join_names(methods));
  if (needed > 0)
    text += fmt::format(" With {}, four of five runs that lose nothing pass without this doubt.",
                        about_text(needed, kMostNeeded));
  return text;
}

/// A loss that the samples show, but not beyond what one of so many methods has by chance.
bool looks_worse(const MethodVerdict& m) {
  return !m.run_label.empty() && m.accuracy.verdict == Verdict::cannot_tell &&
         m.accuracy.change.difference.interval.high < 0;
}

std::string loss_doubt(const Gate& gate, std::size_t judged) {
  std::vector<std::string> methods;
  for (const MethodVerdict& m : gate.methods) {
    if (!looks_worse(m)) continue;
    const std::string most = m.worst_task.empty() ? "" : fmt::format(" (most of it in {})", m.worst_task);
    methods.push_back(
        fmt::format("{} with {}{}", interval_text(m.accuracy.change.difference, signed_percent_text), m.label, most));
  }
  if (methods.empty()) return "";
  return fmt::format(
      "Losses in points whose intervals have no 0: {}. Of {} methods that lose nothing, one or more have such an "
      "interval in {:.0f} % of gates: look at it alone (--methods) or with more samples.",
      join_names(methods), judged, 100 * (1 - std::pow(0.975, static_cast<double>(judged))));
}

std::string conclusion(const Gate& gate, std::size_t failures, std::size_t doubts) {
  if (gate.verdict == Verdict::failed)
    return failures > 0 ? fmt::format("Failed: the run is not as good as the baseline ({} {}).", failures,
                                      failures == 1 ? "failure" : "failures")
                        : "Failed: --strict, and the samples are too few to tell.";
  if (std::ranges::any_of(gate.methods, looks_worse))
    return "Passed: no loss is significant, but the samples do not show that there is none; --strict would fail.";
  if (doubts > 0)
    return "Passed: nothing shows that the run is worse, but the samples are too few to show that it is not; --strict "
           "would fail.";
  const bool timed = std::ranges::any_of(gate.methods, [](const MethodVerdict& m) { return !m.times.empty(); });
  return fmt::format("Passed: no method loses more than {:.3g} points{}.", 100 * gate.options.accuracy_margin,
                     timed ? ", and none takes longer than its margin" : "");
}

std::vector<std::string> notes_of(const Gate& gate) {
  std::vector<std::string> notes = gate.notes;
  for (const auto& [what, m] : {std::pair("baseline", &gate.baseline), std::pair("run", &gate.run)}) {
    if (m->programs.size() > 1)
      notes.push_back(fmt::format(
          "The {} was resumed, so that its samples are a mixture of what {} programs made; which of them made a sample "
          "is not known.",
          what, m->programs.size()));
  }
  std::vector<std::string> by_tokens;
  for (const MethodVerdict& m : gate.methods)
    if (m.by_tokens) by_tokens.push_back(m.label);
  if (!by_tokens.empty())
    notes.push_back(fmt::format(
        "Of {}, all samples have the baseline's tokens, by which {} passes; other tokens in so few "
        "samples ({}) could not have been judged to {:.3g} points.",
        join_names(by_tokens), score_name(gate.run.benchmark), gate.samples, 100 * gate.options.accuracy_margin));
  for (const MethodVerdict& m : gate.methods)
    if (m.other_tokens > 0 && !gate.options.same_tokens) notes.push_back(other_tokens(gate, m));
  return notes;
}

nlohmann::ordered_json json_of(const Manifest& m, const std::string& path) {
  nlohmann::ordered_json json = {{"folder", path}};
  write_programs(json, m.programs);
  json["finished_utc"] = m.finished_utc;
  json["clock"] = m.clock;
  return json;
}

}  // namespace

static void to_json(nlohmann::ordered_json& json, const TimeVerdict& time) {
  json["what"] = time.what;
  if (time.length != 0) json["length"] = time.length;
  if (!time.shape.empty()) json["shape"] = time.shape;
  json["verdict"] = to_string(time.verdict);
  if (time.before_ms && time.after_ms) {
    json["baseline_ms"] = *time.before_ms;
    json["run_ms"] = *time.after_ms;
  }
  if (!time.change && !time.remark.empty()) {
    json["remark"] = time.remark;
  } else {
    json["change"] = json_or_null(time.change);
  }
  if (time.interval) json["interval"] = {time.interval->low, time.interval->high};
  json["margin"] = time.margin;
}

static void to_json(nlohmann::ordered_json& json, const MethodVerdict& m) {
  json = {{"method", m.label}, {"verdict", to_string(m.verdict)}};
  if (m.run_label.empty()) return;
  json["run_method"] = m.run_label;
  const PairedEstimate& change = m.accuracy.change;
  nlohmann::ordered_json accuracy = {{"verdict", to_string(m.accuracy.verdict)},
                                     {"baseline", m.accuracy.before},
                                     {"run", m.accuracy.after},
                                     {"difference", estimate_json(change.difference, "value")}};
  if (change.has_p) accuracy["difference"]["mcnemar_mid_p"] = change.p;
  if (m.by_tokens) accuracy["by_tokens"] = true;
  if (m.accuracy.needed > 0) accuracy["samples_needed"] = m.accuracy.needed;
  json["accuracy"] = std::move(accuracy);
  json["times"] = m.times;
  if (m.idle_compared && m.before && m.after)
    json["idle_ms"] = {{"baseline", m.before->idle_ms}, {"run", m.after->idle_ms}};
  if (m.tokens_compared) json["samples_with_other_tokens"] = m.other_tokens;
}

static void to_json(nlohmann::ordered_json& json, const PredictedSteps& steps) {
  json = {{"shape", steps.shape}, {"by", steps.stored ? "each run" : "this program"}};
}

std::vector<std::string> failures_of(const Gate& gate) {
  std::vector<std::string> out;
  for (const MethodVerdict& m : gate.methods) {
    if (m.run_label.empty())
      out.push_back(fmt::format("{}: the run does not have this method of the baseline.", m.label));
    if (m.accuracy.verdict == Verdict::failed) out.push_back(accuracy_failure(gate, m));
    for (const TimeVerdict& time : m.times)
      if (time.verdict == Verdict::failed) out.push_back(time_failure(m, time));
    if (gate.options.same_tokens && m.other_tokens > 0) out.push_back(other_tokens(gate, m));
  }
  return out;
}

std::vector<std::string> doubts_of(const Gate& gate, std::size_t judged) {
  std::vector<std::string> out;
  if (std::string accuracy = accuracy_doubt(gate); !accuracy.empty()) out.push_back(std::move(accuracy));
  if (std::string loss = loss_doubt(gate, judged); !loss.empty()) out.push_back(std::move(loss));
  for (const MethodVerdict& m : gate.methods) {
    for (const TimeVerdict& time : m.times) {
      if (time.verdict != Verdict::cannot_tell) continue;
      out.push_back(
          time.remark.empty()
              ? fmt::format("{}: the samples do not show whether {} rose by more than {:.3g} %: it changed by {}{}.",
                            m.label, time.what, 100 * time.margin, percent(time),
                            time.interval ? "" : ", of too few samples for an interval")
              : fmt::format("{}: nothing shows whether {}{} rose: {}.", m.label, time.what, at_length(time),
                            time.remark));
    }
  }
  return out;
}

std::string gate_text(const Gate& gate, bool markdown) {
  const std::vector<std::string> failures = failures_of(gate), doubts = doubts_of(gate);
  std::string out = markdown ? "# Gate\n" : "";
  out += note("Baseline " + origin(gate.baseline_path, gate.baseline), markdown);
  out += note("Run " + origin(gate.run_path, gate.run), markdown) + "\n";
  out += text_of(table_of(gate, markdown), markdown) + labels_note(names_of(gate), markdown);
  if (!gate.run.clock.empty() && is_embedded(gate.run)) out += note(kOwnSteps, markdown);
  if (!markdown) out += "\n";
  for (const std::string& failure : failures) out += note("FAILED: " + failure, markdown);
  for (const std::string& doubt : doubts) out += note("Cannot tell: " + doubt, markdown);
  for (const std::string& remark : notes_of(gate)) out += note("Note: " + remark, markdown);
  return out + note(conclusion(gate, failures.size(), doubts.size()), markdown);
}

std::string gate_json(const Gate& gate) {
  nlohmann::ordered_json json;
  json["schema_version"] = 1;
  json["verdict"] = to_string(gate.verdict);
  json["baseline"] = json_of(gate.baseline, gate.baseline_path);
  json["run"] = json_of(gate.run, gate.run_path);
  json["samples"] = gate.samples;
  json["accuracy_margin"] = gate.options.accuracy_margin;
  json["alpha"] = gate.options.alpha;
  json["strict"] = gate.options.strict;
  json["predictions"] = gate.predictions;
  json["methods"] = gate.methods;
  json["failures"] = failures_of(gate);
  json["doubts"] = doubts_of(gate);
  json["notes"] = notes_of(gate);
  return json_text(json, 2) + "\n";
}

}  // namespace tandem::eval
