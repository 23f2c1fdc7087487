#include "eval/validate/validation.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <fmt/core.h>
#include <map>
#include <nlohmann/json.hpp>
#include <tuple>

#include "engine/common/error.h"
#include "engine/common/json.h"
#include "eval/predict/text.h"
#include "eval/report/table.h"

namespace tandem::eval {
namespace {

constexpr const char* kValidation = "validation";

const char* use_text(const Comparison& c) {
  constexpr std::array<const char*, 5> kNames = {kValidation, "in L2 cache", "upper bound", "apart", "skipped"};
  return c.use == Use::compared && c.calibrated ? "calibration" : kNames.at(static_cast<std::size_t>(c.use));
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

Estimate mean_of(const std::vector<double>& values) {
  return {values.size(), mean(values), bootstrap_mean_interval(values), IntervalKind::bootstrap};
}

/// Errors of validation points, or with `all` those of every group, and a column that names the group's points.
Table kinds_table(const std::vector<ErrorGroup>& groups, bool all) {
  Table table;
  table.head = {"kind", "level", "n", "mean |error|, %", "bias, %", "worst, %", "in range, %", "range, ± %"};
  if (all) table.head.insert(table.head.begin() + 2, "points");
  for (const ErrorGroup& g : groups) {
    if (!all && g.points != kValidation) continue;
    table.rows.push_back({g.what, g.level, fmt::format("{}", g.absolute.n), interval_text(g.absolute, percent_text),
                          interval_text(g.bias, signed_percent_text), signed_percent_text(g.worst),
                          fmt::format("{:.0f}", 100 * g.in_range), fmt::format("{:.0f}", 100 * g.half_width)});
    if (all) table.rows.back().insert(table.rows.back().begin() + 2, g.points);
  }
  return table;
}

Table devices_table(const std::vector<ErrorGroup>& groups) {
  Table table;
  table.head = {"kind", "device", "points", "n", "mean |error|, %", "bias, %", "worst, %"};
  table.leading = 3;
  for (const ErrorGroup& g : groups)
    table.rows.push_back({g.what, g.device, g.points, fmt::format("{}", g.absolute.n), percent_text(g.absolute.value),
                          signed_percent_text(g.bias.value), signed_percent_text(g.worst)});
  return table;
}

Table points_table(const std::vector<Comparison>& comparisons) {
  Table table;
  table.head = {"point", "use", "measured", "predicted", "range", "unit", "error, %"};
  for (const Comparison& c : comparisons) {
    if (c.use == Use::skipped) continue;
    table.rows.push_back({c.point.id, use_text(c), fmt::format("{:.4g}", c.point.value),
                          fmt::format("{:.4g}", c.predicted), range_text(c.low, c.high), c.point.unit,
                          signed_percent_text(c.error())});
  }
  return table;
}

std::string range_note(const std::vector<Comparison>& comparisons) {
  std::vector<double> widths;
  std::vector<bool> every;                              // whether each is in range
  std::map<std::string, std::vector<bool>> validation;  // the same by level
  for (const Comparison& c : comparisons) {
    if (c.use != Use::compared) continue;
    widths.push_back(c.half_width());
    every.push_back(c.in_range());
    if (!c.calibrated) validation[c.level].push_back(c.in_range());
  }
  if (widths.empty()) return "";
  const auto held = [](const std::vector<bool>& in) {
    return fmt::format("{:.0f} % of {}", 100.0 * double(std::ranges::count(in, true)) / double(in.size()), in.size());
  };
  const std::string levels = listed(validation, [&](const auto& l) {
    return fmt::format("{} at the level of {}", held(l.second), l.first == "machine" ? "the machine" : l.first);
  });
  return fmt::format(
      "In the range of their prediction lie {} points{}. The median half-width is {:.0f} %. Calibration points set "
      "these ranges: the others say how well they hold. A range moves one number of the hardware profile at a time "
      "between its low and its high and adds the changes in quadrature.",
      held(every), levels.empty() ? "" : "; of validation points " + levels, 100 * median(widths));
}

std::string serving_note(const std::vector<Comparison>& comparisons) {
  const auto serves = [](const Comparison& c) { return c.use == Use::upper_bound && c.layers > 0; };
  const auto all = std::ranges::count_if(comparisons, serves),
             above = std::ranges::count_if(
                 comparisons, [&](const Comparison&c) { return serves(c) && c.error() > kAboveServing - 1; });
  if (all == 0) return "";
  return fmt::format(
      "Serving times share their steps with prefill, so that a predicted step must not exceed them: of {} points {} do "
      "so by more than {:.0f} %.",
      all, above == 0 ? "none" : fmt::format("{}", above), 100 * (kAboveServing - 1));
}

std::string skipped_note(const std::vector<Comparison>& comparisons) {
  std::map<std::string, std::size_t> reasons, apart;
  std::size_t in_cache = 0;
  for (const Comparison& c : comparisons) {
    if (c.use == Use::skipped) ++reasons[c.why];
    if (c.use == Use::apart) ++apart[c.why];
    in_cache += c.use == Use::in_cache ? 1 : 0;
  }
  std::string text;
  if (in_cache > 0)
    text = fmt::format(
        "{} kernels read data that fits in the GPU's L2 cache, where a loop may have kept it: they have rows of their "
        "own. ",
        in_cache);
  for (const auto& [why, count] : apart) text += fmt::format("Apart, {}: {}. ", counted(count, "point"), why);
  for (const auto& [why, count] : reasons) text += fmt::format("Skipped, {}: {}. ", counted(count, "point"), why);
  if (!text.empty()) text.pop_back();
  return text;
}

}  // namespace

std::vector<ErrorGroup> Validation::groups(bool by_device) const {
  std::vector<std::string> kinds;
  std::map<std::tuple<std::size_t, std::string, std::string>, std::vector<const Comparison*>> members;
  std::map<std::size_t, const char*> levels;
  for (const Comparison& c : comparisons) {
    if (c.use != Use::compared && c.use != Use::in_cache && c.use != Use::apart) continue;
    const auto found = std::ranges::find(kinds, c.what);
    const auto kind = static_cast<std::size_t>(found - kinds.begin());
    if (found == kinds.end()) kinds.push_back(c.what);
    levels[kind] = c.level;
    members[{kind, use_text(c), by_device ? c.device : ""}].push_back(&c);
  }
  std::vector<ErrorGroup> groups;
  for (const auto& [key, all] : members) {
    const auto& [kind, points, device] = key;
    std::vector<double> own, absolute, half_widths, in_range;
    for (const Comparison* c : all) {
      own.push_back(c->error());
      absolute.push_back(std::abs(c->error()));
      half_widths.push_back(c->half_width());
      in_range.push_back(c->in_range() ? 1 : 0);
    }
    const double worst = *std::ranges::max_element(own, [](double a, double b) { return std::abs(a) < std::abs(b); });
    groups.push_back({kinds[kind], device, levels[kind], points, mean_of(absolute), mean_of(own), worst, mean(in_range),
                      median(half_widths)});
  }
  return groups;
}

Validation validate(const std::vector<MeasuredPoint>& points, std::string file,
                    const std::function<void(std::uint64_t done, std::uint64_t total)>& progress,
                    const std::function<bool()>& interrupted) {
  Validation out{std::move(file), {}};
  out.comparisons.reserve(points.size());
  Predictor predictor;
  for (const MeasuredPoint& point : points) {
    if (interrupted && interrupted()) throw Interrupted();
    out.comparisons.push_back(predictor.compare(point));
    if (progress) progress(out.comparisons.size(), points.size());
  }
  return out;
}

std::string validation_text(const Validation& validation, bool markdown, bool every_point) {
  const std::vector<ErrorGroup> groups = validation.groups(/*by_device=*/false);
  const bool all =
      every_point || std::ranges::none_of(groups, [](const ErrorGroup& g) { return g.points == kValidation; });
  std::string text =
      section(all ? "Errors by kind" : "Errors by kind, of points that have not fitted the cost model", markdown) +
      text_of(kinds_table(groups, all), markdown) + "\n";
  text += note(
      "Error: predicted time over measured time, minus 1; above 0 the prediction is too slow. Calibration points have "
      "fitted the cost model, except products of 65 to 511 rows; validation points have not. Intervals: 95 %, "
      "bootstrap over points, as if points of one run were independent.",
      markdown);
  for (const std::string& sentence :
       {range_note(validation.comparisons), serving_note(validation.comparisons), skipped_note(validation.comparisons)})
    if (!sentence.empty()) text += "\n" + note(sentence, markdown);
  if (!all) text += "\n" + note("--every shows the other points' errors, too.", markdown);
  if (!every_point) return text;
  text += "\n" + section("Errors by device", markdown) +
          text_of(devices_table(validation.groups(/*by_device=*/true)), markdown) + "\n" + section("Points", markdown) +
          text_of(points_table(validation.comparisons), markdown);
  return text;
}

static void to_json(nlohmann::ordered_json& json, const ErrorGroup& g) {
  const auto estimate = [](const Estimate& e) {
    return nlohmann::ordered_json{{"mean", e.value}, {"low", e.interval.low}, {"high", e.interval.high}};
  };
  json = {{"kind", g.what},           {"device", g.device},
          {"level", g.level},         {"points", g.points},
          {"n", g.absolute.n},        {"absolute", estimate(g.absolute)},
          {"bias", estimate(g.bias)}, {"worst", g.worst},
          {"in_range", g.in_range},   {"half_width", g.half_width}};
}

std::string validation_json(const Validation& validation, const std::string& command, const std::string& program) {
  nlohmann::ordered_json json = {{"tool", "tandem validate"},
                                 {"program", program},
                                 {"command", command},
                                 {"file", validation.file},
                                 {"errors", validation.groups(/*by_device=*/true)},
                                 {"points", nlohmann::ordered_json::array()}};
  for (const Comparison& c : validation.comparisons) {
    nlohmann::ordered_json& point = json["points"].emplace_back();
    point = {{"id", c.point.id}, {"use", use_text(c)}};
    if (c.use == Use::skipped) {
      point["why"] = c.why;
      continue;
    }
    point.update({{"kind", c.what},
                  {"level", c.level},
                  {"device", c.device},
                  {"hardware", c.point.hardware},
                  {"engine", c.point.engine},
                  {"model", c.point.model},
                  {"measured", c.point.value},
                  {"predicted", c.predicted},
                  {"low", c.low},
                  {"high", c.high},
                  {"unit", c.point.unit},
                  {"error", c.error()}});
    if (c.layers > 0) point["layers"] = c.layers;
    if (c.layers > 0 && c.point.batch) point["batch"] = *c.point.batch;
    point["source"] = c.point.source;
  }
  return json_text(json, 1) + "\n";
}

}  // namespace tandem::eval
