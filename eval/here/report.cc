#include <algorithm>
#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "engine/common/json.h"
#include "eval/here/here.h"
#include "eval/report/table.h"

namespace tandem::eval {
namespace {

std::string ms(double value) {
  return fmt::format("{:.2f}", value);
}

std::string rounds_text(const std::vector<double>& values) {
  const auto [low, high] = std::ranges::minmax_element(values);
  return fmt::format("{:.2f}-{:.2f}", *low, *high);
}

Table steps_table(const HereValidation& v, bool beyond) {
  Table table;
  table.leading = 2;
  table.head = {"method", "context", "measured", "its rounds", "predicted", "error\u00a0%"};
  for (const HereRow& row : v.rows) {
    if (beyond && row.is_base()) continue;
    table.rows.push_back({row.method, length_text(row.context), ms(beyond ? row.measured_beyond_ms : row.measured_ms),
                          rounds_text(beyond ? row.beyond_ms : row.round_ms),
                          ms(beyond ? row.predicted_beyond_ms : row.predicted_ms),
                          signed_percent_text(beyond ? row.beyond_error() : row.error())});
  }
  return table;
}

std::string summary(const char* what, const HereValidation::Errors& errors) {
  return fmt::format("{}: median |error| {:.1f} %, worst {:.1f} %. ", what, 100 * errors.median, 100 * errors.worst);
}

std::string order_text(const HereValidation& v) {
  const std::vector<WrongOrder> wrong = v.wrong_orders();
  if (wrong.empty())
    return fmt::format("The order is right wherever measured steps differ by more than {:.0f} %.", 100 * kOrderGap);
  std::string text = "Predicted in the wrong order:";
  for (const WrongOrder& w : wrong)
    text += fmt::format(" {} before {} at {};", w.slower, w.faster, length_text(w.context));
  text.back() = '.';
  return text;
}

}  // namespace

std::string here_text(const HereValidation& v, bool markdown) {
  std::string text = note(
      fmt::format("Level: this machine ({}). One core plays the device, another one the host; memcpy is the link. The "
                  "simulated device predicts a decode step from kernels, copies and hand-offs measured here; the "
                  "emulated device runs the same step in real time. Model: {}. {} of {}.",
                  v.cpu, v.model, counted(v.rounds, "round"), counted(v.steps, "step")),
      markdown);
  text += section("Decode step, ms", markdown) + text_of(steps_table(v, false), markdown);
  text += section(fmt::format("Part beyond {}, ms", kHereBase), markdown) + text_of(steps_table(v, true), markdown);
  text += note(summary("Step", v.errors()) + summary(fmt::format("Beyond {}", kHereBase).c_str(), v.beyond_errors()) +
                   order_text(v),
               markdown);
  text += note(fmt::format("Products with weights take {:.0f} % of a step (median). Other processes used {:.2f} CPUs "
                           "while steps were measured; the rounds show how much that matters.",
                           100 * v.weights_share, v.others_cpus),
               markdown);
  for (const std::string& warning : v.warnings) text += note(warning, markdown);
  return text;
}

std::string here_operations_text(const HereValidation& v) {
  Table table;
  table.leading = 3;
  table.head = {"method", "context", "operation", "measured", "predicted", "error\u00a0%"};
  for (const HereRow& row : v.rows) {
    for (const OperationTime& o : row.measured_operations) {
      const auto found = std::ranges::find(row.predicted_operations, o.name, &OperationTime::name);
      if (found == row.predicted_operations.end() || o.ms < 0.005 * row.measured_ms) continue;
      table.rows.push_back({row.method, length_text(row.context), o.name, fmt::format("{:.3f}", o.ms),
                            fmt::format("{:.3f}", found->ms),
                            o.ms > 0 ? signed_percent_text(found->ms / o.ms - 1) : "-"});
    }
  }
  return section("Operations, ms per step", false) + table.text();
}

static void to_json(nlohmann::ordered_json& json, const WrongOrder& w) {
  json = {{"context", w.context}, {"faster", w.faster}, {"slower", w.slower}};
}

static void to_json(nlohmann::ordered_json& json, const HereRow& row) {
  json = {{"method", row.method},
          {"context", row.context},
          {"measured_ms", row.measured_ms},
          {"predicted_ms", row.predicted_ms},
          {"error", row.error()},
          {"round_ms", row.round_ms},
          {"beyond_measured_ms", row.measured_beyond_ms},
          {"beyond_predicted_ms", row.predicted_beyond_ms},
          {"beyond_error", row.beyond_error()},
          {"beyond_round_ms", row.beyond_ms},
          {"measured_operations", row.measured_operations},
          {"predicted_operations", row.predicted_operations}};
}

static void to_json(nlohmann::ordered_json& json, const KernelTime& k) {
  json = {{"kernel", k.kernel},   {"shape", k.shape}, {"us", k.median_us},       {"least_us", k.least_us},
          {"most_us", k.most_us}, {"bytes", k.bytes}, {"disturbed", k.disturbed}};
}

std::string here_json(const HereValidation& v, const std::string& command, const std::string& program) {
  nlohmann::ordered_json json;
  json["command"] = command;
  json["program"] = program;
  json["level"] = "this machine";
  json["machine"] = v.cpu;
  json["cpus"] = {{"device", v.sides.device}, {"host", v.sides.host}};
  json["model"] = v.model;
  json["rounds"] = v.rounds;
  json["steps"] = v.steps;
  json["others_cpus"] = v.others_cpus;
  json["weights_share"] = v.weights_share;
  json["median_error"] = v.errors().median;
  json["worst_error"] = v.errors().worst;
  json["median_beyond_error"] = v.beyond_errors().median;
  json["worst_beyond_error"] = v.beyond_errors().worst;
  json["wrong_orders"] = v.wrong_orders();
  json["rows"] = v.rows;
  json["kernels"] = {{"one_thread", v.figures.one_thread}, {"two_threads", v.figures.two_threads}};
  json["profile"] = parse_ordered_json(profile_to_json(v.profile), "profile");
  return json_text(json, 2) + "\n";
}

}  // namespace tandem::eval
