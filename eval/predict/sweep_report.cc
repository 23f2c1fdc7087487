// Tables of a sweep: one per quantity, machine and batch, a row per method and a column per context. Where only one
// context is asked for, batches are the columns; where there is one batch, too, machines are.
#include <algorithm>
#include <fmt/core.h>
#include <map>
#include <utility>

#include "engine/common/error.h"
#include "eval/predict/row.h"
#include "eval/predict/sweep.h"
#include "eval/report/table.h"

namespace tandem::eval {
namespace {

enum class Axis { context, batch, machine };

std::string batch_text(std::uint32_t batch, const SweepOptions& o) {
  if (batch != kAsManyAsFit) return fmt::format("batch {}", batch);
  return o.tpot_ms > 0 ? fmt::format("as many as fit within {:.4g} ms a step", o.tpot_ms) : "as many as fit";
}

/// A place of the grid, for all methods.
struct Place {
  std::string hardware;
  std::uint32_t batch = 0, context = 0;
};

struct Column {
  std::string head;
  Place place;
};

struct Group {
  std::string clock;
  std::vector<Column> columns;
};

Axis columns_of(const SweepOptions& o) {
  if (o.contexts.size() > 1) return Axis::context;
  if (o.batches.size() > 1) return Axis::batch;
  return o.hardware.size() > 1 ? Axis::machine : Axis::context;
}

/// The tables that a quantity needs.
std::vector<Group> groups_of(const Sweep& s) {
  const SweepOptions& o = s.options;
  std::vector<Group> groups;
  if (columns_of(o) == Axis::machine) {
    Group& all = groups.emplace_back();
    all.clock = fmt::format("simulated: {}, {} x {}, level {}", s.model, batch_text(o.batches[0], o),
                            length_text(o.contexts[0]), o.level.name);
    for (const HardwareProfile& h : o.hardware) all.columns.push_back({h.name, {h.name, o.batches[0], o.contexts[0]}});
    return groups;
  }
  for (const HardwareProfile& h : o.hardware) {
    if (columns_of(o) == Axis::batch) {
      Group& group = groups.emplace_back();
      group.clock = fmt::format("simulated: {}, contexts of {}, {}, level {}", s.model, length_text(o.contexts[0]),
                                h.title, o.level.name);
      for (const std::uint32_t batch : o.batches)
        group.columns.push_back({batch_text(batch, o), {h.name, batch, o.contexts[0]}});
      continue;
    }
    for (const std::uint32_t batch : o.batches) {
      Group& group = groups.emplace_back();
      group.clock =
          fmt::format("simulated: {}, {}, {}, level {}", s.model, batch_text(batch, o), h.title, o.level.name);
      for (const std::uint32_t context : o.contexts)
        group.columns.push_back({length_text(context), {h.name, batch, context}});
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

std::string step_cell(const SweepPoint& p, const Sweep& /*s*/) {
  return step_text(p.row);
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

/// With its clock above it, in Markdown, too: in every head it would be most of the table.
std::string shown(Table table, bool markdown) {
  if (!markdown) return table.text();
  const std::string clock = std::exchange(table.clock, "");
  return note(clock, markdown) + "\n" + table.markdown();
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
        const SweepPoint* point = s.find(column.place.hardware, column.place.batch, column.place.context, method);
        const std::string none = absent(point);
        row.push_back(none.empty() ? cell(*point, s) : none);
      }
    }
  }
  return out;
}

/// The points of a place that have figures, the fastest first.
std::vector<const SweepPoint*> ranked(const Sweep& s, const Place& place) {
  std::vector<const SweepPoint*> points;
  for (const std::string& method : s.options.methods) {
    const SweepPoint* point = s.find(place.hardware, place.batch, place.context, method);
    if (absent(point).empty()) points.push_back(point);
  }
  std::ranges::stable_sort(
      points, [](const SweepPoint* a, const SweepPoint* b) { return a->tokens_per_second() > b->tokens_per_second(); });
  return points;
}

std::string named(const SweepPoint& p, const Sweep& s) {
  return fmt::format("{} {}", p.method, no_break(tokens_cell(p, s)));
}

/// The fastest that loses little, and the fastest of those that are faster of which nobody knows.
void add_by_answers(const Sweep& s, std::uint32_t context, const std::vector<const SweepPoint*>& points,
                    std::vector<std::string>& row) {
  const auto standing = [&](const SweepPoint* p) { return s.options.answers->standing(p->method, context); };
  const auto good = std::ranges::find_if(points, [&](const SweepPoint* p) { return standing(p) == Standing::within; });
  const auto unknown = std::find_if(points.begin(), good, [&](const SweepPoint* p) {
    const bool faster = good == points.end() || p->tokens_per_second() > (*good)->tokens_per_second();
    return faster && standing(p) != Standing::beyond;
  });
  row.push_back(good == points.end() ? "none" : named(**good, s));
  row.push_back(unknown == good ? "-" : fmt::format("{} ({})", named(**unknown, s), to_string(standing(*unknown))));
}

SweepTable fastest(const Sweep& s) {
  constexpr std::size_t kShown = 3;
  Table table;
  table.clock = fmt::format("simulated: {}, level {}", s.model, s.options.level.name);
  table.leading = 3;
  table.head = {"machine", "batch", "context", "fastest, tokens/s"};
  if (s.options.answers) {
    table.head.push_back("fastest that loses at most " + points_text(s.options.answers->margin));
    table.head.emplace_back("faster, but it is not known what it loses");
  } else {
    table.head.insert(table.head.end(), {"second", "third"});
  }
  table.head.emplace_back("fastest that loses nothing");
  for (const HardwareProfile& h : s.options.hardware) {
    for (const std::uint32_t batch : s.options.batches) {
      for (const std::uint32_t context : s.options.contexts) {
        const auto points = ranked(s, {h.name, batch, context});
        std::vector<std::string>& row = table.rows.emplace_back();
        row = {h.name, batch == kAsManyAsFit ? "max" : std::to_string(batch), length_text(context)};
        for (std::size_t i = 0; i < (s.options.answers ? 1 : kShown); ++i)
          row.push_back(i < points.size() ? named(*points[i], s) : "-");
        if (s.options.answers) add_by_answers(s, context, points, row);
        const auto whole = std::ranges::find_if(points, [](const SweepPoint* p) { return p->lossless; });
        const bool asked = std::ranges::any_of(s.points, [](const SweepPoint& p) { return p.lossless; });
        row.push_back(whole != points.end() ? named(**whole, s) : asked ? "none" : "none asked for");
      }
    }
  }
  return {"Fastest", {std::move(table)}};
}

/// "method at 16 x 32K on a machine: why", each sentence once with all its places.
void add_refusals(const Sweep& s, std::vector<std::string>& notes) {
  for (const std::string& method : s.options.methods) {
    std::vector<std::string> told;
    for (const SweepPoint& p : s.points) {
      if (p.method != method || p.row.refused.empty() || p.row.too_large || p.row.too_slow) continue;
      if (std::ranges::find(told, p.row.refused) != told.end()) continue;
      told.push_back(p.row.refused);
      notes.push_back(fmt::format("{}: {}", method, p.row.refused));
    }
  }
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

void add_too_large(const Sweep& s, std::vector<std::string>& notes) {
  add_firsts(s, &PredictedRow::too_large, "nor", notes, [&](const SweepPoint& p) {
    const std::string what = p.batch == kAsManyAsFit ? "one sequence" : batch_text(p.batch, s.options);
    return fmt::format("{} x {} does not fit", what, length_text(p.context));
  });
}

void add_too_slow(const Sweep& s, std::vector<std::string>& notes) {
  add_firsts(s, &PredictedRow::too_slow, "and", notes,
             [](const SweepPoint& p) { return fmt::format("too slow at {}", length_text(p.context)); });
}

std::string without_host_limit(const SweepOptions& o) {
  std::string names;
  for (const HardwareProfile& h : o.hardware)
    if (h.host.memory_gb == 0) names += (names.empty() ? "" : ", ") + h.name;
  return names.empty() ? "" : fmt::format(" Host memory of {} is not known: there it is no limit.", names);
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
  return ended ? fmt::format("at most {}: a + stands where that ended it and more may fit (--most)", most)
               : fmt::format("at most {}", most);
}

void add_how_to_read(const Sweep& s, std::vector<std::string>& notes) {
  const SweepOptions& o = s.options;
  notes.push_back(fmt::format(
      "Step: mean window of the {} steps after the first, of the whole batch; it is what a user waits for a token "
      "(TPOT as servers report it; papers that divide it by the batch give less). Idle: share of the step in which the "
      "device "
      "computes nothing, ms per layer, and the cause that most of it goes to. The schedule of each method with the "
      "costs of this shape, weights and KV in bf16; no tensor is computed. Which blocks and tokens heads choose is "
      "drawn from the workload {} ({}).",
      o.steps - 1, s.workload.name, s.workload.source));
  if (std::ranges::find(o.batches, kAsManyAsFit) != o.batches.end())
    notes.push_back(
        fmt::format("As many as fit: the number in brackets decode together, {}; device memory without the weights and "
                    "5 %, and host memory without 5 %, are what they may fill.{}{}",
                    ended_by_most(s), without_host_limit(o), within_pace(o)));
  std::string beyond;
  for (const std::uint32_t context : o.contexts)
    if (context + o.steps > s.positions) beyond += (beyond.empty() ? "" : ", ") + length_text(context);
  if (!beyond.empty())
    notes.push_back(
        fmt::format("{} has {} positions: contexts of {} are costed as those of the same shape with scaled "
                    "RoPE, which takes no time of its own.",
                    s.model, s.positions, beyond));
  if (s.options.answers)
    for (std::string& sentence : answers_notes(*s.options.answers, s.model, o.contexts))
      notes.push_back(std::move(sentence));
  else
    notes.emplace_back(
        "Speed alone: how much a method loses is what `tandem compare` and `tandem eval` measure, at budgets of its "
        "own; "
        "with --accuracy their figures choose here.");
  notes.push_back(fmt::format(
      "Launches are priced as the profile says (captured graphs where it has a time for them), and prefill's "
      "attention at the rate that it has there. Level {}: {}.{}",
      o.level.name, o.level.meaning, o.level.this_engine ? "" : " `tandem validate` has the errors."));
  notes.emplace_back(kPrefillsElsewhere);
}

/// "host.dram_gbps for hgca, scoutattention; ...", by the number of points.
void add_ranges(const Sweep& s, std::vector<std::string>& notes) {
  std::map<std::string, std::vector<std::string>> methods;  // by field
  for (const SweepPoint& p : s.points) {
    if (p.row.widest_range.empty()) continue;
    std::vector<std::string>& names = methods[p.row.widest_range];
    const std::string name = p.method.substr(0, p.method.find(':'));
    if (std::ranges::find(names, name) == names.end()) names.push_back(name);
  }
  if (methods.empty()) return;
  std::vector<std::pair<std::string, std::vector<std::string>>> fields(methods.begin(), methods.end());
  std::ranges::stable_sort(fields, [](const auto& a, const auto& b) { return a.second.size() > b.second.size(); });
  std::string text;
  for (const auto& [field, names] : fields)
    text += fmt::format("{}{} for {}", text.empty() ? "" : "; ", field, join_names(names));
  notes.push_back(fmt::format("{} Most of the range is due to: {}.", kHowRangesAre, text));
}

void add_sampling(const Sweep& s, std::vector<std::string>& notes) {
  const SweepPoint* worst = nullptr;
  for (const SweepPoint& p : s.points)
    if (p.row.drawn_sequences > 0 && (worst == nullptr || p.row.sampling_error > worst->row.sampling_error)) worst = &p;
  if (worst == nullptr) return;
  notes.push_back(sampling_text(worst->row, fmt::format("{} at {} x {} on {}", worst->method, worst->sequences,
                                                        length_text(worst->context), worst->hardware)) +
                  " --sample all draws every sequence's.");
}

/// "Attends everything: quest at 1K, 2K; ..."
void add_whole_contexts(const Sweep& s, std::vector<std::string>& notes) {
  std::string text;
  for (const std::string& method : s.options.methods) {
    std::string at;
    for (const std::uint32_t context : s.options.contexts)
      if (std::ranges::any_of(s.points, [&](const SweepPoint& p) {
            return p.method == method && p.context == context && attends_everything(p.row, context, s.options.steps);
          }))
        at += (at.empty() ? "" : ", ") + length_text(context);
    if (!at.empty()) text += fmt::format("{}{} at {}", text.empty() ? "" : "; ", method, at);
  }
  if (!text.empty()) notes.push_back(fmt::format("Attends everything: {}. {}", text, kAttendsEverything));
}

std::string all_figures(const Sweep& s) {
  Table table;
  table.head = {"machine", "batch", "context", "method"};
  RowColumns columns;
  for (const SweepPoint& p : s.points) columns.add(p.row);
  for (std::string& name : row_heads(columns)) table.head.push_back(std::move(name));
  table.leading = 4;
  table.clock = fmt::format("simulated: {}, level {}", s.model, s.options.level.name);
  for (const SweepPoint& p : s.points) {
    std::vector<std::string>& row = table.rows.emplace_back();
    row = {p.hardware, p.batch == kAsManyAsFit ? "max: " + sequences_text(p, s) : std::to_string(p.batch),
           length_text(p.context), p.method};
    for (std::string& cell : row_cells(p.row, s.layers, p.sequences, columns)) row.push_back(std::move(cell));
  }
  return section("All figures", /*markdown=*/true) + shown(std::move(table), /*markdown=*/true);
}

}  // namespace

std::vector<SweepTable> sweep_tables(const Sweep& s) {
  std::vector<SweepTable> tables = {quantity(s, "Tokens/s", tokens_cell), quantity(s, "Step, ms (TPOT)", step_cell),
                                    quantity(s, "Idle: share of the step, ms per layer, what for", idle_cell)};
  if (s.options.answers) tables.push_back({"What answers lose", {answers_table(*s.options.answers)}});
  tables.push_back(fastest(s));
  return tables;
}

std::vector<std::string> sweep_notes(const Sweep& s) {
  std::vector<std::string> notes;
  add_how_to_read(s, notes);
  add_ranges(s, notes);
  add_sampling(s, notes);
  add_whole_contexts(s, notes);
  add_too_large(s, notes);
  add_too_slow(s, notes);
  add_refusals(s, notes);
  return notes;
}

std::string sweep_text(const Sweep& s, bool markdown) {
  std::string text;
  if (!s.complete()) text += note(fmt::format("Not finished: {} points are here.", s.points.size()), markdown);
  for (SweepTable& part : sweep_tables(s)) {
    text += section(part.title, markdown);
    for (std::size_t i = 0; i < part.tables.size(); ++i)
      text += (i > 0 && !markdown ? "\n" : "") + shown(std::move(part.tables[i]), markdown);
  }
  if (!markdown) text += "\n";
  for (const std::string& sentence : sweep_notes(s)) text += note(sentence, markdown);
  if (markdown) text += all_figures(s);
  return text;
}

}  // namespace tandem::eval
