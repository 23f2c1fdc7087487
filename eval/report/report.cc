// The report of a run: which tables there are, and how they are to be read.
#include <algorithm>
#include <array>
#include <cmath>
#include <fmt/ranges.h>
#include <map>
#include <set>

#include "engine/common/error.h"
#include "engine/common/python.h"
#include "eval/report/answer.h"
#include "eval/report/manifest_difference.h"
#include "eval/report/markdown.h"
#include "eval/report/table.h"
#include "eval/ruler_tasks/protocol.h"

namespace tandem::eval {
namespace {

using Labels = std::vector<std::string>;  // by index into Summary::methods

/// The best score first. A page has what a step costs, too, beside it; a terminal's answer has that.
Table accuracy_table(const Summary& s, const Labels& labels, const Answer& answer, bool markdown) {
  Table t;
  t.head = {"method", answer.measure + " [95\u00a0%]",
            "difference to " + baseline_label(s, labels) + ", points [95\u00a0%]", "McNemar\u00a0p", "n"};
  const bool marked = any_attends_everything(s.methods);
  if (marked) t.head.emplace_back("budget");
  const std::vector<AnswerColumn> costs = markdown ? cost_columns(answer) : std::vector<AnswerColumn>();
  for (const AnswerColumn& column : costs) t.head.push_back(column.head);
  for (std::size_t rank = 0; rank < answer.rows.size(); ++rank) {
    const auto method = std::ranges::find(s.methods, answer.rows[rank].label, &MethodSummary::label);
    const AccuracyCell& all = method->overall;
    const double p = all.difference.p;
    std::vector<std::string>& row = t.rows.emplace_back();
    row = {labels[static_cast<std::size_t>(method - s.methods.begin())], accuracy_text(all.accuracy),
           difference_text(all),
           !all.difference.has_p ? "-"
           : p < 0.001           ? "<0.001"
                                 : fmt::format("{:.3f}", p),
           std::to_string(all.accuracy.n)};
    if (marked) row.push_back(budget_text(method->attends_everything_at));
    for (const AnswerColumn& column : costs) row.push_back(column.cells[rank]);
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
        const auto cell =
            std::ranges::find_if(m.cells, [&](const AccuracyCell& c) { return c.task == task && c.length == length; });
        row.push_back(cell == m.cells.end() ? "-" : accuracy_text(cell->accuracy));
      }
      t.rows.push_back(std::move(row));
    }
  }
  return t;
}

std::string accuracy_note(const Summary& s, const Labels& labels) {
  std::set<std::string> kinds, paired;
  std::uint64_t ties = 0;
  std::size_t comparisons = 0;
  for (const MethodSummary& m : s.methods) {
    kinds.insert(to_string(m.overall.accuracy.kind));
    for (const AccuracyCell& cell : m.cells) kinds.insert(to_string(cell.accuracy.kind));
    if (m.overall.has_difference) paired.insert(to_string(m.overall.difference.difference.kind));
    comparisons += m.overall.has_difference ? 1 : 0;
    ties += m.near_ties;
  }
  std::string text = fmt::format("n samples; [95 % interval]: {}.", fmt::join(kinds, ", "));
  const std::vector<std::string> repeating = ruler_repeating_tasks(s.manifest.protocol_id, s.manifest.tasks);
  const AccuracyCell& first = s.methods.front().overall;
  const std::string units = fmt::format("so that there are {}, not {}", first.units, first.accuracy.n);
  if (!repeating.empty() && first.units != first.accuracy.n) {
    text += fmt::format(
        " {} {} the same questions at every length: over all lengths, intervals and p take a question with its mean "
        "score as one sample, {}{}.",
        join_names(repeating), repeating.size() == 1 ? "asks" : "ask", units,
        s.manifest.tasks.size() > repeating.size() ? "; beside samples of other tasks, which weigh less, there is no p"
                                                   : "");
  }
  if (const std::uint32_t answers = repeats_of(s.manifest); answers > 1) {
    text += fmt::format(" Each question has {} answers: intervals take it with its mean score as one sample, {}.",
                        answers, units);
  }
  if (!s.about_documents.empty() && first.units != first.accuracy.n) {
    text += fmt::format(
        " {} {} several questions about a document: intervals take a document with its mean score as one sample, {}.",
        join_names(s.about_documents), s.about_documents.size() == 1 ? "asks" : "ask", units);
  }
  if (!paired.empty())
    text +=
        fmt::format(" Differences are taken on the same samples ({}); an interval that holds 0 shows no difference.",
                    fmt::join(paired, ", "));
  constexpr double kTelling = 0.5;  // a larger difference needs no test to be seen
  std::vector<std::string> detectable, too_few;
  for (std::size_t i = 0; i < labels.size(); ++i) {
    const AccuracyCell& all = s.methods[i].overall;
    if (!all.has_difference || !all.difference.has_p) continue;
    if (all.difference.detectable > kTelling) {
      too_few.push_back(labels[i]);
    } else {
      detectable.push_back(fmt::format("{:.1f} for {}", 100 * all.difference.detectable, labels[i]));
    }
  }
  const std::size_t with_p = detectable.size() + too_few.size();
  if (with_p > 0) text += " p: McNemar's test, mid-p.";
  if (!detectable.empty())
    text += fmt::format(" Of runs this large, four in five would find a true difference of so many points: {}.",
                        fmt::join(detectable, ", "));
  if (!too_few.empty())
    text += fmt::format(" Too few samples to find a true difference below {:.0f} points in four of five runs: {}.",
                        100 * kTelling, fmt::join(too_few, ", "));
  // Nothing is corrected for how many comparisons there are.
  if (const std::size_t n = with_p > 0 ? with_p : comparisons; n > 1)
    text += fmt::format(
        " Each {} is that of its comparison alone: of {} without a true difference, were they independent, one or more "
        "would {} in {:.0f} % of runs.",
        with_p > 0 ? "p" : "interval of a difference", n, with_p > 0 ? "be below 0.05" : "have no 0 in theirs",
        100 * (1 - std::pow(0.95, static_cast<double>(n))));
  return text + fmt::format(
                    " {} decode steps were near ties of the two best logits, where rounding may choose the token; "
                    "samples.jsonl names them.",
                    ties);
}

/// Lossless methods whose tokens are not full's, with the first few steps where they part.
std::string parted_note(const Summary& s, const Labels& labels) {
  constexpr std::size_t kShown = 3;
  std::string text;
  for (std::size_t i = 0; i < labels.size(); ++i) {
    const std::vector<SampleResult>& parted = s.methods[i].parted;
    if (parted.empty()) continue;
    text += fmt::format("{}{} is lossless, and its tokens part from full's in {} of {}.", text.empty() ? "" : " ",
                        labels[i], parted.size(), counted(s.methods[i].overall.accuracy.n, "sample"));
    for (std::size_t n = 0; n < std::min(parted.size(), kShown); ++n) {
      const SampleResult& sample = parted[n];
      const Parting at = sample.parted.value_or(Parting());
      text += fmt::format(
          " {}{}, sample {}: step {}, best logits {:.6g} and {:.6g} (gap {:.2g}) of full, {:.6g} and {:.6g} of its "
          "own.",
          sample.task, sample.length == 0 ? "" : " at " + length_text(sample.length), sample.index, at.step,
          at.full.logits[0], at.full.logits[1], at.gap(), at.own.logits[0], at.own.logits[1]);
    }
    if (parted.size() > kShown) text += " samples.jsonl names the others.";
  }
  return text;
}

/// How many, and where samples are made, from which seed.
std::string samples_text(const Manifest& m) {
  const bool as_is = m.lengths == std::vector<std::uint32_t>{0};
  std::string text = counted(m.samples, "sample");
  if (!m.task_samples.empty()) text = fmt::format("{} to {}", *std::ranges::min_element(m.task_samples), text);
  text += as_is ? " per task" : " per task and length";
  return as_is || ruler_reads_files(m.protocol_id) ? text : text + fmt::format(", seed {}", m.seed);
}

}  // namespace

std::string benchmark_title(const std::string& benchmark) {
  static const std::map<std::string, std::string> titles = {
      {"ruler", "RULER"},         {"longbench", "LongBench"}, {"leval", "L-Eval"},
      {"longproc", "LongProc"},   {"reasoning", "Reasoning"}, {"needle", "A needle by depth and length"},
      {kPerplexity, "Perplexity"}};
  const auto found = titles.find(benchmark);
  return found == titles.end() ? benchmark : found->second;
}

std::string page_title(const Manifest& m) {
  return benchmark_title(m.benchmark) + " on " + m.model;
}

const std::string& baseline_label(const Summary& s, const std::vector<std::string>& labels) {
  const std::string& baseline = s.manifest.methods.front().label;
  return s.methods.front().label == baseline ? labels.front() : baseline;
}

std::string budget_text(const std::vector<std::uint32_t>& attends_everything_at) {
  std::string lengths;
  for (const std::uint32_t length : attends_everything_at) {
    if (length == 0) return "attends everything";  // prompts are as long as they are
    lengths += (lengths.empty() ? "" : ", ") + length_text(length);
  }
  return lengths.empty() ? "-" : "attends everything at " + lengths;
}

std::string budget_note(const Summary& s) {
  if (!any_attends_everything(s.methods)) return "";
  return " A method that attends everything has a budget for the whole context there, so that its answers are full "
         "attention's: a smaller budget or a longer context shows what it loses.";
}

std::string percent_text(double share) {
  return fmt::format("{:.1f}", 100 * share);
}

std::string signed_percent_text(double share) {
  return fmt::format("{:+.1f}", 100 * share);
}

std::string accuracy_text(const Estimate& e) {
  return interval_text(e, percent_text);
}

std::string difference_text(const AccuracyCell& cell) {
  return cell.has_difference ? interval_text(cell.difference.difference, signed_percent_text) : "-";
}

std::string report_text(const Summary& s, bool markdown, bool with_plot, bool by_task) {
  const Manifest& m = s.manifest;
  const Labels labels = labels_of(s, markdown);
  const Answer answer = answer_of(s);
  std::string out;
  if (markdown) out += fmt::format("# {}\n", markdown_text(page_title(m)));
  out += note(fmt::format("{}, {}{}", samples_text(m),
                          s.complete ? "complete" : "NOT COMPLETE: some samples, or times of them, are missing",
                          clock_note(s, markdown)),
              markdown);
  out += labels_note(s, markdown);
  if (markdown) out += answer_list(answer) + front_picture(s, with_plot);
  out += section(score_name(m.benchmark) == "accuracy" ? "Accuracy" : "Scores", markdown);
  out += text_of(accuracy_table(s, labels, answer, markdown), markdown);
  out += note(accuracy_note(s, labels) + budget_note(s), markdown) + remarks_note(s, markdown);
  if (const std::string parted = parted_note(s, labels); !parted.empty()) out += note(parted, markdown);
  if (markdown && with_plot) out += "\n![Scores, and where a step's time goes](plot.png)\n";
  out += latency_report(s, markdown);
  if (by_task && m.tasks.size() * m.lengths.size() > 1)
    out += section("By task", markdown) + text_of(task_table(s, labels), markdown);
  return out;
}

std::optional<std::string> draw_plot(const std::string& script, const std::filesystem::path& folder) {
  const PythonEnd end = run_python(script, std::array{folder.string()});
  if (end == PythonEnd::done) return std::nullopt;
  if (end == PythonEnd::no_package) return "";
  return fmt::format("The plot was not drawn: {}.", end == PythonEnd::failed ? script + " failed"
                                                    : end == PythonEnd::not_installed
                                                        ? "python3 is not installed"
                                                        : "no new process could be started");
}

}  // namespace tandem::eval
