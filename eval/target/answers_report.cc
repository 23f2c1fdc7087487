// What answers lose, as a table and the sentences below it.
#include <algorithm>
#include <fmt/core.h>

#include "eval/target/answers.h"

namespace tandem::eval {
namespace {

std::string standing_cell(const MethodAnswers& m) {
  switch (m.standing) {
    case Standing::within:
      return m.lossless ? "yes, it loses nothing" : "yes";
    case Standing::beyond:
      return "no";
    case Standing::cannot_tell:
    case Standing::not_measured:
      break;
  }
  return to_string(m.standing);
}

}  // namespace

std::string points_text(double share) {
  const std::string text = fmt::format("{:.4g}", 100 * share);
  return text + (text == "1" ? " point" : " points");
}

Table answers_table(const Answers& answers) {
  const auto points = [](double share) { return fmt::format("{:.1f}", 100 * share + 0.0); };
  Table table;
  table.clock = answers.of;
  table.head = {"method", "score %", "loss, points [95\u00a0%]", "loses at most " + points_text(answers.margin)};
  for (const MethodAnswers& m : answers.methods) {
    const Interval& i = m.loss.interval;
    table.rows.push_back(
        {m.method, m.measured_as.empty() ? "-" : points(m.score.value),
         m.loss.n == 0 ? "-"
                       : fmt::format("{}\u00a0[{},\u00a0{}]", points(m.loss.value), points(i.low), points(i.high)),
         standing_cell(m)});
  }
  return table;
}

std::vector<std::string> answers_notes(const Answers& a, std::span<const std::uint32_t> contexts) {
  std::vector<std::string> notes;
  std::string others, elsewhere;
  for (const MethodAnswers& m : a.methods)
    if (!m.measured_as.empty() && m.measured_as != m.method)
      others += fmt::format("{}{} is {} there", others.empty() ? " " : ", ", m.method, m.measured_as);
  for (const std::uint32_t context : contexts)
    if (!a.lengths.empty() && std::ranges::find(a.lengths, context) == a.lengths.end())
      elsewhere += (elsewhere.empty() ? "" : ", ") + length_text(context);
  notes.push_back(fmt::format(
      "Losses: of the score, beside {} on the same samples, measured by the run {} ({}). A method loses at most {} "
      "where its whole interval does, or where it computes what full attention does; \"cannot tell\" needs more "
      "samples.{}{}",
      a.baseline, a.run, a.of, points_text(a.margin), others, others.empty() ? "" : "."));
  if (!elsewhere.empty())
    notes.push_back(fmt::format(
        "No answer was measured at contexts of {}: a budget of tokens is another share of them, and answers "
        "may lose more or less there.",
        elsewhere));
  return notes;
}

}  // namespace tandem::eval
