#include "engine/runtime/workload.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "engine/common/drawing.h"
#include "engine/common/error.h"
#include "engine/common/json.h"

namespace tandem {
namespace {

double normal_quantile(double p) {
  return normal_quantile_within(12, p);
}

/// InputError for a name that no workload has: a mistyped one would change nothing.
void check_names(const nlohmann::json& object, const std::vector<std::string>& known, const std::string& where) {
  if (!object.is_object()) throw_input_error("{} is {}; it must be an object.", where, json_excerpt(object));
  for (const auto& field : object.items())
    if (std::ranges::find(known, field.key()) == known.end())
      throw_input_error("{} has '{}', which no workload has.{} There are {}.", where, field.key(),
                        did_you_mean(field.key(), known), join_names(known));
}

}  // namespace

const HeadWorkload& Workload::at(const ModelShape& shape, std::uint32_t layer, std::uint32_t q_head) const {
  const std::vector<HeadWorkload>& heads = layers[std::size_t{layer} * layers.size() / shape.layers];
  return heads[std::size_t{q_head} * heads.size() / shape.q_heads];
}

double share_above_mean(double concentration) {
  return normal_below(-concentration / 2);
}

double concentration_of(double share) {
  return share >= 0.5 ? 0 : -2 * normal_quantile(std::max(share, 1e-9));
}

double overlap_of(double correlation, double fraction) {
  const double edge = normal_quantile(1 - fraction), rest = std::sqrt(std::max(1 - correlation * correlation, 1e-12));
  constexpr int kSteps = 4000;
  const double width = (8 - edge) / kSteps;
  double sum = 0;
  for (int i = 0; i < kSteps; ++i) {  // over one head's score, above the edge
    const double x = edge + (i + 0.5) * width;
    sum += std::exp(-x * x / 2) * normal_below((correlation * x - edge) / rest);
  }
  return sum * width / std::sqrt(2 * M_PI) / fraction;
}

double correlation_of(double overlap, double fraction) {
  if (overlap <= overlap_of(0, fraction)) return 0;
  return std::min(bisect(
                      0, 1, [&](double c) { return overlap_of(c, fraction); }, overlap),
                  1.0);
}

Workload parse_workload(const std::string& text, const std::string& file) {
  Workload workload;
  try {
    const nlohmann::json whole = parse_json(text, file);
    const bool of_target = whole.is_object() && whole.contains("workload") && whole.contains("methods");
    const nlohmann::json& json = of_target ? whole.at("workload") : whole;
    if (!json.is_object()) throw_input_error("{} is not a workload profile: an object is needed.", file);
    check_names(json, {"name", "source", "layers"}, file);
    workload.name = json.at("name").get<std::string>();
    workload.source = json.at("source").get<std::string>();
    for (const nlohmann::json& layer : json.at("layers")) {
      std::vector<HeadWorkload> heads;
      for (const nlohmann::json& h : layer) {
        const std::string where = fmt::format("{}: layers[{}][{}]", file, workload.layers.size(), heads.size());
        check_names(h, {"concentration", "group", "step", "turnover"}, where);
        const auto number = [&](const char* field, double most) {
          if (!h.contains(field)) throw_input_error("{} has no '{}'.", where, field);
          if (!h.at(field).is_number())
            throw_input_error("{}.{} is {}; it must be a number.", where, field, json_excerpt(h.at(field)));
          const auto value = h.at(field).get<double>();
          if (!(value >= 0 && value <= most))
            throw_input_error("{}.{} is {}; it must lie between 0 and {}.", where, field, value, most);
          return value;
        };
        heads.push_back({number("concentration", 100), number("group", 1), number("step", 1),
                         h.contains("turnover") ? number("turnover", 1e6) : 0});
      }
      if (heads.empty()) throw_input_error("{}: layers[{}] has no heads.", file, workload.layers.size());
      workload.layers.push_back(std::move(heads));
    }
  } catch (const nlohmann::json::exception& error) {
    const std::string_view what = error.what();  // "[json.exception.type_error.302] type must be string, but is null"
    throw_input_error("{} is not a workload profile: {}.", file,
                      what.substr(std::min(what.find("] ") + 2, what.size())));
  }
  if (workload.layers.empty()) throw_input_error("{}: 'layers' is empty: a workload has at least one.", file);
  return workload;
}

std::string workload_to_json(const Workload& workload) {
  nlohmann::ordered_json json;
  json["name"] = workload.name;
  json["source"] = workload.source;
  json["layers"] = nlohmann::ordered_json::array();
  for (const std::vector<HeadWorkload>& layer : workload.layers) {
    nlohmann::ordered_json heads = nlohmann::ordered_json::array();
    for (const HeadWorkload& h : layer) {
      heads.push_back({{"concentration", h.concentration}, {"group", h.group}, {"step", h.step}});
      if (h.turnover > 0) heads.back()["turnover"] = h.turnover;
    }
    json["layers"].push_back(std::move(heads));
  }
  return json_text(json, 1) + "\n";
}

}  // namespace tandem
