#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "engine/common/json.h"
#include "engine/common/version.h"
#include "eval/latency/latency.h"
#include "eval/report/statistics.h"
#include "eval/report/table.h"

namespace tandem::eval {
namespace {

std::string tenths(double figure) {
  return fmt::format("{:.1f}", figure);
}

std::string rate(double amount, double ms) {
  return amount > 0 ? figure_text(ratio(amount, ms * 1e-3), tenths) : "-";
}

}  // namespace

std::string latency_text(const Latency& r) {
  const bool decode = r.steps > 0;
  const std::string unit = decode ? "step" : "prefill";
  Table figures, operations;
  figures.clock = operations.clock = r.clock;
  figures.head = {decode ? "decode" : "prefill", "rounds", "ms, median", "least", "most", "tokens/s"};
  figures.rows = {
      {decode ? fmt::format("{} behind {} tokens", r.method, r.context) : fmt::format("{} tokens", r.context),
       fmt::format("{}", r.round_ms.size()), fmt::format("{:.3f}", r.median_ms), fmt::format("{:.3f}", r.min_ms),
       fmt::format("{:.3f}", r.max_ms), figure_text(r.tokens_per_second, tenths)}};
  operations.head = {"operation", "ms per " + unit, "share\u00a0%", "GB/s", "GFLOP/s"};
  const double mean_ms = mean(r.round_ms);  // operations are summed over all rounds
  for (const OperationTime& o : r.operations) {
    operations.rows.push_back({o.name, fmt::format("{:.3f}", o.ms), figure_text(ratio(100 * o.ms, mean_ms), tenths),
                               rate(o.gigabytes, o.ms), rate(o.gigaflops, o.ms)});
  }
  operations.rows.push_back({"compute lane idle", fmt::format("{:.3f}", r.compute_lane_idle_ms),
                             figure_text(ratio(100 * r.compute_lane_idle_ms, mean_ms), tenths), "-", "-"});
  const std::string what = decode ? fmt::format("{} per round after one that is not counted", counted(r.steps, "step"))
                                  : fmt::format("chunks of {} tokens, no logits", r.prefill_chunk);
  return fmt::format(
      "{}\n\n{}\n{}{}",
      wrap(fmt::format("{}, {}, {} threads, {} kernels; {}; one round before these warms up.", r.model, r.precision,
                       r.threads, r.isa, what),
           terminal_width()),
      figures.text(), operations.text(),
      note("Side streams, copies and the host run beside the compute lane and each other: their rows overlap "
           "with others, with the last one too.",
           /*markdown=*/false));
}

std::string latency_json(const Latency& r) {
  nlohmann::ordered_json json;
  json["schema"] = "tandem-latency-2";
  json["what"] = r.steps > 0 ? "decode" : "prefill";
  json["tandem_version"] = version();
  json["git_commit"] = git_commit();
  json["clock"] = r.clock;
  json["model"] = r.model;
  json["weights_hash"] = r.weights_hash;
  json["isa"] = r.isa;
  json["precision"] = r.precision;
  json["threads"] = r.threads;
  json["context"] = r.context;
  if (r.steps > 0) {
    json["method"] = r.method;
    json["steps"] = r.steps;
  }
  json["prefill_chunk"] = r.prefill_chunk;
  json["tokens_per_second"] = json_or_null(r.tokens_per_second);
  json["median_ms"] = r.median_ms;
  json["min_ms"] = r.min_ms;
  json["max_ms"] = r.max_ms;
  json["round_ms"] = r.round_ms;
  json["operations"] = nlohmann::ordered_json::array();
  for (const OperationTime& o : r.operations) {
    nlohmann::ordered_json operation;
    operation["name"] = o.name;
    operation["ms"] = o.ms;
    operation["gigabytes"] = o.gigabytes;
    operation["gigaflops"] = o.gigaflops;
    json["operations"].push_back(std::move(operation));
  }
  json["compute_lane_idle_ms"] = r.compute_lane_idle_ms;
  return json_text(json, 1) + "\n";
}

}  // namespace tandem::eval
