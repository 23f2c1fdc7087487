#include <algorithm>
#include <array>
#include <fmt/core.h>
#include <functional>
#include <nlohmann/json.hpp>
#include <set>

#include "engine/common/json.h"
#include "engine/common/version.h"
#include "eval/predict/text.h"
#include "eval/report/markdown.h"
#include "eval/report/table.h"
#include "eval/reproduce/reproduce.h"

namespace tandem::eval {
namespace {

/// "13.83 ms idle", as many per cent where it is a share.
std::string value_text(const Cell& cell, double value) {
  constexpr std::array<const char*, kQuantityNames.size()> kFormats = {
      "{:.1f}\u00a0% idle", "{:.2f}\u00d7", "{:.2f}\u00a0ms idle", "{:.2f}\u00a0ms", "{:.1f}\u00a0%", "{:.1f}\u00a0%"};
  const char* const format = kFormats.at(static_cast<std::size_t>(cell.quantity));
  return fmt::format(fmt::runtime(format), is_share(cell.quantity) ? 100 * value : value);
}

/// "13.83 ms idle [11.9–16.2]": what came out, and its range.
std::string ours_text(const CellOutcome& c) {
  std::string text = figure_text(c.ours, [&](double value) { return value_text(c.cell, value); });
  if (!c.range) return text;
  const double unit = is_share(c.cell.quantity) ? 100 : 1;
  return text + fmt::format("\u00a0[{}]", range_text(unit * c.range->low, unit * c.range->high));
}

std::string error_text(const CellOutcome& c) {
  if (!c.fits) return "does not fit";
  if (!c.ours) return "-";
  const double error = 100 * c.error_of(*c.ours);
  return c.cell.by_difference() ? fmt::format("{:+.1f} points", error) : fmt::format("{:+.0f}\u00a0%", error);
}

std::string verdict(const CellOutcome& c) {
  std::string text = c.fitted         ? "fitted"
                     : c.cell.source  ? "source of the workload"
                     : c.within_aim() ? "predicted, within aim"
                                      : "predicted, off";
  if (c.cell.derived) text += "; published follows from other cells";
  if (c.cell.at_most > 0)
    text += fmt::format("; {} {}", c.below_most() ? "at most" : "NOT at most", value_text(c.cell, c.cell.at_most));
  return text;
}

bool is_predicted(const CellOutcome& c) {
  return !c.fitted && !c.cell.source;
}

bool has_null_model(const CellOutcome& c) {
  return is_predicted(c) && c.cell.null_model > 0;
}

struct Count {
  std::ptrdiff_t all = 0, right = 0;
  std::string text() const { return fmt::format("{} of {}", right, all); }
};

/// Counts the items for which `counts` holds, and those of them that are right.
template <class Item, class Counts, class Right>
Count count(const std::vector<Item>& items, const Counts& counts, const Right& is_right) {
  return {std::ranges::count_if(items, counts),
          std::ranges::count_if(items, [&](const Item& item) { return counts(item) && std::invoke(is_right, item); })};
}

std::vector<std::string> counted(const Reproduction& r) {
  std::set<std::pair<bool, double>> aims;  // of shares in points, of others in per cent
  for (const CellOutcome& c : r.cells)
    if (is_predicted(c)) aims.insert({c.cell.by_difference(), 100 * c.cell.aim});
  const std::string list =
      listed(aims, [](const auto& a) { return fmt::format("{:g} {}", a.second, a.first ? "points of a share" : "%"); });
  std::vector<std::string> lines;
  const auto add = [&](const Count& of, const char* line) {
    if (of.all > 0) lines.push_back(fmt::format(fmt::runtime(line), of.text()));
  };
  const auto cells = [&](bool derived) {
    return count(
        r.cells, [&](const CellOutcome& c) { return is_predicted(c) && c.cell.derived == derived; },
        &CellOutcome::within_aim);
  };
  const auto orders = [&](bool ours, bool source) {
    return count(
        r.orders, [&](const OrderOutcome& o) { return o.order.ours == ours && (ours || o.order.source == source); },
        &OrderOutcome::holds);
  };
  lines.push_back(fmt::format("{} predicted cells are within their aims ({}).", cells(/*derived=*/false).text(), list));
  add(cells(/*derived=*/true), "Apart from them: of cells whose published value follows from others', {}.");
  add(count(r.cells, has_null_model,
            [](const CellOutcome& c) { return std::abs(c.error_of(c.cell.null_model)) <= c.cell.aim; }),
      "Where there is a null model, which simulates nothing: {} of its cells are as near. None of its gains has to be "
      "one.");
  add(count(
          r.cells, [](const CellOutcome& c) { return c.range && !c.cell.source && !c.cell.derived; },
          &CellOutcome::in_range),
      "{} predicted cells have a range that holds the published value. Ranges (in brackets) move the machine's "
      "numbers, except those that were fitted.");
  add(orders(/*ours=*/false, /*source=*/false), "{} predicted orders hold.");
  add(orders(/*ours=*/false, /*source=*/true),
      "Apart from them: of orders that fitted values or the workload's sources decide, {}.");
  add(orders(/*ours=*/true, /*source=*/false),
      "Apart from them: of orders about options that the paper does not have, {}.");
  return lines;
}

/// Whether it holds, and why it is counted apart.
std::string verdict(const OrderOutcome& o) {
  const char* const apart = o.order.ours ? "; an option of ours" : o.order.source ? "; decided by sources" : "";
  return (o.holds ? "yes" : "NO") + std::string(apart);
}

std::string order_text(const OrderOutcome& o) {
  std::size_t run = 0;
  const auto text = [&](const std::optional<double>& value) -> std::string {
    const std::size_t at = run++;
    if (!value) return "does not fit";
    if (!o.order.over.empty()) return fmt::format("{:.2f}\u00d7", *value);
    if (!o.order.by_idle) return fmt::format("{:.0f}", *value);
    return fmt::format("{:.1f} % idle ({:.2f} ms)", 100 * *value, o.idle_ms[at].value_or(0));
  };
  return listed(o.values, text, o.order.by_idle ? " > " : " < ");
}

/// Nothing where the table has no row.
std::string part(const char* title, const Table& table, bool markdown) {
  return table.rows.empty() ? "" : section(title, markdown) + text_of(table, markdown);
}

/// How much longer than the last run's the steps of the others take, where lengths are mixed.
std::string ratios_text(const Reproduction& r, const std::string& clock, bool markdown) {
  Table table;
  table.head = {"run", "beside", "its step over the other's", "95 % interval", "seeds"};
  table.clock = clock;
  for (const OrderOutcome& o : r.orders) {
    for (std::size_t i = 0; i < o.over_last.size(); ++i) {
      const Estimate& ratio = o.over_last[i];
      table.rows.push_back({o.order.runs[i], o.order.runs.back(), fmt::format("{:.3f}", ratio.value),
                            fmt::format("{:.3f} to {:.3f}", ratio.interval.low, ratio.interval.high),
                            std::to_string(ratio.n)});
    }
  }
  return part("Seeded runs, pair by pair", table, markdown);
}

std::string tasks_text(const Reproduction& r, const std::string& clock, bool markdown) {
  Table table;
  table.head = {"run", "predictor ms", "% of the step", "tasks ms", "least possible", "ratio"};
  table.clock = clock;
  for (const RunOutcome& run : r.runs) {
    if (!run.row.refused.empty() || run.tasks.predict_ms <= 0) continue;
    table.rows.push_back({run.name, fmt::format("{:.3f}", run.tasks.predict_ms),
                          fmt::format("{:.2f}", 100 * run.tasks.predict_ms / run.row.step_ms),
                          fmt::format("{:.3f}", run.tasks.tasks_ms), fmt::format("{:.3f}", run.tasks.bound_ms),
                          fmt::format("{:.3f}", run.tasks.tasks_ms / run.tasks.bound_ms)});
  }
  return part("Tasks that CPU and device share, per step", table, markdown);
}

nlohmann::ordered_json or_nulls(const std::vector<std::optional<double>>& figures) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const std::optional<double>& figure : figures) list.push_back(json_or_null(figure));
  return list;
}

std::string lines_of_notes(const std::vector<std::string>& lines, bool markdown) {
  std::string out;
  for (const std::string& line : lines)
    out += (markdown ? markdown_paragraph(line) : wrap(line, terminal_width())) + "\n";
  return markdown ? "\n" + out + "\n" : out;
}

/// Shapes of the runs, each once.
std::string models_of(const Reproduction& r) {
  std::set<std::string> told;
  const auto model_of = [&](const RunOutcome& run) {
    const std::string& own = r.experiment.run(run.name).model;
    const std::string& model = own.empty() ? r.experiment.model : own;
    return told.insert(model).second ? model : "";
  };
  return listed(r.runs, model_of, " and ");
}

}  // namespace

std::string reproduction_text(const Reproduction& r, bool markdown) {
  const Experiment& e = r.experiment;
  std::string text = section(e.title, markdown);
  Table cells;
  const bool null_model = std::ranges::any_of(r.cells, has_null_model);
  cells.head = {"cell", "figure", "published", "ours", "error", "which"};
  if (null_model) cells.head.emplace_back("null model");
  cells.clock = fmt::format("{}, {}", r.clock, models_of(r));
  for (const CellOutcome& c : r.cells) {
    cells.rows.push_back(
        {c.cell.name, c.cell.figure, value_text(c.cell, c.cell.published), ours_text(c), error_text(c), verdict(c)});
    if (!null_model) continue;
    cells.rows.back().push_back(c.cell.null_model > 0
                                    ? fmt::format("{}, {:+.0f}\u00a0%", value_text(c.cell, c.cell.null_model),
                                                  100 * c.error_of(c.cell.null_model))
                                    : "");
  }
  text += text_of(cells, markdown) + lines_of_notes(counted(r), markdown);
  Table orders;
  const bool over = std::ranges::any_of(r.orders, [](const OrderOutcome& o) { return !o.order.over.empty(); });
  orders.head = {"order", "figure",
                 fmt::format("tokens/s{}, slowest first as published, or the device's idle share (a layer)",
                             over ? " or speed-ups" : ""),
                 "holds"};
  orders.clock = cells.clock;
  for (const OrderOutcome& o : r.orders)
    orders.rows.push_back({o.order.says, o.order.figure, order_text(o), verdict(o)});
  text += part("Order", orders, markdown) + ratios_text(r, cells.clock, markdown);
  Table runs;
  runs.head = {"run",    "batch",   "steps",   "step ms",         "step / batch",  "tokens/s",
               "idle %", "idle ms", "a layer", "in layer\u00a00", "KV GB, device", "attended on host"};
  runs.clock = cells.clock;
  for (const RunOutcome& run : r.runs) {
    std::vector<std::string>& row = runs.rows.emplace_back();
    row = {run.name, std::to_string(run.batch), std::to_string(run.steps)};
    if (run.row.refused.empty())
      row.insert(
          row.end(),
          {fmt::format("{:.2f}", run.row.step_ms), fmt::format("{:.3f}", run.row.step_ms / run.batch),
           fmt::format("{:.0f}", run.tokens_per_second()),
           fmt::format("{:.1f}", 100 * run.row.idle_ms / run.row.step_ms), fmt::format("{:.3f}", run.row.idle_ms),
           fmt::format("{:.3f}", run.row.idle_ms / run.layers), fmt::format("{:.3f}", run.row.layer0_idle_ms),
           fmt::format("{:.2f}", double(run.row.device_kv_bytes) * 1e-9),
           fmt::format("{:.0f}", run.row.attended_host)});
    else
      row.emplace_back("does not fit");
    row.resize(runs.head.size(), "-");
  }
  text += part("Runs", runs, markdown) + tasks_text(r, cells.clock, markdown);
  std::vector<std::string> notes;
  for (const FittedValue& f : r.fitted) {
    const FreeParameter& p = *std::ranges::find(e.free, f.name, &FreeParameter::name);
    notes.push_back(fmt::format("{} = {:.4g}: {}; fitted to '{}' ({} reached).", f.name, f.value, p.meaning, p.cell,
                                value_text(e.cell(p.cell), f.reached)));
  }
  for (const CalibratedValue& c : r.calibrated)
    notes.push_back(
        fmt::format("{} = {:.4g}: the CPU's share that is best for '{}' on the batch of seed {}, of {} tried.",
                    c.calibration.name, c.value, c.calibration.run, c.calibration.seed, c.trials.size()));
  for (const RunOutcome& run : r.runs) {
    if (run.method.find('{') == std::string::npos) notes.push_back(fmt::format("{}: {}.", run.name, run.method));
    if (!run.row.refused.empty()) notes.push_back(fmt::format("{}: {}.", run.name, run.row.refused));
  }
  notes.insert(notes.end(), e.notes.begin(), e.notes.end());
  notes.push_back("Published: " + e.source + ".");
  return text + section("What was assumed", markdown) + lines_of_notes(notes, markdown);
}

static void to_json(nlohmann::ordered_json& json, const FittedValue& f) {
  json = {{"name", f.name}, {"value", f.value}, {"reached", f.reached}};
}

static void to_json(nlohmann::ordered_json& json, const CalibratedValue::Trial& t) {
  json = {{"share", t.share}, {"step_ms", t.step_ms}};
}

static void to_json(nlohmann::ordered_json& json, const CalibratedValue& c) {
  json = {{"name", c.calibration.name}, {"run", c.calibration.run}, {"seed", c.calibration.seed}, {"value", c.value}};
  if (!c.trials.empty()) json["tried"] = c.trials;
}

static void to_json(nlohmann::ordered_json& item, const CellOutcome& c) {
  item = {{"name", c.cell.name},
          {"figure", c.cell.figure},
          {"quantity", kQuantityNames[static_cast<std::size_t>(c.cell.quantity)]},
          {"published", c.cell.published}};
  item["ours"] = json_or_null(c.ours);
  if (c.range) {
    item["low"] = c.range->low;
    item["high"] = c.range->high;
    item["widest_range"] = c.widest;
  }
  item["fitted"] = c.fitted;
  if (c.cell.source) item["source_of_the_workload"] = true;
  item["aim"] = c.cell.aim;
  item["within_aim"] = c.within_aim();
  if (c.cell.derived) item["derived"] = true;
  if (c.cell.null_model > 0) item["null_model"] = c.cell.null_model;
  if (c.cell.at_most > 0) item["at_most"] = c.cell.at_most;
}

static void to_json(nlohmann::ordered_json& item, const OrderOutcome& o) {
  item = {{"figure", o.order.figure},
          {"says", o.order.says},
          {"runs", o.order.runs},
          {o.order.by_idle        ? "idle_ratio"
           : o.order.over.empty() ? "tokens_per_second"
                                  : "speed_up",
           or_nulls(o.values)},
          {"holds", o.holds}};
  if (!o.order.over.empty()) item["over"] = o.order.over;
  if (o.order.ours) item["ours"] = true;
  if (o.order.source) item["decided_by_source"] = true;
  if (!o.idle_ms.empty()) item["idle_ms"] = or_nulls(o.idle_ms);
  for (const Estimate& ratio : o.over_last)
    item["step_over_last"].push_back(
        {{"mean", ratio.value}, {"low", ratio.interval.low}, {"high", ratio.interval.high}});
}

static void to_json(nlohmann::ordered_json& item, const RunOutcome& run) {
  item = {
      {"name", run.name}, {"method", run.method}, {"batch", run.batch}, {"steps", run.steps}, {"layers", run.layers}};
  if (!run.row.refused.empty()) {
    item["refused"] = run.row.refused;
    return;
  }
  item["step_ms"] = run.row.step_ms;
  item["idle_ms"] = run.row.idle_ms;
  item["layer0_idle_ms"] = run.row.layer0_idle_ms;
  item["device_kv_bytes"] = run.row.device_kv_bytes;
  item["host_kv_bytes"] = run.row.host_kv_bytes;
  item["attended_host"] = run.row.attended_host;
  if (run.tasks.predict_ms > 0) {
    item["predictor_ms"] = run.tasks.predict_ms;
    item["tasks_ms"] = run.tasks.tasks_ms;
    item["tasks_bound_ms"] = run.tasks.bound_ms;
  }
  if (run.step_ms.size() > 1) item["step_ms_by_seed"] = run.step_ms;
}

std::string reproduction_json(const Reproduction& r) {
  const Experiment& e = r.experiment;
  nlohmann::ordered_json json = {
      {"tandem_version", version()}, {"git_commit", git_commit()}, {"experiment", e.name}, {"title", e.title},
      {"source", e.source},          {"clock", r.clock},           {"model", e.model},     {"workload", e.workload},
      {"fitted", r.fitted}};
  if (!r.calibrated.empty()) json["calibrated"] = r.calibrated;
  json["runs"] = r.runs;
  json["cells"] = r.cells;
  json["orders"] = r.orders;
  return json_text(json, 1) + "\n";
}

}  // namespace tandem::eval
