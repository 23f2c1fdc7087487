#include "eval/report/published_flops.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "engine/common/error.h"
#include "engine/common/json.h"
#include "eval/report/manifest_difference.h"
#include "eval/report/table.h"

namespace tandem::eval {
namespace {

double number_of(const MethodEntry& method, const char* option) {
  return std::strtod(option_of(method, option).c_str(), nullptr);
}

/// With options that the formulas do not know: what leaves for good is never scored, and dense layers or steps cost
/// more.
bool differs_from_published(const MethodEntry& method) {
  if (method.name == "tova") return option_of(method, "evict") != "no";
  if (method.name == "quest") return number_of(method, "dense_layers") > 0;
  return method.name == "asyncspade" && number_of(method, "theta") > 0;
}

/// C of T: a share up to 1, tokens above.
double chosen_tokens(const MethodEntry& method, double tokens) {
  const double budget = number_of(method, "budget");
  return std::min(tokens, budget <= 1 ? std::ceil(budget * tokens) : budget);
}

nlohmann::ordered_json point_of(const MethodSummary& method, const AccuracyCell& cell, double parameters,
                                double attention) {
  nlohmann::ordered_json point = {{"method", method.label}, {"length", cell.length}};
  point.update(estimate_json(cell.accuracy, "accuracy"));
  point["flops"] = parameters + attention;
  point["attention_flops"] = attention;
  for (const LengthLatency& latency : method.by_length)
    if (latency.length == cell.length) point["tpot_ms"] = json_or_null(latency.latency.tpot_ms);
  return point;
}

}  // namespace

double parameter_flops(const ModelConfig& c) {
  const double hidden = c.hidden, q = double(c.q_heads) * c.head_dim, kv = double(c.kv_heads) * c.head_dim;
  return c.layers * (4 * hidden * q + 4 * kv * hidden + 6 * hidden * c.intermediate);
}

const MethodEntry& entry_of(const Manifest& manifest, const MethodSummary& method) {
  const auto found = std::ranges::find(manifest.methods, method.label, &MethodEntry::label);
  TANDEM_CHECK(found != manifest.methods.end(), "the run has no method '{}'", method.label);
  return *found;
}

std::optional<double> attention_flops(const ModelConfig& c, const MethodEntry& method, std::uint32_t tokens) {
  const double heads = double(c.layers) * c.q_heads * c.head_dim, t = tokens;
  if (differs_from_published(method)) return std::nullopt;
  if (method.name == "full") return heads * 4 * t;
  if (method.name == "tova") return heads * (4 * chosen_tokens(method, t) + 2 * t);
  if (method.name == "quest") return heads * (4 * chosen_tokens(method, t) + 2 * t / number_of(method, "page"));
  if (method.name == "asyncspade") return heads * 4 * chosen_tokens(method, t);
  return std::nullopt;
}

std::string published_flops_text(const ModelConfig& config, const Summary& summary, bool markdown) {
  const Manifest& m = summary.manifest;
  const std::vector<std::string> labels = labels_of(summary, markdown);
  Table table;
  table.head = {"method"};
  for (const char* what : {", all", ", attention"})
    for (const std::uint32_t length : m.lengths) table.head.push_back(length_text(length) + what);
  bool any = false;
  for (std::size_t i = 0; i < summary.methods.size(); ++i) {
    const MethodEntry& method = entry_of(m, summary.methods[i]);
    std::vector<std::string>& row = table.rows.emplace_back(1, labels[i]);
    for (const double besides : {parameter_flops(config), 0.0}) {
      for (const std::uint32_t length : m.lengths) {
        const std::optional<double> flops = attention_flops(config, method, length);
        row.push_back(
            figure_text(flops, [&](double attention) { return fmt::format("{:.2f}", (besides + attention) * 1e-6); }));
        any = any || (flops && method.name != "full");
      }
    }
  }
  if (!any) return "";
  return section("FLOPs per token, published formulas", markdown) + text_of(table, markdown) +
         note(
             "MFLOP of one decoded token by AsyncSpade's appendix B: 4qh C for the C tokens attended, 2qh for each "
             "token or page that is scored on the step's way, l layers; projections and MLP besides. The context T is "
             "the length in the head, which prompts stay below. -: no formula was published for the method with these "
             "options. What the operations of this run computed is in timings.jsonl.",
             markdown);
}

std::string published_flops_json(const ModelConfig& config, const Summary& summary) {
  const Manifest& m = summary.manifest;
  nlohmann::ordered_json json = {{"schema", "tandem-accuracy-flops-1"}, {"command", m.command}};
  write_programs(json, m.programs);
  json["model"] = m.model;
  json["clock"] = m.clock;
  json["points"] = nlohmann::ordered_json::array();
  bool any = false;
  for (const MethodSummary& summed : summary.methods) {
    const MethodEntry& method = entry_of(m, summed);
    for (const AccuracyCell& cell : summed.lengths) {
      const std::optional<double> flops = attention_flops(config, method, cell.length);
      if (!flops) continue;
      any = any || method.name != "full";
      json["points"].push_back(point_of(summed, cell, parameter_flops(config), *flops));
    }
  }
  return any ? json_text(json, 1) + "\n" : "";
}

}  // namespace tandem::eval
