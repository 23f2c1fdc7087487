#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "engine/common/version.h"
#include "eval/report/table.h"
#include "eval/reproduce/reproduce.h"

namespace tandem::eval {
namespace {

std::string value_text(const Cell& cell, double value) {
  return cell.quantity == Quantity::idle_ratio ? fmt::format("{:.1f}\u00a0% idle", 100 * value)
                                               : fmt::format("{:.2f}\u00d7", value);
}

std::string error_text(const CellOutcome& c) {
  if (!c.known) return "does not fit";
  return c.cell.quantity == Quantity::idle_ratio ? fmt::format("{:+.1f} points", 100 * c.error())
                                                 : fmt::format("{:+.0f}\u00a0%", 100 * c.error());
}

std::string verdict(const CellOutcome& c) {
  if (c.fitted) return "fitted";
  return c.within_aim() ? "predicted, within aim" : "predicted, off";
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
  text += text_of(cells, markdown);
  if (!r.orders.empty()) {
    Table orders;
    orders.head = {"order of methods", "figure", "tokens/s, slowest first as published", "holds"};
    orders.clock = cells.clock;
    for (const OrderOutcome& o : r.orders) {
      std::string rates;
      for (const double rate : o.tokens_per_second)
        rates += (rates.empty() ? "" : " < ") + (rate > 0 ? fmt::format("{:.0f}", rate) : std::string("does not fit"));
      orders.rows.push_back({o.order.says, o.order.figure, rates, o.holds ? "yes" : "NO"});
    }
    text += section("Order", markdown) + text_of(orders, markdown);
  }
  Table runs;
  runs.head = {"run",    "batch",   "steps",           "step ms",       "tokens/s",
               "idle %", "idle ms", "in layer\u00a00", "KV GB, device", "attended on host"};
  runs.clock = cells.clock;
  for (const RunOutcome& run : r.runs) {
    if (!run.row.refused.empty()) {
      runs.rows.push_back({run.name, std::to_string(run.batch), std::to_string(e.run(run.name).steps), "does not fit",
                           "-", "-", "-", "-", "-", "-"});
      continue;
    }
    runs.rows.push_back(
        {run.name, std::to_string(run.batch), std::to_string(e.run(run.name).steps),
         fmt::format("{:.2f}", run.row.step_ms), fmt::format("{:.0f}", 1e3 * run.batch / run.row.step_ms),
         fmt::format("{:.1f}", 100 * run.row.idle_ms / run.row.step_ms), fmt::format("{:.3f}", run.row.idle_ms),
         fmt::format("{:.3f}", run.row.layer0_idle_ms), fmt::format("{:.2f}", double(run.row.device_kv_bytes) * 1e-9),
         fmt::format("{:.0f}", run.row.attended_host)});
  }
  text += section("Runs", markdown) + text_of(runs, markdown);
  std::string notes;
  for (const FittedValue& f : r.fitted) {
    for (const FreeParameter& p : e.free)
      if (p.name == f.name)
        notes += fmt::format("{} = {:.4g}: {}; fitted to '{}' ({:.1f} % reached).\n", f.name, f.value, p.meaning,
                             p.cell, 100 * f.reached);
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
    } else {
      item["refused"] = run.row.refused;
    }
    json["runs"].push_back(std::move(item));
  }
  json["cells"] = nlohmann::ordered_json::array();
  for (const CellOutcome& c : r.cells) {
    nlohmann::ordered_json item{{"name", c.cell.name}, {"figure", c.cell.figure}, {"published", c.cell.published}};
    item["ours"] = c.known ? nlohmann::ordered_json(c.ours) : nlohmann::ordered_json(nullptr);
    item["fitted"] = c.fitted;
    item["within_aim"] = c.within_aim();
    json["cells"].push_back(std::move(item));
  }
  json["orders"] = nlohmann::ordered_json::array();
  for (const OrderOutcome& o : r.orders)
    json["orders"].push_back({{"figure", o.order.figure},
                              {"says", o.order.says},
                              {"runs", o.order.runs},
                              {"tokens_per_second", o.tokens_per_second},
                              {"holds", o.holds}});
  return json.dump(1) + "\n";
}

}  // namespace tandem::eval
