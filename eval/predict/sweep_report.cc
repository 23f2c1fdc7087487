// Tables of a sweep: one per quantity, machine and batch, a row per method and a column per context. Where only one
// context is asked for, batches are the columns; where there is one batch, too, machines are.
#include <algorithm>
#include <fmt/core.h>
#include <functional>
#include <map>
#include <set>
#include <utility>

#include "engine/common/error.h"
#include "eval/predict/row.h"
#include "eval/predict/sweep.h"
#include "eval/predict/text.h"

namespace tandem::eval {
namespace {

std::string batch_text(std::uint32_t batch, const SweepOptions& o) {
  if (batch != kAsManyAsFit) return fmt::format("batch {}", batch);
  return o.tpot_ms > 0 ? fmt::format("as many as fit within {:.4g} ms a step", o.tpot_ms) : "as many as fit";
}

/// The points of a place of the grid, of all methods.
struct Column {
  std::string head, hardware;
  std::uint32_t batch = 0, context = 0;
};

struct Group {
  std::string clock;
  std::vector<Column> columns;
};

/// The tables that a quantity needs.
std::vector<Group> groups_of(const Sweep& s) {
  const SweepOptions& o = s.options;
  const bool by_batch = o.contexts.size() == 1 && o.batches.size() > 1,
             by_machine = o.contexts.size() == 1 && o.batches.size() == 1 && o.hardware.size() > 1;
  std::vector<Group> groups;
  for (const HardwareProfile& h : o.hardware) {
    for (const std::uint32_t batch : o.batches) {
      for (const std::uint32_t context : o.contexts) {
        const std::string in_batch = batch_text(batch, o), of_length = length_text(context);
        std::string where = fmt::format("{}, {}", in_batch, h.title), head = of_length;
        bool begins = context == o.contexts.front();
        if (by_batch) {
          where = fmt::format("contexts of {}, {}", of_length, h.title);
          head = in_batch;
          begins = batch == o.batches.front();
        } else if (by_machine) {
          where = fmt::format("{} x {}", in_batch, of_length);
          head = h.name;
          begins = groups.empty();
        }
        if (begins) groups.push_back({fmt::format("simulated: {}, {}, level {}", s.model, where, o.level.name), {}});
        groups.back().columns.push_back({head, h.name, batch, context});
      }
    }
  }
  return groups;
}

/// The cell of a point without figures; empty: it has them.
std::string absent(const SweepPoint* point) {
  return point == nullptr ? "not run" : why_absent(point->row);
}

/// On one line of a cell.
std::string no_break(std::string text) {
  for (std::size_t at; (at = text.find(' ')) != std::string::npos;) text.replace(at, 1, "\u00a0");
  return text;
}

/// "256+" where --most ended it.
std::string sequences_text(const SweepPoint& p, const Sweep& s) {
  return fmt::format("{}{}", p.sequences, p.sequences >= s.options.most_sequences ? "+" : "");
}

std::string tokens_cell(const SweepPoint& p, const Sweep& s) {
  const double rate = p.tokens_per_second();
  std::string text = fmt::format("{:.{}f}", rate, rate < 9.95 ? 1 : 0);
  if (p.batch == kAsManyAsFit) text += fmt::format(" ({})", sequences_text(p, s));
  return text;
}

/// Share of the step, ms per layer, and what most of it is for where it is worth a word.
std::string idle_cell(const SweepPoint& p, const Sweep& s) {
  constexpr double kWorthAWord = 0.5;
  const double percent = 100 * p.row.idle_ms / p.row.step_ms;
  std::string text = fmt::format("{:.0f}\u00a0% {:.2f}", percent, p.row.idle_ms / s.layers);
  const std::optional<Cause> cause = largest_cause(p.row);
  if (cause && percent >= kWorthAWord) text += fmt::format(" {}", no_break(to_string(*cause)));
  return text;
}

template <class Cell>
SweepTable quantity(const Sweep& s, const std::string& title, const Cell& cell) {
  SweepTable out{title, {}};
  for (const Group& group : groups_of(s)) {
    Table& table = out.tables.emplace_back();
    table.clock = group.clock;
    table.head = {"method"};
    for (const Column& column : group.columns) table.head.push_back(column.head);
    for (const std::string& method : s.options.methods) {
      std::vector<std::string>& row = table.rows.emplace_back();
      row.push_back(method);
      for (const Column& column : group.columns) {
        const SweepPoint* point = s.find(column.hardware, column.batch, column.context, method);
        const std::string none = absent(point);
        row.push_back(none.empty() ? cell(*point, s) : none);
      }
    }
  }
  return out;
}

/// The points of a place that have figures, the fastest first.
std::vector<const SweepPoint*> ranked(const Sweep& s, const Column& at) {
  std::vector<const SweepPoint*> points;
  for (const std::string& method : s.options.methods) {
    const SweepPoint* point = s.find(at.hardware, at.batch, at.context, method);
    if (absent(point).empty()) points.push_back(point);
  }
  std::ranges::stable_sort(points, std::greater(), &SweepPoint::tokens_per_second);
  return points;
}

std::string named(const SweepPoint& p, const Sweep& s) {
  return fmt::format("{} {}", p.method, no_break(tokens_cell(p, s)));
}

SweepTable fastest(const Sweep& s) {
  Table table;
  table.clock = fmt::format("simulated: {}, level {}", s.model, s.options.level.name);
  const bool asked = std::ranges::any_of(s.points, &SweepPoint::lossless);
  for (const Group& group : groups_of(s)) {
    for (const Column& at : group.columns) {
      const auto points = ranked(s, at);
      const auto nth = [&](std::size_t i) { return i < points.size() ? named(*points[i], s) : "-"; };
      HeadedCells cells = {{"fastest, tokens/s", nth(0)}, {"second", nth(1)}, {"third", nth(2)}};
      const auto whole = std::ranges::find_if(points, &SweepPoint::lossless);
      cells.emplace_back("fastest that loses nothing", whole != points.end() ? named(**whole, s)
                                                       : asked               ? "none"
                                                                             : "none asked for");
      add_row(table, {{"machine", at.hardware}, {"batch", batch_name(at.batch)}, {"context", length_text(at.context)}},
              cells);
    }
  }
  return {"Fastest", {std::move(table)}};
}

/// Each reason of a method once.
void add_refusals(const Sweep& s, std::vector<std::string>& notes) {
  std::set<std::pair<std::string, std::string>> told;
  for (const std::string& method : s.options.methods)
    for (const SweepPoint& p : s.points)
      if (p.method == method && why_absent(p.row) == "refused" && told.insert({method, p.row.refused}).second)
        notes.push_back(fmt::format("{}: {}", method, p.row.refused));
}

/// The first point of each machine that was refused for a reason, and how many others were.
template <class Say>
void add_firsts(const Sweep& s, bool PredictedRow::*reason, const char* others_too, std::vector<std::string>& notes,
                const Say& say) {
  for (const HardwareProfile& h : s.options.hardware) {
    const SweepPoint* first = nullptr;
    std::size_t count = 0;
    for (const SweepPoint& p : s.points)
      if (p.hardware == h.name && p.row.*reason && count++ == 0) first = &p;
    if (first == nullptr) continue;
    const std::string others =
        count > 1 ? fmt::format("; {} {} of this machine", others_too, counted(count - 1, "other point")) : "";
    notes.push_back(
        fmt::format("{}: {} on {}, since {}{}.", first->method, say(*first), h.name, first->row.refused, others));
  }
}

std::string within_pace(const SweepOptions& o) {
  if (o.tpot_ms == 0) return "";
  return fmt::format(
      " Of these, the most whose step takes no longer than {:.4g} ms (--tpot); too slow: one takes "
      "longer. A step of more sequences is taken to be no shorter.",
      o.tpot_ms);
}

std::string ended_by_most(const Sweep& s) {
  const std::uint32_t most = s.options.most_sequences;
  const bool ended = std::ranges::any_of(
      s.points, [&](const SweepPoint& p) { return p.batch == kAsManyAsFit && p.sequences >= most; });
  return fmt::format("at most {}{}", most, ended ? ": a + stands where that ended it and more may fit (--most)" : "");
}

void add_how_to_read(const Sweep& s, std::vector<std::string>& notes) {
  const SweepOptions& o = s.options;
  notes.push_back(fmt::format(
      "Step: mean window of the {} steps after the first, of the whole batch; it is what a user waits for a token "
      "(TPOT as servers report it; papers that divide it by the batch give less). Idle: share of the step in which the "
      "device computes nothing, ms per layer, and the cause that most of it goes to. The schedule of each method with "
      "the costs of this shape, {}; no tensor is computed. Which blocks and tokens heads choose is "
      "drawn from the workload {} ({}).",
      o.steps - 1, precision_text(o.precision), s.workload.name, s.workload.source));
  if (o.precision != Precision{}) notes.emplace_back(kHowBitsCount);
  const std::string unlimited =
      listed(o.hardware, [](const HardwareProfile& h) { return h.host.memory_gb == 0 ? h.name : ""; });
  if (std::ranges::find(o.batches, kAsManyAsFit) != o.batches.end())
    notes.push_back(fmt::format(
        "As many as fit: the number in brackets decode together, {}; device memory without the weights and "
        "5 %, and host memory without 5 %, are what they may fill.{}{}",
        ended_by_most(s),
        unlimited.empty() ? "" : fmt::format(" Host memory of {} is not known: there it is no limit.", unlimited),
        within_pace(o)));
  const std::string beyond = listed(
      o.contexts, [&](std::uint32_t context) { return context + o.steps > s.positions ? length_text(context) : ""; });
  if (!beyond.empty())
    notes.push_back(
        fmt::format("{} has {} positions: contexts of {} are costed as those of the same shape with scaled "
                    "RoPE, which takes no time of its own.",
                    s.model, s.positions, beyond));
  notes.emplace_back(
      "Speed alone: how much a method loses is what `tandem compare` and `tandem eval` measure, at budgets of its own; "
      "`tandem advise` recommends a method by both.");
  notes.push_back(fmt::format(
      "Launches are priced as the profile says (captured graphs where it has a time for them), and prefill's "
      "attention at the rate that it has there. Level {}: {}.{}",
      o.level.name, o.level.meaning, o.level.control.empty() ? " `tandem validate` has the errors." : ""));
  notes.emplace_back(kPrefillsElsewhere);
}

/// "host.dram_gbps for hgca, scoutattention; ...", by the number of methods.
std::string ranges_note(const Sweep& s) {
  std::map<std::string, std::vector<std::string>> methods;  // by field
  for (const SweepPoint& p : s.points) {
    if (p.row.widest_range.empty()) continue;
    std::vector<std::string>& names = methods[p.row.widest_range];
    const std::string name = p.method.substr(0, p.method.find(':'));
    if (std::ranges::find(names, name) == names.end()) names.push_back(name);
  }
  if (methods.empty()) return "";
  std::vector<std::pair<std::string, std::vector<std::string>>> fields(methods.begin(), methods.end());
  std::ranges::stable_sort(fields, std::greater(), [](const auto& field) { return field.second.size(); });
  const auto text = [](const auto& f) { return f.first + " for " + join_names(f.second); };
  return fmt::format("{} Most of the range is due to: {}.", kHowRangesAre, listed(fields, text, "; "));
}

std::string sampling_note(const Sweep& s) {
  const auto worst =
      std::ranges::max_element(s.points, {}, [](const SweepPoint& p) { return sampling_error_of(p.row); });
  if (worst == s.points.end() || worst->row.drawn_sequences == 0) return "";
  return sampling_text(worst->row, fmt::format("{} at {} x {} on {}", worst->method, worst->sequences,
                                               length_text(worst->context), worst->hardware)) +
         " --sample all draws every sequence's.";
}

/// "Attends everything: quest at 1K, 2K; ..."
std::string whole_contexts_note(const Sweep& s) {
  const SweepOptions& o = s.options;
  const auto whole_at = [&](const std::string& method, std::uint32_t context) {
    return std::ranges::any_of(s.points, [&](const SweepPoint& p) {
      return p.method == method && p.context == context && attends_everything(p.row, context, o.steps);
    });
  };
  const auto of_method = [&](const std::string& method) {
    const std::string at =
        listed(o.contexts, [&](std::uint32_t c) { return whole_at(method, c) ? length_text(c) : ""; });
    return at.empty() ? "" : fmt::format("{} at {}", method, at);
  };
  const std::string text = listed(o.methods, of_method, "; ");
  return text.empty() ? "" : fmt::format("Attends everything: {}. {}", text, kAttendsEverything);
}

std::string all_figures(const Sweep& s) {
  std::vector<NamedRow> rows;
  rows.reserve(s.points.size());
  for (const SweepPoint& p : s.points)
    rows.push_back({{{"machine", p.hardware},
                     {"batch", batch_name(p.batch) + (p.batch == kAsManyAsFit ? ": " + sequences_text(p, s) : "")},
                     {"context", length_text(p.context)},
                     {"method", p.method}},
                    p.row,
                    p.sequences});
  Table table = figures_table(rows, s.layers);
  table.clock = fmt::format("simulated: {}, level {}", s.model, s.options.level.name);
  return section("All figures", /*markdown=*/true) + table.markdown();
}

}  // namespace

std::vector<SweepTable> sweep_tables(const Sweep& s) {
  std::vector<SweepTable> tables = {
      quantity(s, "Tokens/s", tokens_cell),
      quantity(s, "Step, ms (TPOT)", [](const SweepPoint& p, const Sweep&) { return step_text(p.row); }),
      quantity(s, "Idle: share of the step, ms per layer, what for", idle_cell)};
  tables.push_back(fastest(s));
  return tables;
}

std::vector<std::string> sweep_notes(const Sweep& s) {
  std::vector<std::string> notes;
  add_how_to_read(s, notes);
  for (const std::string& sentence : {ranges_note(s), sampling_note(s), whole_contexts_note(s)})
    if (!sentence.empty()) notes.push_back(sentence);
  add_firsts(s, &PredictedRow::too_large, "nor", notes, [&](const SweepPoint& p) {
    const std::string what = p.batch == kAsManyAsFit ? "one sequence" : batch_text(p.batch, s.options);
    return fmt::format("{} x {} does not fit", what, length_text(p.context));
  });
  add_firsts(s, &PredictedRow::too_slow, "and", notes,
             [](const SweepPoint& p) { return fmt::format("too slow at {}", length_text(p.context)); });
  add_refusals(s, notes);
  return notes;
}

std::string sweep_text(const Sweep& s, bool markdown) {
  std::string text;
  if (!s.complete()) text += note(fmt::format("Not finished: {} points are here.", s.points.size()), markdown);
  for (const SweepTable& part : sweep_tables(s)) {
    text += section(part.title, markdown);
    for (std::size_t i = 0; i < part.tables.size(); ++i)
      text += (i > 0 ? "\n" : "") + text_of(part.tables[i], markdown);
  }
  if (!markdown) text += "\n";
  for (const std::string& sentence : sweep_notes(s)) text += note(sentence, markdown);
  if (markdown) text += all_figures(s);
  return text;
}

}  // namespace tandem::eval
