#include "eval/report/answer.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <fmt/ranges.h>
#include <limits>
#include <string_view>

#include "engine/common/printable.h"
#include "eval/report/markdown.h"
#include "eval/report/table.h"

namespace tandem::eval {
namespace {

constexpr std::size_t kLongestName = 34;  // columns, so that all of the table's stand side by side in 100

/// Bytes that a step of `full` touches; none where the run has no such method or did not count them.
std::optional<double> touched_by_full(const Summary& s) {
  for (const MethodSummary& m : s.methods) {
    const auto entry = std::ranges::find(s.manifest.methods, m.label, &MethodEntry::label);
    if (entry == s.manifest.methods.end() || entry->name != "full") continue;
    if (const std::optional<LatencySummary> times = mean_of_lengths(m)) return times->touched;
  }
  return std::nullopt;
}

void take_difference(const MethodSummary& m, bool is_baseline, bool losses, AnswerRow& row) {
  row.keeps = is_baseline;
  if (!m.overall.has_difference) return;
  const Estimate& difference = m.overall.difference.difference;
  if (difference.kind == IntervalKind::none) {  // windows that all differ alike: by nothing, or by who knows how much
    row.keeps = difference.value == 0;
    return;
  }
  const double worst = losses ? difference.interval.high : -difference.interval.low;
  const double best = losses ? difference.interval.low : -difference.interval.high;
  row.keeps = best <= 0;
  row.may_lose = std::max(0.0, worst);
}

std::optional<double> cost_of(const AnswerRow& row, AnswerCost cost) {
  return cost == AnswerCost::kv_share ? row.kv_share : cost == AnswerCost::tpot ? row.tpot_ms : std::nullopt;
}

AnswerCost cost_that_all_have(const std::vector<AnswerRow>& rows) {
  for (const AnswerCost cost : {AnswerCost::kv_share, AnswerCost::tpot})
    if (std::ranges::all_of(rows, [&](const AnswerRow& row) { return cost_of(row, cost).has_value(); })) return cost;
  return AnswerCost::none;
}

/// Sorts the rows, best first, and marks the front: behind better rows a row is on it where it costs less than all of
/// them, or as little as the cheapest of its equals.
void sort_rows(Answer& a) {
  const auto value = [&](const AnswerRow& row) { return a.losses ? -row.score.value : row.score.value; };
  const auto cost = [&](const AnswerRow& row) { return cost_of(row, a.cost).value_or(0); };
  std::ranges::stable_sort(a.rows, [&](const AnswerRow& x, const AnswerRow& y) {
    return value(x) != value(y) ? value(x) > value(y) : cost(x) < cost(y);
  });
  if (a.cost == AnswerCost::none) return;
  double cheapest = std::numeric_limits<double>::infinity();
  for (std::size_t first = 0; first < a.rows.size();) {
    const double least = cost(a.rows[first]);
    std::size_t end = first;
    for (; end < a.rows.size() && value(a.rows[end]) == value(a.rows[first]); ++end)
      a.rows[end].front = least < cheapest && cost(a.rows[end]) == least;
    cheapest = std::min(cheapest, least);
    first = end;
  }
}

/// "a, b, c and 4 more".
std::string names_text(const std::vector<std::string>& names) {
  constexpr std::size_t kNamed = 5;
  if (names.size() <= kNamed + 1) return fmt::format("{}", fmt::join(names, ", "));
  return fmt::format("{} and {} more", fmt::join(names.begin(), names.begin() + kNamed, ", "), names.size() - kNamed);
}

/// The end of "No other method ...". A perplexity is better where it is lower, so that no method scores high.
std::string front_claim(const Answer& a) {
  return fmt::format("{} with {}", a.losses ? "does as well" : "scores as high",
                     a.cost == AnswerCost::kv_share ? "fewer bytes of KV" : "shorter steps");
}

std::string tpot_text(double ms) {
  return fmt::format("{:.4g}", ms);
}

std::string noise_sentence(const Answer& a) {
  std::vector<std::string> keeping;
  double may_lose = 0;
  for (const AnswerRow& row : a.rows) {
    if (!row.keeps || row.name == a.baseline) continue;
    keeping.push_back(row.name);
    may_lose = std::max(may_lose, row.may_lose);
  }
  if (keeping.empty()) return fmt::format("Every other method loses more against {} than noise explains.", a.baseline);
  std::string text = fmt::format(
      "Within noise of {}, or better: {} (the 95 % interval of the paired difference reaches 0, or no sample differs).",
      a.baseline, names_text(keeping));
  if (may_lose > 0)
    text += fmt::format(
        " A loss of up to {} could hide in that noise.",
        a.losses ? fmt::format("{:.4f} nats per token", may_lose) : fmt::format("{:.1f} points", 100 * may_lose));
  return text;
}

/// The cheapest of the rows that keep the score, by this figure; null where none has less than the baseline.
const AnswerRow* cheapest_that_keeps(const Answer& a, std::optional<double> AnswerRow::*figure) {
  const auto baseline = std::ranges::find(a.rows, a.baseline, &AnswerRow::name);
  if (baseline == a.rows.end()) return nullptr;
  const AnswerRow* least = &*baseline;
  for (const AnswerRow& row : a.rows)
    if (row.keeps && row.*figure && row.*figure < least->*figure) least = &row;
  return least == &*baseline ? nullptr : least;
}

std::string cost_sentence(const Answer& a) {
  std::string text;
  const auto baseline = std::ranges::find(a.rows, a.baseline, &AnswerRow::name);
  if (baseline->tpot_ms) {
    const AnswerRow* fastest = cheapest_that_keeps(a, &AnswerRow::tpot_ms);
    text = fastest == nullptr
               ? fmt::format("None of them is faster than {}.", a.baseline)
               : fmt::format("The fastest of them is {}, with a TPOT {:.2f} times that of {}.", fastest->name,
                             fastest->tpot_ms.value_or(0) / baseline->tpot_ms.value_or(1), a.baseline);
  }
  if (const AnswerRow* smallest = cheapest_that_keeps(a, &AnswerRow::kv_share); smallest != nullptr)
    text += fmt::format("{}{} touches the fewest bytes of the context, {} % of what full touches.",
                        text.empty() ? "" : " ", smallest->name, percent_text(smallest->kv_share.value_or(0)));
  return text;
}

std::string budget_sentence(const Summary& s, const Answer& a) {
  std::vector<std::string> names, lengths;
  for (const AnswerRow& row : a.rows)
    if (!row.attends_everything_at.empty()) names.push_back(row.name);
  if (names.empty()) return "";
  for (const std::uint32_t length : s.manifest.lengths)
    if (length != 0 && std::ranges::any_of(a.rows, [&](const AnswerRow& row) {
          return std::ranges::find(row.attends_everything_at, length) != row.attends_everything_at.end();
        }))
      lengths.push_back(length_text(length));
  return fmt::format(
      "Warning: {}the budget of {} holds the whole context, so that the answers are full attention's. A smaller budget "
      "or a longer context shows what the method loses.",
      lengths.empty() ? "" : fmt::format("at {} ", names_text(lengths)), names_text(names));
}

std::string parted_sentence(const Summary& s) {
  std::vector<std::string> names;
  for (const MethodSummary& m : s.methods)
    if (!m.parted.empty())
      names.push_back(fmt::format("{} in {}", cut(m.label, kLongestName), counted(m.parted.size(), "sample")));
  if (names.empty()) return "";
  return fmt::format("Warning: tokens of a lossless method part from full's: {}. report.md names the steps.",
                     names_text(names));
}

std::string reuse_sentence(const Summary& s) {
  if (s.reused_tokens == 0) return "";
  return fmt::format("The prefix cache had {} of {} prefill tokens ({} %).", s.reused_tokens, s.prefill_tokens,
                     percent_text(double(s.reused_tokens) / double(s.prefill_tokens)));
}

/// Appends a column unless no row has a value.
void add_column(const Answer& a, std::string head, const auto& cell, std::vector<AnswerColumn>& columns) {
  AnswerColumn column{std::move(head), {}};
  column.cells.reserve(a.rows.size());
  for (const AnswerRow& row : a.rows) column.cells.push_back(cell(row));
  const bool any = std::ranges::any_of(column.cells, [](const std::string& text) { return text != "-"; });
  if (any) columns.push_back(std::move(column));
}

void add_costs(const Answer& a, std::vector<AnswerColumn>& columns) {
  const auto share = [](const AnswerRow& row) { return figure_text(row.kv_share, percent_text); };
  const auto idle = [](const AnswerRow& row) { return figure_text(row.idle_share, percent_text); };
  add_column(a, "KV bytes, % of full", share, columns);
  add_column(
      a, "TPOT ms", [](const AnswerRow& row) { return figure_text(row.tpot_ms, tpot_text); }, columns);
  add_column(a, "GPU idle, %", idle, columns);
}

/// The columns behind the names.
std::vector<AnswerColumn> columns_of(const Answer& a) {
  std::vector<AnswerColumn> columns;
  add_column(
      a, a.measure + " [95\u00a0%]", [&](const AnswerRow& row) { return score_text(a, row); }, columns);
  add_costs(a, columns);
  add_column(
      a, "tokens attended",
      [](const AnswerRow& row) {
        return figure_text(row.attended, [](double tokens) { return fmt::format("{:.0f}", tokens); });
      },
      columns);
  return columns;
}

/// The table of the first `shown` rows, with as many of the first columns as stand side by side in `width`.
std::string rows_text(const Answer& a, std::size_t shown, std::size_t width) {
  for (std::vector<AnswerColumn> columns = columns_of(a);; columns.pop_back()) {
    Table t;
    t.head = {"\u00a0\u00a0method"};  // behind the marks
    for (const AnswerColumn& column : columns) t.head.push_back(column.head);
    for (std::size_t i = 0; i < shown; ++i) {
      std::vector<std::string>& row = t.rows.emplace_back();
      row.push_back((a.rows[i].front ? "* " : "  ") + a.rows[i].name);
      for (const AnswerColumn& column : columns) row.push_back(column.cells[i]);
    }
    std::string text = t.text(width);
    const bool is_one_table = text.find("\n\n") == std::string::npos;
    if (is_one_table || columns.size() == 1) return text;
  }
}

}  // namespace

std::string score_name(const std::string& benchmark) {
  if (benchmark == kPerplexity) return "perplexity";
  constexpr std::array<std::string_view, 3> kShares = {"longbench", "leval", "longproc"};
  return std::ranges::find(kShares, benchmark) == kShares.end() ? "accuracy" : "score";
}

std::string measure_of(const std::string& benchmark) {
  return score_name(benchmark) + (benchmark == kPerplexity ? "" : ", %");
}

Answer answer_of(const Summary& s) {
  const Manifest& m = s.manifest;
  Answer a;
  a.losses = m.benchmark == kPerplexity;
  a.measure = measure_of(m.benchmark);
  a.clock = m.clock;
  a.title = fmt::format("{} on {}: {}, {} each{}", benchmark_title(m.benchmark), cut(m.model, kLongestName),
                        counted(s.methods.size(), "method"), counted(m.all_samples(), a.losses ? "window" : "sample"),
                        s.complete ? "" : ", NOT COMPLETE");
  const std::vector<std::string> names = short_labels(labels_of(s, /*markdown=*/true), kLongestName);
  a.baseline = baseline_label(s, names);
  const std::optional<double> full = touched_by_full(s);
  for (std::size_t i = 0; i < s.methods.size(); ++i) {
    const MethodSummary& method = s.methods[i];
    AnswerRow& row = a.rows.emplace_back();
    row.label = method.label;
    row.name = names[i];
    row.score = method.overall.accuracy;
    row.attends_everything_at = method.attends_everything_at;
    take_difference(method, method.label == m.methods.front().label, a.losses, row);
    const std::optional<LatencySummary> times = mean_of_lengths(method);
    if (!times) continue;
    row.attended = times->attended_device + times->attended_host;
    if (full && times->touched) row.kv_share = ratio(*times->touched, *full);
    row.tpot_ms = times->tpot_ms;
    row.idle_share = mean_idle_share(method);
  }
  a.cost = cost_that_all_have(a.rows);
  sort_rows(a);
  const bool compared =
      std::ranges::any_of(s.methods, [](const MethodSummary& method) { return method.overall.has_difference; });
  const auto say = [&](std::string sentence) {
    if (!sentence.empty()) a.sentences.push_back(std::move(sentence));
  };
  if (compared) say(noise_sentence(a));
  const auto keep = std::ranges::count_if(a.rows, &AnswerRow::keeps);
  if (compared && keep > 1) say(cost_sentence(a));
  say(parted_sentence(s));
  say(budget_sentence(s, a));
  say(reuse_sentence(s));
  const bool timed = std::ranges::any_of(a.rows, [](const AnswerRow& row) { return row.tpot_ms.has_value(); });
  if (timed && is_embedded(m)) say(kOwnSteps);
  return a;
}

std::string score_text(const Answer& a, const AnswerRow& row) {
  if (!a.losses) return accuracy_text(row.score);
  const auto perplexity = [](double nats) { return fmt::format("{:.4g}", std::exp(nats)); };
  return row.score.kind == IntervalKind::none ? perplexity(row.score.value) : interval_text(row.score, perplexity);
}

std::vector<AnswerColumn> cost_columns(const Answer& a) {
  std::vector<AnswerColumn> columns;
  add_costs(a, columns);
  add_column(
      a, "Pareto front", [](const AnswerRow& row) { return row.front ? "yes" : "-"; }, columns);
  return columns;
}

std::string answer_list(const Answer& a) {
  std::vector<std::string> items, front;
  for (const AnswerRow& row : a.rows)
    if (row.front) front.push_back(row.name);
  if (a.cost != AnswerCost::none)
    items.push_back(fmt::format("Pareto front: {}. No other method {}.", names_text(front), front_claim(a)));
  items.insert(items.end(), a.sentences.begin(), a.sentences.end());
  std::string text;
  for (const std::string& item : items) text += (text.empty() ? "\n- " : "- ") + markdown_paragraph(item) + "\n";
  return text;
}

std::string answer_text(const Answer& a, std::size_t width, std::size_t lines) {
  const auto paragraph = [&](const std::string& text) { return wrap(printable(text), width) + "\n"; };
  std::string title = cut(printable(a.title), width);
  if (!a.clock.empty()) {
    const bool beside = text_columns(title) + text_columns(a.clock) + 2 <= width;
    title += (beside ? ", " : "\n") + cut(printable(a.clock), width);
  }
  std::string end;
  if (a.cost != AnswerCost::none) end += paragraph(fmt::format("* Pareto front: no method {}.", front_claim(a)));
  for (const std::string& sentence : a.sentences) end += paragraph(sentence);
  for (std::size_t shown = a.rows.size();; --shown) {
    std::string text = title + "\n\n" + rows_text(a, shown, width);
    if (shown < a.rows.size()) text += fmt::format("  and {} more\n", a.rows.size() - shown);
    if (!end.empty()) text += "\n" + end;
    if (shown <= 1 || static_cast<std::size_t>(std::ranges::count(text, '\n')) <= lines) return text;
  }
}

}  // namespace tandem::eval
