// Advice as text and as JSON.
#include <cmath>
#include <fmt/core.h>
#include <iterator>
#include <nlohmann/json.hpp>

#include "engine/common/json.h"
#include "eval/predict/advise.h"
#include "eval/predict/text.h"
#include "eval/report/markdown.h"
#include "eval/report/table.h"

namespace tandem::eval {
namespace {

using Json = nlohmann::ordered_json;

/// Rounded first: a loss that rounds to nothing has no sign.
std::string points(double loss) {
  return fmt::format("{:.1f}", std::round(10 * loss) / 10 + 0.0);
}

std::string points_text(double loss) {
  const std::string text = fmt::format("{:.4g}", loss);
  return text + (text == "1" ? " point" : " points");
}

std::string with_interval(const Loss& loss) {
  if (!loss.interval) return points(loss.points);
  return fmt::format("{} [{}, {}]", points(loss.points), points(loss.interval->low), points(loss.interval->high));
}

std::string lengths_text(const Loss& loss) {
  if (loss.shortest == loss.longest) return length_text(loss.longest);
  return fmt::format("{} to {} tokens", loss.shortest, loss.longest);
}

/// "1.2 [-0.5, 3.0] points, measured by your run (...) on tiny at 4K".
std::string evidence(const Loss& loss) {
  const std::string where = fmt::format("{} at {}", loss.model, lengths_text(loss));
  switch (loss.kind) {
    case LossKind::construction:
      return "nothing, since it computes what full attention does";
    case LossKind::yours:
      return fmt::format("{} points, measured by your run ({}) on {}", with_interval(loss), loss.source, where);
    case LossKind::run:
      return fmt::format("{} points, measured by a run that ships ({}) on {}", with_interval(loss), loss.source, where);
    case LossKind::paper:
      return fmt::format("{} points by a paper, not measured here: {}, {}", points(loss.points), loss.source, where);
    case LossKind::unknown:
      break;
  }
  return fmt::format("unknown: nothing was run at {}", lengths_text(loss));
}

double rate(const SweepPoint& point, double step_ms) {
  return 1e3 * point.sequences / step_ms;
}

std::string rate_text(double tokens_per_second) {
  return fmt::format("{:.{}f}", tokens_per_second, tokens_per_second < 9.95 ? 1 : 0);
}

/// "47 [40–55]", "47 (no range)".
std::string speed(const SweepPoint& point) {
  const PredictedRow& row = point.row;
  const std::string nominal = rate_text(rate(point, row.step_ms));
  if (row.step_high_ms == 0) return nominal + " (no range)";
  return fmt::format("{} [{}–{}]", nominal, rate_text(rate(point, row.step_high_ms)),
                     rate_text(rate(point, row.step_low_ms)));
}

std::string gb(std::size_t bytes) {
  return fmt::format("{:.1f}", double(bytes) * 1e-9);
}

std::size_t weights_of(const ShownAdvice& shown, const Precision& precision) {
  return precision.weights(shown.weight_bytes);
}

Table table_of(const ShownAdvice& shown) {
  Table table;
  table.clock = fmt::format("simulated: {}, batch {} x {}, {}", shown.advice.limits.model, shown.batch,
                            length_text(shown.advice.limits.context), shown.hardware.title);
  table.head = {"", "method", "tokens/s [range]", "device, GB", "host, GB", "loss, points", "loss by"};
  table.leading = 2;
  for (const auto& [place, name] :
       {std::pair{shown.advice.first, "recommended"}, std::pair{shown.advice.second, "runner-up"}}) {
    const Judged* judged = shown.advice.at(place);
    if (judged == nullptr) continue;
    const PredictedRow& row = judged->point.row;
    table.rows.push_back({name, judged->point.method, speed(judged->point),
                          gb(weights_of(shown, shown.precision) + row.device_kv_bytes), gb(row.host_kv_bytes),
                          with_interval(judged->expected),
                          kLossKinds.at(static_cast<std::size_t>(judged->expected.kind))});
  }
  return table;
}

/// Why the memories do not hold a method.
std::string too_large(const Judged& judged, const AdviceLimits& limits) {
  const PredictedRow& row = judged.point.row;
  if (!row.refused.empty()) return row.refused;
  return fmt::format(
      "its KV takes {} GB on the device and {} GB in host memory, and there is room for {:.1f} and {:.1f} GB",
      gb(row.device_kv_bytes), gb(row.host_kv_bytes), limits.device_kv_bytes * 1e-9, limits.host_kv_bytes * 1e-9);
}

std::string reason(const ShownAdvice& shown) {
  const Advice& advice = shown.advice;
  const Judged *first = advice.at(advice.first), *second = advice.at(advice.second);
  const std::string asked = fmt::format("fits and is known to lose at most {} at {}", points_text(advice.limits.lose),
                                        length_text(advice.limits.context));
  std::string text = fmt::format("No method {}.", asked);
  if (first != nullptr)
    text = fmt::format("{} is the fastest method that {}. It loses {}.", first->point.method, asked,
                       evidence(first->expected));
  if (first != nullptr && first->nearest && !first->expected.measured())
    text += fmt::format(" The run at the nearest length lost {}.", evidence(*first->nearest));
  if (second != nullptr && second->expected.kind != LossKind::construction)
    text += fmt::format(" {} loses {}.", second->point.method, evidence(second->expected));
  if (second != nullptr && !advice.order_is_certain) {
    const bool ranged = first->point.row.step_high_ms > 0 && second->point.row.step_high_ms > 0;
    text += ranged ? " The ranges of the two overlap, so that their order is not certain."
                   : " One of the two has no range, so that their order is not certain.";
  }
  if (advice.limits.context > advice.limits.positions)
    text += fmt::format(" {} has {} positions: longer contexts are costed as those of the same shape with scaled RoPE.",
                        advice.limits.model, advice.limits.positions);
  for (const std::size_t i : advice.do_not_fit)
    text += fmt::format(" {} does not fit: {}.", advice.methods[i].point.method,
                        too_large(advice.methods[i], advice.limits));
  return text;
}

/// The limit to ask for, in whole points.
double limit_of(const Judged& judged) {
  return std::ceil(judged.admitted_from);
}

std::string named(const Judged& judged) {
  return fmt::format("{} {}", judged.point.method, rate_text(rate(judged.point, judged.point.row.step_ms)));
}

/// Whether a setting recommends another method, or a step that is shorter by a tenth.
bool matters(const WhatIf& what_if, const Advice& advice) {
  constexpr double kShorter = 0.9;
  const Judged* first = advice.at(advice.first);
  if (first == nullptr || !what_if.best) return true;
  const SweepPoint &now = first->point, &then = what_if.best->point;
  return now.method != then.method || then.row.step_ms < kShorter * now.row.step_ms;
}

/// Sentences, the nearest change first.
std::vector<std::string> changes(const ShownAdvice& shown) {
  const Advice& advice = shown.advice;
  std::vector<std::string> out;
  std::vector<std::size_t> told;
  const std::vector<std::size_t>& higher = advice.with_higher_limit;
  for (auto it = higher.begin(); it != higher.end(); ++it) {
    const std::size_t i = *it;
    const Judged& m = advice.methods[i];
    if (limit_of(m) > kHighestTold) break;
    // The next one is faster, and the same limit in whole points admits it.
    if (std::next(it) != higher.end() && limit_of(advice.methods[*std::next(it)]) == limit_of(m)) continue;
    told.push_back(i);
    std::string text = fmt::format("With --lose {:g}, {} gives {} tokens/s. It loses {}.", limit_of(m), m.point.method,
                                   speed(m.point), evidence(m.expected));
    if (m.nearest && !m.expected.measured())
      text += fmt::format(" The run at the nearest length lost {}.", evidence(*m.nearest));
    out.push_back(std::move(text));
  }
  std::size_t bits = 0;
  for (const WhatIf& what_if : shown.what_ifs) {
    if (!matters(what_if, advice)) continue;
    ++bits;
    if (!what_if.best) {
      out.push_back(fmt::format("With {} still no method fits and loses as little.", what_if.option));
      continue;
    }
    const PredictedRow& row = what_if.best->point.row;
    out.push_back(fmt::format("With {}, {} gives {} tokens/s and takes {} GB on the device and {} GB in host memory.",
                              what_if.option, what_if.best->point.method, speed(what_if.best->point),
                              gb(weights_of(shown, what_if.precision) + row.device_kv_bytes), gb(row.host_kv_bytes)));
  }
  if (bits > 0) out.back() += fmt::format(" {}", kHowBitsCount);
  const std::string not_known = listed(advice.not_known, [&](std::size_t i) { return named(advice.methods[i]); });
  if (!not_known.empty())
    out.push_back(fmt::format(
        "A run of yours at {} (--accuracy) could admit faster methods whose loss there is unknown: {} tokens/s.",
        length_text(advice.limits.context), not_known));
  const std::string lose_more = listed(advice.lose_more, [&](std::size_t i) {
    const Judged& m = advice.methods[i];
    if (std::ranges::find(told, i) != told.end() || !m.nearest) return std::string();
    return fmt::format("{} ({} at {})", named(m), points(m.nearest->points), lengths_text(*m.nearest));
  });
  if (!lose_more.empty())
    out.push_back(
        fmt::format("Faster, but measured to lose more than {}, so that only another run could admit them: {}. First "
                    "their tokens/s, in brackets the points that they lost at the nearest length.",
                    points_text(advice.limits.lose), lose_more));
  return out;
}

Json loss_json(const Loss& loss) {
  Json json = {{"kind", kLossKinds.at(static_cast<std::size_t>(loss.kind))}, {"measured", loss.measured()}};
  json["points"] = loss.kind == LossKind::unknown ? Json() : Json(loss.points);
  if (loss.interval) json["interval"] = {loss.interval->low, loss.interval->high};
  if (!loss.model.empty()) json["model"] = loss.model;
  if (!loss.source.empty()) json["source"] = loss.source;
  json["lengths"] = {loss.shortest, loss.longest};
  if (loss.share > 0) json["share"] = loss.share;
  return json;
}

Json judged_json(const ShownAdvice& shown, const Judged& judged, const Precision& precision) {
  const PredictedRow& row = judged.point.row;
  Json json = {{"method", judged.point.method}, {"fits", judged.fits}};
  if (row.step_ms > 0) {
    json["tokens_per_second"] = rate(judged.point, row.step_ms);
    if (row.step_high_ms > 0)
      json["tokens_per_second_range"] = {rate(judged.point, row.step_high_ms), rate(judged.point, row.step_low_ms)};
    json["step_ms"] = row.step_ms;
    if (row.step_high_ms > 0) json["step_ms_range"] = {row.step_low_ms, row.step_high_ms};
    json["device_bytes"] = weights_of(shown, precision) + row.device_kv_bytes;
    json["host_bytes"] = row.host_kv_bytes;
  }
  if (!row.refused.empty()) json["refused"] = row.refused;
  json["loss"] = loss_json(judged.expected);
  if (judged.nearest) json["nearest_measured_loss"] = loss_json(*judged.nearest);
  json["admitted_from"] = std::isfinite(judged.admitted_from) ? Json(judged.admitted_from) : Json();
  return json;
}

Json answer_json(const ShownAdvice& shown) {
  const Advice& advice = shown.advice;
  const auto one = [&](const std::optional<std::size_t>& place) {
    const Judged* judged = advice.at(place);
    return judged == nullptr ? Json() : judged_json(shown, *judged, shown.precision);
  };
  const auto all = [&](const std::vector<std::size_t>& places) {
    Json list = Json::array();
    for (const std::size_t i : places) list.push_back(one(i));
    return list;
  };
  Json json = {{"model", advice.limits.model},
               {"hardware", shown.hardware.name},
               {"title", shown.hardware.title},
               {"batch", shown.batch},
               {"context", advice.limits.context},
               {"positions", advice.limits.positions},
               {"lose", advice.limits.lose},
               {"weight_bits", shown.precision.weight_bits},
               {"kv_bits", shown.precision.kv_bits},
               {"device_kv_room_bytes", advice.limits.device_kv_bytes},
               {"host_kv_room_bytes", advice.limits.host_kv_bytes}};
  json["recommended"] = one(advice.first);
  json["runner_up"] = one(advice.second);
  json["order_is_certain"] = advice.order_is_certain;
  json["reason"] = reason(shown);
  json["with_higher_limit"] = all(advice.with_higher_limit);
  json["loss_unknown"] = all(advice.not_known);
  json["measured_to_lose_more"] = all(advice.lose_more);
  json["do_not_fit"] = all(advice.do_not_fit);
  json["what_if"] = Json::array();
  for (const WhatIf& what_if : shown.what_ifs)
    json["what_if"].push_back(
        {{"option", what_if.option},
         {"recommended", what_if.best ? judged_json(shown, *what_if.best, what_if.precision) : Json()}});
  return json;
}

}  // namespace

std::string advice_text(const ShownAdvice& shown) {
  std::string text;
  const Table table = table_of(shown);
  text += table.rows.empty() ? note(table.clock, /*markdown=*/false) : table.text();
  text += "\n" + note(reason(shown), /*markdown=*/false);
  if (shown.precision != Precision{})
    text +=
        note(fmt::format("Predicted with {}. {}", precision_text(shown.precision), kHowBitsCount), /*markdown=*/false);
  const std::vector<std::string> sentences = changes(shown);
  if (sentences.empty()) return text;
  text += section("To change the answer", /*markdown=*/false);
  for (const std::string& sentence : sentences) text += note("* " + sentence, /*markdown=*/false);
  return text;
}

std::string advice_json(const std::vector<ShownAdvice>& answers) {
  Json json = {{"answers", Json::array()}};
  for (const ShownAdvice& shown : answers) json["answers"].push_back(answer_json(shown));
  return json_text(json, 1) + "\n";
}

}  // namespace tandem::eval
