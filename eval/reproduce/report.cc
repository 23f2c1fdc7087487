#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "engine/common/version.h"
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

std::string error_text(const CellOutcome& c) {
  if (!c.known) return "does not fit";
  return is_share(c.cell.quantity) ? fmt::format("{:+.1f} points", 100 * c.error())
                                   : fmt::format("{:+.0f}\u00a0%", 100 * c.error());
}

std::string verdict(const CellOutcome& c) {
  std::string text = c.fitted         ? "fitted"
                     : c.cell.source  ? "source of the workload"
                     : c.within_aim() ? "predicted, within aim"
                                      : "predicted, off";
  if (c.cell.at_most > 0)
    text += fmt::format("; {} {}", c.below_most() ? "at most" : "NOT at most", value_text(c.cell, c.cell.at_most));
  return text;
}

/// Of cells that are predicted.
std::string counted(const Reproduction& r) {
  std::size_t predicted = 0, within = 0;
  for (const CellOutcome& c : r.cells) {
    if (c.fitted || c.cell.source) continue;
    ++predicted;
    within += c.within_aim() ? 1 : 0;
  }
  return fmt::format("{} of {} predicted cells are within their aims.\n", within, predicted);
}

std::string order_text(const OrderOutcome& o) {
  std::string text;
  for (const double value : o.values) {
    if (!text.empty()) text += o.order.by_idle ? " > " : " < ";
    text += value <= 0        ? "does not fit"
            : o.order.by_idle ? fmt::format("{:.1f} % idle", 100 * value)
                              : fmt::format("{:.0f}", value);
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

}  // namespace

std::string reproduction_text(const Reproduction& r, bool markdown) {
  const Experiment& e = r.experiment;
  std::string text = section(e.title, markdown);
  Table cells;
  cells.head = {"cell", "figure", "published", "ours", "error", "which"};
  cells.clock = fmt::format("{}, {}", r.clock, e.model);
  for (const CellOutcome& c : r.cells)
    cells.rows.push_back({c.cell.name, c.cell.figure, value_text(c.cell, c.cell.published),
                          c.known ? value_text(c.cell, c.ours) : "-", error_text(c), verdict(c)});
  text += text_of(cells, markdown) + note(counted(r), markdown);
  if (!r.orders.empty()) {
    Table orders;
    orders.head = {"order", "figure", "tokens/s, slowest first as published, or the device's idle share", "holds"};
    orders.clock = cells.clock;
    for (const OrderOutcome& o : r.orders)
      orders.rows.push_back({o.order.says, o.order.figure, order_text(o), o.holds ? "yes" : "NO"});
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
  for (const RunOutcome& run : r.runs) {
    if (run.method.find('{') == std::string::npos) notes += fmt::format("{}: {}.\n", run.name, run.method);
    if (!run.row.refused.empty()) notes += fmt::format("{}: {}.\n", run.name, run.row.refused);
  }
  for (const std::string& line : e.notes) notes += line + "\n";
  notes += "Published: " + e.source + ".\n";
  return text + section("What was assumed", markdown) + note(notes, markdown);
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
  json["fitted"] = nlohmann::ordered_json::array();
  for (const FittedValue& f : r.fitted)
    json["fitted"].push_back({{"name", f.name}, {"value", f.value}, {"reached", f.reached}});
  json["runs"] = nlohmann::ordered_json::array();
  for (const RunOutcome& run : r.runs) {
    nlohmann::ordered_json item{
        {"name", run.name}, {"method", run.method}, {"batch", run.batch}, {"steps", e.run(run.name).steps}};
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
  json["cells"] = nlohmann::ordered_json::array();
  for (const CellOutcome& c : r.cells) {
    nlohmann::ordered_json item{{"name", c.cell.name},
                                {"figure", c.cell.figure},
                                {"quantity", kQuantityNames[static_cast<std::size_t>(c.cell.quantity)]},
                                {"published", c.cell.published}};
    item["ours"] = c.known ? nlohmann::ordered_json(c.ours) : nlohmann::ordered_json(nullptr);
    item["fitted"] = c.fitted;
    if (c.cell.source) item["source_of_the_workload"] = true;
    item["within_aim"] = c.within_aim();
    if (c.cell.at_most > 0) item["at_most"] = c.cell.at_most;
    json["cells"].push_back(std::move(item));
  }
  json["orders"] = nlohmann::ordered_json::array();
  for (const OrderOutcome& o : r.orders) {
    nlohmann::ordered_json item{{"figure", o.order.figure},
                                {"says", o.order.says},
                                {"runs", o.order.runs},
                                {o.order.by_idle ? "idle_ratio" : "tokens_per_second", o.values},
                                {"holds", o.holds}};
    for (const OrderOutcome::Ratio& ratio : o.over_last)
      item["step_over_last"].push_back(
          {{"mean", ratio.mean}, {"low", ratio.interval.low}, {"high", ratio.interval.high}});
    json["orders"].push_back(std::move(item));
  }
  return json.dump(1) + "\n";
}

}  // namespace tandem::eval
