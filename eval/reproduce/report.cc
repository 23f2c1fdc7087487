#include <algorithm>
#include <fmt/core.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>
#include <set>

#include "engine/common/json.h"
#include "engine/common/version.h"
#include "eval/report/markdown.h"
#include "eval/report/table.h"
#include "eval/reproduce/reproduce.h"

namespace tandem::eval {
namespace {

std::string value_text(const Cell& cell, double value) {
  switch (cell.quantity) {
    case Quantity::idle_ratio:
      return fmt::format("{:.1f}\u00a0% idle", 100 * value);
    case Quantity::speed_up:
      return fmt::format("{:.2f}\u00d7", value);
    case Quantity::idle_ms:
      return fmt::format("{:.2f}\u00a0ms idle", value);
    case Quantity::tpot_ms:
      return fmt::format("{:.2f}\u00a0ms", value);
    case Quantity::selection_share:
    case Quantity::predictor_share:
      return fmt::format("{:.1f}\u00a0%", 100 * value);
  }
  return "";
}

/// "13.83 ms idle [11.9–16.2]": what came out, and its range.
std::string ours_text(const CellOutcome& c) {
  std::string text = figure_text(c.ours, [&](double value) { return value_text(c.cell, value); });
  if (!c.range) return text;
  const Quantity q = c.cell.quantity;
  const bool plain = q == Quantity::speed_up || q == Quantity::idle_ms || q == Quantity::tpot_ms;
  const double unit = plain ? 1 : 100;
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

struct Count {
  std::size_t all = 0, right = 0;
  void add(bool is_right) {
    ++all;
    right += is_right ? 1 : 0;
  }
  std::string text() const { return fmt::format("{} of {}", right, all); }
};

/// Of predicted cells how many are within their aims, which are said.
struct CellCounts {
  Count own, derived, null_model;  // derived: those whose published value follows from others'
  std::string aims;

  explicit CellCounts(const Reproduction& r) {
    std::set<double> points, ratios;
    for (const CellOutcome& c : r.cells) {
      if (c.fitted || c.cell.source) continue;
      (c.cell.derived ? derived : own).add(c.within_aim());
      (c.cell.by_difference() ? points : ratios).insert(100 * c.cell.aim);
      if (c.cell.null_model > 0) null_model.add(std::abs(c.error_of(c.cell.null_model)) <= c.cell.aim);
    }
    const auto list = [&](const std::set<double>& of, const char* unit) {
      for (const double aim : of) aims += fmt::format("{}{:g} {}", aims.empty() ? "" : ", ", aim, unit);
    };
    list(ratios, "%");
    list(points, "points of a share");
  }
};

struct OrderCounts {
  Count predicted, source, ours;
  explicit OrderCounts(const Reproduction& r) {
    for (const OrderOutcome& o : r.orders) (o.order.ours ? ours : o.order.source ? source : predicted).add(o.holds);
  }
};

std::string counted(const Reproduction& r) {
  const CellCounts cells(r);
  std::string text = fmt::format("{} predicted cells are within their aims ({}).\n", cells.own.text(), cells.aims);
  if (cells.derived.all > 0)
    text += fmt::format("Apart from them: of cells whose published value follows from others', {}.\n",
                        cells.derived.text());
  if (cells.null_model.all > 0)
    text += fmt::format(
        "Where there is a null model, which simulates nothing: {} of its cells are as near. None of its gains has to "
        "be one.\n",
        cells.null_model.text());
  Count held;
  for (const CellOutcome& c : r.cells)
    if (c.range && !c.cell.source && !c.cell.derived) held.add(c.in_range());
  if (held.all > 0)
    text += fmt::format(
        "{} predicted cells have a range that holds the published value. Ranges (in brackets) move the machine's "
        "numbers, except those that were fitted.\n",
        held.text());
  const OrderCounts orders(r);
  if (orders.predicted.all > 0) text += fmt::format("{} predicted orders hold.\n", orders.predicted.text());
  if (orders.source.all > 0)
    text += fmt::format("Apart from them: of orders that fitted values or the workload's sources decide, {}.\n",
                        orders.source.text());
  if (orders.ours.all > 0)
    text +=
        fmt::format("Apart from them: of orders about options that the paper does not have, {}.\n", orders.ours.text());
  return text;
}

/// Whether it holds, and why it is counted apart.
std::string verdict(const OrderOutcome& o) {
  const char* const apart = o.order.ours ? "; an option of ours" : o.order.source ? "; decided by sources" : "";
  return (o.holds ? "yes" : "NO") + std::string(apart);
}

std::string order_text(const OrderOutcome& o) {
  std::string text;
  for (std::size_t i = 0; i < o.values.size(); ++i) {
    if (!text.empty()) text += o.order.by_idle ? " > " : " < ";
    const std::optional<double> value = o.values[i];
    if (!value)
      text += "does not fit";
    else if (o.order.by_idle)
      text += fmt::format("{:.1f} % idle ({:.2f} ms)", 100 * *value, o.idle_ms[i].value_or(0));
    else
      text += fmt::format("{:.0f}", *value);
  }
  return text;
}

/// How much longer than the last run's the steps of the others take, where lengths are mixed.
std::string ratios_text(const Reproduction& r, const std::string& clock, bool markdown) {
  Table table;
  table.head = {"run", "beside", "its step over the other's", "95 % interval", "seeds"};
  table.clock = clock;
  for (const OrderOutcome& o : r.orders) {
    for (std::size_t i = 0; i < o.over_last.size(); ++i) {
      const OrderOutcome::Ratio& ratio = o.over_last[i];
      table.rows.push_back({o.order.runs[i], o.order.runs.back(), fmt::format("{:.3f}", ratio.mean),
                            fmt::format("{:.3f} to {:.3f}", ratio.interval.low, ratio.interval.high),
                            std::to_string(r.experiment.run(o.order.runs[i]).mixed.seeds)});
    }
  }
  return table.rows.empty() ? "" : section("Seeded runs, pair by pair", markdown) + text_of(table, markdown);
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
  return table.rows.empty() ? ""
                            : section("Tasks that CPU and device share, per step", markdown) + text_of(table, markdown);
}

nlohmann::ordered_json or_nulls(const std::vector<std::optional<double>>& figures) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const std::optional<double>& figure : figures) list.push_back(json_or_null(figure));
  return list;
}

/// A paragraph of lines that each end.
std::string lines_of_notes(const std::string& text, bool markdown) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    const std::string line = text.substr(at, end - at);
    out += (markdown ? markdown_paragraph(line) : wrap(line, terminal_width())) + "\n";
    at = end + 1;
  }
  return markdown ? "\n" + out + "\n" : out;
}

/// Shapes of the runs, each once.
std::vector<std::string> models_of(const Reproduction& r) {
  std::vector<std::string> models;
  for (const RunOutcome& run : r.runs) {
    const std::string& own = r.experiment.run(run.name).model;
    const std::string& model = own.empty() ? r.experiment.model : own;
    if (std::ranges::find(models, model) == models.end()) models.push_back(model);
  }
  return models;
}

}  // namespace

std::string reproduction_text(const Reproduction& r, bool markdown) {
  const Experiment& e = r.experiment;
  std::string text = section(e.title, markdown);
  Table cells;
  const bool null_model = CellCounts(r).null_model.all > 0;
  cells.head = {"cell", "figure", "published", "ours", "error", "which"};
  if (null_model) cells.head.emplace_back("null model");
  cells.clock = fmt::format("{}, {}", r.clock, fmt::join(models_of(r), " and "));
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
  if (!r.orders.empty()) {
    Table orders;
    orders.head = {"order", "figure", "tokens/s, slowest first as published, or the device's idle share (a layer)",
                   "holds"};
    orders.clock = cells.clock;
    for (const OrderOutcome& o : r.orders)
      orders.rows.push_back({o.order.says, o.order.figure, order_text(o), verdict(o)});
    text += section("Order", markdown) + text_of(orders, markdown) + ratios_text(r, cells.clock, markdown);
  }
  Table runs;
  runs.head = {"run",    "batch",   "steps",   "step ms",         "step / batch",  "tokens/s",
               "idle %", "idle ms", "a layer", "in layer\u00a00", "KV GB, device", "attended on host"};
  runs.clock = cells.clock;
  for (const RunOutcome& run : r.runs) {
    if (!run.row.refused.empty()) {
      runs.rows.push_back({run.name, std::to_string(run.batch), std::to_string(e.run(run.name).steps), "does not fit",
                           "-", "-", "-", "-", "-", "-", "-", "-"});
      continue;
    }
    runs.rows.push_back(
        {run.name, std::to_string(run.batch), std::to_string(e.run(run.name).steps),
         fmt::format("{:.2f}", run.row.step_ms), fmt::format("{:.3f}", run.row.step_ms / run.batch),
         fmt::format("{:.0f}", run.tokens_per_second()), fmt::format("{:.1f}", 100 * run.row.idle_ms / run.row.step_ms),
         fmt::format("{:.3f}", run.row.idle_ms), fmt::format("{:.3f}", run.row.idle_ms / run.layers),
         fmt::format("{:.3f}", run.row.layer0_idle_ms), fmt::format("{:.2f}", double(run.row.device_kv_bytes) * 1e-9),
         fmt::format("{:.0f}", run.row.attended_host)});
  }
  text += section("Runs", markdown) + text_of(runs, markdown) + tasks_text(r, cells.clock, markdown);
  std::string notes;
  for (const FittedValue& f : r.fitted) {
    for (const FreeParameter& p : e.free)
      if (p.name == f.name)
        notes += fmt::format("{} = {:.4g}: {}; fitted to '{}' ({} reached).\n", f.name, f.value, p.meaning, p.cell,
                             value_text(e.cell(p.cell), f.reached));
  }
  for (const CalibratedValue& c : r.calibrated)
    notes += fmt::format("{} = {:.4g}: the CPU's share that is best for '{}' on the batch of seed {}, of {} tried.\n",
                         c.calibration.name, c.value, c.calibration.run, c.calibration.seed, c.trials.size());
  for (const RunOutcome& run : r.runs) {
    if (run.method.find('{') == std::string::npos) notes += fmt::format("{}: {}.\n", run.name, run.method);
    if (!run.row.refused.empty()) notes += fmt::format("{}: {}.\n", run.name, run.row.refused);
  }
  for (const std::string& line : e.notes) notes += line + "\n";
  notes += "Published: " + e.source + ".\n";
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
          {o.order.by_idle ? "idle_ratio" : "tokens_per_second", or_nulls(o.values)},
          {"holds", o.holds}};
  if (o.order.ours) item["ours"] = true;
  if (o.order.source) item["decided_by_source"] = true;
  if (!o.idle_ms.empty()) item["idle_ms"] = or_nulls(o.idle_ms);
  for (const OrderOutcome::Ratio& ratio : o.over_last)
    item["step_over_last"].push_back(
        {{"mean", ratio.mean}, {"low", ratio.interval.low}, {"high", ratio.interval.high}});
}

std::string reproduction_json(const Reproduction& r) {
  const Experiment& e = r.experiment;
  nlohmann::ordered_json json;
  json["tandem_version"] = version();
  json["git_commit"] = git_commit();
  json["experiment"] = r.experiment.name;
  json["title"] = r.experiment.title;
  json["source"] = r.experiment.source;
  json["clock"] = r.clock;
  json["model"] = r.experiment.model;
  json["workload"] = r.experiment.workload;
  json["fitted"] = r.fitted;
  if (!r.calibrated.empty()) json["calibrated"] = r.calibrated;
  json["runs"] = nlohmann::ordered_json::array();
  for (const RunOutcome& run : r.runs) {
    nlohmann::ordered_json item{
        {"name", run.name}, {"method", run.method}, {"batch", run.batch}, {"steps", e.run(run.name).steps}};
    if (run.layers > 0) item["layers"] = run.layers;
    if (run.row.refused.empty()) {
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
    } else {
      item["refused"] = run.row.refused;
    }
    json["runs"].push_back(std::move(item));
  }
  json["cells"] = r.cells;
  json["orders"] = r.orders;
  return json_text(json, 1) + "\n";
}

}  // namespace tandem::eval
