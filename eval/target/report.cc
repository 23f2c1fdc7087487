#include <algorithm>
#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "engine/common/json.h"
#include "eval/report/table.h"
#include "eval/target/target.h"

namespace tandem::eval {
namespace {

std::string tokens_text(std::uint32_t tokens) {
  return tokens % 1024 == 0 ? fmt::format("{}K", tokens / 1024) : std::to_string(tokens);
}

/// The cause that most idle time goes to, with its share of the idle time.
std::string largest_cause(const TargetRow& row) {
  const auto largest = std::max_element(row.idle_ms_by_cause.begin(), row.idle_ms_by_cause.end());
  if (*largest == 0) return "-";
  const auto cause = static_cast<Cause>(largest - row.idle_ms_by_cause.begin());
  return fmt::format("{} {:.0f}\u00a0%", to_string(cause), 100 * *largest / row.idle_ms);
}

std::string gigabytes(std::size_t bytes) {
  return bytes == 0 ? "0" : fmt::format("{:.2f}", double(bytes) * 1e-9);
}

/// "quest (above: quest:budget=512), ..."
std::string other_specs(const Target& t) {
  std::string text;
  for (const TargetRow& r : t.rows) {
    if (!r.compared.empty()) text += fmt::format("{}{} (above: {})", text.empty() ? "" : ", ", r.method, r.compared);
  }
  return text;
}

}  // namespace

std::string target_text(const Target& t, bool markdown) {
  Table table;
  table.clock =
      fmt::format("simulated: {}, batch {} x {}, {}", t.model, t.batch, tokens_text(t.context), t.hardware_title);
  table.head = {"method",           "TTFT s",
                "step ms",          "step\u00a0/ batch ms",
                "tokens/s",         "idle\u00a0ms / layer",
                "idle %",           "of it in layer\u00a00, ms",
                "waits mostly for", "attended on device",
                "attended on host", "KV GB, device",
                "KV GB, host"};
  const bool peers = std::any_of(t.rows.begin(), t.rows.end(), [](const TargetRow& r) { return r.peer_kv_bytes > 0; });
  if (peers) table.head.emplace_back("KV GB, peer");
  std::string remarks;
  for (const TargetRow& r : t.rows) {
    if (!r.refused.empty()) {
      std::vector<std::string>& row = table.rows.emplace_back(table.head.size(), "-");
      row[0] = r.method;
      row[2] = "does not fit";
      remarks += fmt::format("{}: {}\n", r.method, r.refused);
      continue;
    }
    table.rows.push_back({r.method, fmt::format("{:.2f}", (r.prefill_ms + r.setup_ms + r.first_step_ms) * 1e-3),
                          fmt::format("{:.2f}", r.step_ms), fmt::format("{:.3f}", r.step_ms / t.batch),
                          fmt::format("{:.0f}", 1e3 * t.batch / r.step_ms), fmt::format("{:.3f}", r.idle_ms / t.layers),
                          fmt::format("{:.1f}", 100 * r.idle_ms / r.step_ms), fmt::format("{:.3f}", r.layer0_idle_ms),
                          largest_cause(r), fmt::format("{:.0f}", r.attended_device),
                          fmt::format("{:.0f}", r.attended_host), gigabytes(r.device_kv_bytes),
                          gigabytes(r.host_kv_bytes)});
    if (peers) table.rows.back().push_back(gigabytes(r.peer_kv_bytes));
  }
  const std::string notes = fmt::format(
      "The schedule of each method with the costs of this shape, weights and KV in bf16, {} decode steps after a "
      "prompt of "
      "{} tokens that is prefilled in chunks of {}; no tensor is computed. Which blocks and tokens heads choose is "
      "drawn from the workload {} ({}). "
      "TTFT is of the batch, all of whose prompts are prefilled before it decodes. Step: "
      "mean window of the steps after the first; step / batch is what papers that divide by the batch call TPOT. "
      "Launches are priced as captured graphs, and prefill's attention at the rate of its products. A small model's "
      "own latency is mostly launches and kernel floors and says nothing about this table, nor this table about its "
      "accuracy.\n",
      t.steps, tokens_text(t.context), t.prefill_chunk, t.workload.name, t.workload.source);
  if (const std::string others = other_specs(t); !others.empty()) {
    remarks += fmt::format(
        "Predicted with other options than in the tables above, whose are for short prompts or for the model there: "
        "{}.\n",
        others);
  }
  if (markdown)
    return "## At a target shape\n\n" + table.markdown() + "\n" + notes + (remarks.empty() ? "" : "\n") + remarks;
  return "\nAt a target shape\n" + table.text() + wrap(notes + remarks, kTerminalWidth);
}

std::string target_json(const Target& t) {
  nlohmann::ordered_json json;
  json["clock"] = "simulated for " + t.hardware_title;
  json["model"] = t.model;
  json["hardware_profile"] = t.hardware;
  json["layers"] = t.layers;
  json["batch"] = t.batch;
  json["context"] = t.context;
  json["steps"] = t.steps;
  json["prefill_chunk"] = t.prefill_chunk;
  json["methods"] = nlohmann::ordered_json::array();
  for (const TargetRow& r : t.rows) {
    nlohmann::ordered_json row;
    row["method"] = r.method;
    if (!r.compared.empty()) row["compared_as"] = r.compared;
    if (!r.refused.empty()) {
      row["refused"] = r.refused;
      json["methods"].push_back(std::move(row));
      continue;
    }
    row["prefill_ms"] = r.prefill_ms;
    row["setup_ms"] = r.setup_ms;
    row["first_step_ms"] = r.first_step_ms;
    row["step_ms"] = r.step_ms;
    row["busy_ms"] = r.busy_ms;
    row["idle_ms"] = r.idle_ms;
    row["layer0_idle_ms"] = r.layer0_idle_ms;
    for (std::size_t c = 0; c < r.idle_ms_by_cause.size(); ++c) {
      if (r.idle_ms_by_cause[c] > 0) row["idle_ms_by_cause"][to_string(static_cast<Cause>(c))] = r.idle_ms_by_cause[c];
    }
    row["attended_device"] = r.attended_device;
    row["attended_host"] = r.attended_host;
    row["device_kv_bytes"] = r.device_kv_bytes;
    row["host_kv_bytes"] = r.host_kv_bytes;
    if (r.peer_kv_bytes > 0) row["peer_kv_bytes"] = r.peer_kv_bytes;
    json["methods"].push_back(std::move(row));
  }
  json["workload"] = parse_ordered_json(workload_to_json(t.workload), "the workload");
  return json_text(json, 1) + "\n";
}

}  // namespace tandem::eval
