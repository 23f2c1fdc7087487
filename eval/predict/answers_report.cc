// What answers lose, as a table and the sentences below it.
#include <algorithm>
#include <cmath>
#include <fmt/core.h>

#include "eval/predict/answers.h"

namespace tandem::eval {
namespace {

/// Rounded first: what rounds to nothing has no sign.
std::string points(double share) {
  return fmt::format("{:.1f}", std::round(1000 * share) / 10 + 0.0);
}

std::string verdict(Standing standing) {
  if (standing == Standing::within) return "yes";
  return standing == Standing::beyond ? "no" : to_string(standing);
}

std::string loss_cell(const Answers& answers, const MethodAnswers& method, const AnswersAt& at) {
  if (at.loss.n == 0) return "-";
  const Interval& i = at.loss.interval;
  return fmt::format("{}\u00a0[{},\u00a0{}]: {}", points(at.loss.value), points(i.low), points(i.high),
                     verdict(answers.standing(method, at)));
}

bool measured_for(const Answers& a, std::uint32_t context) {
  if (a.lengths.empty()) return context >= a.shortest && context <= a.longest;
  return std::ranges::find(a.lengths, context) != a.lengths.end();
}

std::string where_measured(const Answers& a) {
  if (a.lengths.empty()) return fmt::format("prompts of {} to {} tokens", a.shortest, a.longest);
  std::string text;
  for (const std::uint32_t length : a.lengths) text += (text.empty() ? "prompts of " : ", ") + length_text(length);
  return text;
}

/// How many samples would be about enough to tell, were the loss what it looks: intervals narrow as 1 / sqrt(n).
double samples_to_tell(const AnswersAt& at, double margin) {
  const Interval& i = at.loss.interval;
  const double room = std::abs(margin - at.loss.value);
  const double width = at.loss.value < margin ? i.high - at.loss.value : at.loss.value - i.low;
  return room > 0 ? double(at.loss.n) * std::pow(width / room, 2) : HUGE_VAL;
}

/// How many samples each loss that is not told needs; nothing where every one is.
std::string more_samples(const Answers& a) {
  constexpr std::uint64_t kMost = 100000;
  std::string each;
  for (const MethodAnswers& m : a.methods)
    for (const AnswersAt& at : m.at) {
      if (a.standing(m, at) != Standing::cannot_tell) continue;
      const double needed = samples_to_tell(at, a.margin);
      const auto count = std::uint64_t(std::ceil(std::min(needed, double(kMost))));
      each += fmt::format("{}{}{} {}", each.empty() ? "" : ", ", m.method,
                          at.length == 0 ? "" : " at " + length_text(at.length), about_text(count, kMost));
    }
  if (each.empty()) return "";
  return fmt::format(
      " \"cannot tell\" needs more samples than the run has; were losses what they look here, these would do: {}.",
      each);
}

}  // namespace

std::string points_text(double share) {
  const std::string text = fmt::format("{:.4g}", 100 * share);
  return text + (text == "1" ? " point" : " points");
}

Table answers_table(const Answers& a) {
  Table table;
  table.clock = fmt::format("{} with {}; yes: loses at most {}", a.of, a.model, points_text(a.margin));
  table.head = {"method"};
  const std::size_t columns = std::max<std::size_t>(1, a.lengths.size());
  for (std::size_t c = 0; c < columns; ++c) {
    const std::string at = a.lengths.empty() ? "" : " at\u00a0" + length_text(a.lengths[c]);
    table.head.push_back("score %" + at);
    table.head.push_back("loss" + at + ", points [95\u00a0%]");
  }
  for (const MethodAnswers& m : a.methods) {
    std::vector<std::string>& row = table.rows.emplace_back();
    row.push_back(m.method);
    for (std::size_t c = 0; c < columns; ++c) {
      const bool measured = c < m.at.size();
      row.push_back(measured ? points(m.at[c].score.value) : "-");
      row.push_back(m.lossless ? "loses nothing"
                    : measured ? loss_cell(a, m, m.at[c])
                               : to_string(Standing::not_measured));
    }
  }
  return table;
}

std::vector<std::string> answers_notes(const Answers& a, const std::string& model,
                                       std::span<const std::uint32_t> contexts) {
  std::vector<std::string> notes;
  std::string others, elsewhere;
  for (const MethodAnswers& m : a.methods)
    if (!m.measured_as.empty() && m.measured_as != m.method)
      others += fmt::format("{}{} is {} there", others.empty() ? " " : ", ", m.method, m.measured_as);
  for (const std::uint32_t context : contexts)
    if (!measured_for(a, context)) elsewhere += (elsewhere.empty() ? "" : ", ") + length_text(context);
  notes.push_back(fmt::format(
      "Losses: of the mean score of all tasks, beside {} on the same samples, measured by the run {}. A method loses "
      "at most {} at a context where its whole interval does, or where it computes what full attention does.{}{}{}",
      a.baseline, a.run, points_text(a.margin), more_samples(a), others, others.empty() ? "" : "."));
  if (a.model != model)
    notes.push_back(fmt::format("The answers are of {}: what those of {} lose may be another thing.", a.model, model));
  if (!elsewhere.empty())
    notes.push_back(fmt::format(
        "Measured elsewhere: no answer was at contexts of {}, but of {}. A budget of tokens is another share "
        "of other contexts, so that only methods which lose nothing are known to be within the margin there.",
        elsewhere, where_measured(a)));
  return notes;
}

}  // namespace tandem::eval
