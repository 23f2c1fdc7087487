#include <cctype>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "engine/common/error.h"
#include "engine/common/json.h"
#include "engine/model/presets.h"
#include "eval/predict/text.h"
#include "eval/validate/validation.h"

namespace tandem::eval {
namespace {

using Json = nlohmann::ordered_json;

/// Matches the beginning of `text` with `form`, where each '#' is a number of at most 8 digits; returns the numbers.
std::optional<std::vector<std::uint32_t>> numbers_at(std::string_view text, std::string_view form) {
  std::vector<std::uint32_t> numbers;
  for (const char c : form) {
    if (c != '#') {
      if (!text.starts_with(c)) return std::nullopt;
      text.remove_prefix(1);
      continue;
    }
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), numbers.emplace_back());
    const auto digits = static_cast<std::size_t>(end - text.data());
    if (error != std::errc() || digits > 8) return std::nullopt;
    text.remove_prefix(digits);
  }
  return numbers;
}

/// The same at the first place of `text` that matches.
std::optional<std::vector<std::uint32_t>> numbers_in(std::string_view text, std::string_view form) {
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (at > 0 && std::isdigit(static_cast<unsigned char>(text[at - 1]))) continue;
    if (auto numbers = numbers_at(text.substr(at), form)) return numbers;
  }
  return std::nullopt;
}

/// Mean context of a text: "0 -> 512 while generating", "5 -> about 200", "prompt 128, output 128", "first 32 tokens",
/// "32 tokens at offset 4000".
std::optional<double> mean_context(std::string_view text) {
  struct Form {
    const char* text;
    double first, second;  // weights of its numbers
  };
  static constexpr Form kForms[] = {{"# -> #", 0.5, 0.5},
                                    {"# -> about #", 0.5, 0.5},
                                    {"prompt #, output #", 1, 0.5},
                                    {"# tokens at offset #", 0.5, 1},
                                    {"first # tokens", 0.5, 0}};
  for (const Form& form : kForms)
    if (const auto numbers = numbers_at(text, form.text))
      return form.first * numbers->front() + form.second * numbers->back();
  return std::nullopt;
}

MeasuredPoint read_point(const Json& json, const std::string& file, std::size_t index) {
  std::string where = fmt::format("{}: points[{}]", file, index);
  if (!json.is_object()) throw_input_error("{} is {}; a point is an object.", where, json_excerpt(json));
  const Json absent;
  const auto value_of = [&](const char* field) -> const Json& { return json.contains(field) ? json[field] : absent; };
  const auto text = [&](const char* field) {  // empty where the field holds none
    return value_of(field).is_string() ? value_of(field).get<std::string>() : "";
  };
  const auto required = [&](const char* field) {
    if (text(field).empty()) throw_input_error("{}: the field '{}' is missing or empty.", where, field);
    return text(field);
  };
  // Nothing where the field is null or a text: some sources give a batch or a context in words.
  const auto number = [&](const char* field, double least, double most) -> std::optional<double> {
    const Json& given = value_of(field);
    if (given.is_null() || given.is_string()) return std::nullopt;
    const double value = given.is_number() ? given.get<double>() : std::nan("");
    if (!(value >= least && value <= most))
      throw_input_error("{}: the field '{}' is {}; it must be a number from {} to {}.", where, field,
                        json_excerpt(given), least, most);
    return value;
  };
  MeasuredPoint p;
  p.id = required("id");
  where = fmt::format("{}: the point '{}'", file, p.id);
  p.kind = required("kind");
  p.hardware = required("hardware");
  p.unit = required("unit");
  p.source = required("source");
  p.value = value_of("value").is_number() ? value_of("value").get<double>() : 0;
  if (!(p.value > 0 && std::isfinite(p.value)))
    throw_input_error("{}: the field 'value' is {}; it must be a number above 0.", where,
                      json.contains("value") ? json_excerpt(json["value"]) : "missing");
  p.metric = text("metric");
  p.engine = text("engine");
  p.model = text("model");
  p.model_shape = text("model_shape");
  p.precision = text("precision");
  p.submission = text("submission");
  constexpr double kMostTokens = 1e8;
  p.batch = number("batch", 1, 1e6);
  p.tokens = number("tokens", 1, kMostTokens);
  p.prefix_tokens = number("prefix_tokens", 0, kMostTokens);
  p.prompt_tokens = number("prompt_tokens", 0, kMostTokens);
  p.generated_tokens = number("generated_tokens", 0, kMostTokens);
  p.transfer_bytes = number("transfer_bytes", 1, 1e12);
  p.descriptors = number("descriptors", 1, 1e9);
  p.context = number("context", 0, kMostTokens);
  if (!p.context) p.context = mean_context(text("context"));
  p.gpus = static_cast<std::uint32_t>(number("gpus", 0, 1e6).value_or(1));
  return p;
}

}  // namespace

std::vector<MeasuredPoint> parse_points(std::string_view text, const std::string& file) {
  const Json json = parse_ordered_json(text, file);
  if (!json.is_object() || !json.contains("points") || !json["points"].is_array())
    throw_input_error("{}: a file of measured points is an object with a list 'points'.", file);
  std::vector<MeasuredPoint> points;
  std::set<std::string> ids;
  for (const Json& entry : json["points"]) {
    points.push_back(read_point(entry, file, points.size()));
    if (!ids.insert(points.back().id).second)
      throw_input_error("{}: the id '{}' occurs twice.", file, points.back().id);
  }
  if (points.empty()) throw_input_error("{}: the list 'points' is empty.", file);
  return points;
}

UnitKind unit_kind(const MeasuredPoint& point) {
  if (point.unit == "GB/s") return UnitKind::bytes_per_second;
  if (point.unit == "tok/s" || point.unit == "tokens/s") return UnitKind::tokens_per_second;
  return nanoseconds(point) ? UnitKind::time : UnitKind::other;
}

std::optional<double> nanoseconds(const MeasuredPoint& point) {
  const std::size_t space = point.unit.find(' ');
  const std::string unit = point.unit.substr(0, space),
                    of = space == std::string::npos ? "" : point.unit.substr(space + 1);
  if (!of.empty() && of != "per layer" && of != "per token" && of != "per transfer" && of != "per call")
    return std::nullopt;
  const double in_ns = unit == "s" ? 1e9 : unit == "ms" ? 1e6 : unit == "us" ? 1e3 : unit == "ns" ? 1 : 0;
  if (in_ns == 0) return std::nullopt;
  return point.value * in_ns;
}

std::optional<HeadShape> head_shape(const MeasuredPoint& point) {
  for (const char* form :
       {"# query heads, # KV heads, head_dim #", "# query heads, # KV head, head_dim #", "#/# heads, d #"}) {
    const auto numbers = numbers_in(point.model_shape, form);
    if (!numbers) continue;
    const HeadShape shape{numbers->at(0), numbers->at(1), numbers->at(2)};
    if (shape.kv_heads == 0 || shape.q_heads % shape.kv_heads != 0 || shape.head_dim == 0) return std::nullopt;
    return shape;
  }
  return std::nullopt;
}

std::optional<MatrixShape> matrix_shape(const MeasuredPoint& point) {
  if (const auto numbers = numbers_in(point.model_shape, "N=# K=#")) return MatrixShape{numbers->at(0), numbers->at(1)};
  const std::string preset = preset_of(point.model);
  if (preset.empty()) return std::nullopt;
  const ModelConfig c = preset_config(preset);
  const std::uint64_t q = std::uint64_t{c.q_heads} * c.head_dim, kv = std::uint64_t{c.kv_heads} * c.head_dim;
  const std::pair<const char*, MatrixShape> layers[] = {{"qkv_proj", {q + 2 * kv, c.hidden}},
                                                        {"attn_pre_proj", {q + 2 * kv, c.hidden}},
                                                        {"q_proj", {q, c.hidden}},
                                                        {"attn_post_proj", {c.hidden, q}},
                                                        {"o_proj", {c.hidden, q}},
                                                        {"gate_up_proj", {2 * std::uint64_t{c.intermediate}, c.hidden}},
                                                        {"mlp_up_proj", {2 * std::uint64_t{c.intermediate}, c.hidden}},
                                                        {"gate_proj", {c.intermediate, c.hidden}},
                                                        {"mlp_down_proj", {c.hidden, c.intermediate}},
                                                        {"down_proj", {c.hidden, c.intermediate}},
                                                        {"lm_head", {c.vocab, c.hidden}}};
  for (const auto& [name, shape] : layers)
    if (point.metric.find(name) != std::string::npos) return shape;
  return std::nullopt;
}

std::string preset_of(std::string_view model) {
  const std::string name = lower(std::string(model));
  const auto has = [&](const std::string& part) { return name.find(part) != std::string::npos; };
  for (const char* quantised : {"fp8", "awq", "gptq", "int4"})
    if (has(quantised)) return "";
  for (const std::string& preset : preset_names())
    if (has(preset)) return preset;
  // Models of one shape have one preset.
  static constexpr std::pair<const char*, const char*> kOtherNames[] = {{"llama-7b", "llama-2-7b"},
                                                                        {"mistral 7b", "mistral-7b"},
                                                                        {"llama-3-70b", "llama-3.1-70b"},
                                                                        {"llama-3-8b", "llama-3.1-8b"},
                                                                        {"llama3 8b", "llama-3.1-8b"}};
  for (const auto& [part, preset] : kOtherNames)
    if (has(part)) return preset;
  return "";
}

}  // namespace tandem::eval
