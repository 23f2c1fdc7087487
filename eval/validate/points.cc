#include "eval/validate/points.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>
#include <vector>

#include "engine/common/error.h"
#include "engine/common/json.h"
#include "engine/model/presets.h"

namespace tandem::eval {
namespace {

using Json = nlohmann::ordered_json;

class PointReader {
 public:
  PointReader(const Json& json, std::string where) : json_(json), where_(std::move(where)) {
    if (!json.is_object()) throw_input_error("{} is {}; a point is an object.", where_, json_excerpt(json));
  }

  std::string required(const char* field) const {
    std::string text = optional_text(field);
    if (text.empty()) throw_input_error("{}: the field '{}' is missing or empty.", where_, field);
    return text;
  }

  /// Empty where the field is absent or holds no text.
  std::string optional_text(const char* field) const {
    const auto found = json_.find(field);
    return found != json_.end() && found->is_string() ? found->get<std::string>() : "";
  }

  /// nullopt where the field is absent, null or a text: some sources give a batch or a context in words.
  std::optional<double> number(const char* field, double least, double most) const {
    const auto found = json_.find(field);
    if (found == json_.end() || found->is_null() || found->is_string()) return std::nullopt;
    const double value = found->is_number() ? found->get<double>() : std::nan("");
    if (!(value >= least && value <= most))
      throw_input_error("{}: the field '{}' is {}; it must be a number from {} to {}.", where_, field,
                        json_excerpt(*found), least, most);
    return value;
  }

  double positive(const char* field) const {
    const auto found = json_.find(field);
    const double value = found != json_.end() && found->is_number() ? found->get<double>() : 0;
    if (!(value > 0 && std::isfinite(value)))
      throw_input_error("{}: the field '{}' is {}; it must be a number above 0.", where_, field,
                        json_.contains(field) ? json_excerpt(json_.at(field)) : "missing");
    return value;
  }

 private:
  const Json& json_;
  std::string where_;
};

/// Matches the beginning of `text` with `form`, where each '#' is a number of at most 8 digits; returns the numbers.
std::optional<std::vector<std::uint32_t>> numbers_at(std::string_view text, std::string_view form) {
  std::vector<std::uint32_t> numbers;
  for (const char c : form) {
    if (c != '#') {
      if (!text.starts_with(c)) return std::nullopt;
      text.remove_prefix(1);
      continue;
    }
    std::uint32_t& number = numbers.emplace_back();
    std::size_t digits = 0;
    for (; !text.empty() && text.front() >= '0' && text.front() <= '9'; text.remove_prefix(1)) {
      if (++digits > 8) return std::nullopt;
      number = 10 * number + static_cast<std::uint32_t>(text.front() - '0');
    }
    if (digits == 0) return std::nullopt;
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
  for (const Form& form : kForms) {
    if (const auto numbers = numbers_at(text, form.text))
      return form.first * numbers->front() + form.second * numbers->back();
  }
  return std::nullopt;
}

MeasuredPoint read_point(const Json& json, const std::string& file, std::size_t index) {
  const PointReader numbered(json, fmt::format("{}: points[{}]", file, index));
  MeasuredPoint p;
  p.id = numbered.required("id");
  const PointReader reader(json, fmt::format("{}: the point '{}'", file, p.id));
  p.kind = reader.required("kind");
  p.hardware = reader.required("hardware");
  p.unit = reader.required("unit");
  p.source = reader.required("source");
  p.value = reader.positive("value");
  p.metric = reader.optional_text("metric");
  p.engine = reader.optional_text("engine");
  p.model = reader.optional_text("model");
  p.model_shape = reader.optional_text("model_shape");
  p.precision = reader.optional_text("precision");
  p.submission = reader.optional_text("submission");
  p.note = reader.optional_text("note");
  constexpr double kMostTokens = 1e8;
  p.batch = reader.number("batch", 1, 1e6);
  p.tokens = reader.number("tokens", 1, kMostTokens);
  p.prefix_tokens = reader.number("prefix_tokens", 0, kMostTokens);
  p.prompt_tokens = reader.number("prompt_tokens", 0, kMostTokens);
  p.generated_tokens = reader.number("generated_tokens", 0, kMostTokens);
  p.transfer_bytes = reader.number("transfer_bytes", 1, 1e12);
  p.descriptors = reader.number("descriptors", 1, 1e9);
  p.context = reader.number("context", 0, kMostTokens);
  p.context_text = reader.optional_text("context");
  if (!p.context) p.context = mean_context(p.context_text);
  p.gpus = static_cast<std::uint32_t>(reader.number("gpus", 0, 1e6).value_or(1));
  return p;
}

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
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
  struct Layer {
    const char* name;
    MatrixShape shape;
  };
  const Layer layers[] = {{"qkv_proj", {q + 2 * kv, c.hidden}},
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
  for (const Layer& layer : layers)
    if (point.metric.find(layer.name) != std::string::npos) return layer.shape;
  return std::nullopt;
}

std::string preset_of(std::string_view model) {
  const std::string name = lower(model);
  const auto has = [&](const char* part) { return name.find(part) != std::string::npos; };
  for (const char* quantised : {"fp8", "awq", "gptq", "int4"})
    if (has(quantised)) return "";
  for (const char* preset : {"llama-2-7b", "llama-2-70b", "mistral-7b", "llama-3.2-1b", "qwen2.5-0.5b", "qwen3-0.6b",
                             "llama-3.1-70b", "llama-3.1-8b", "qwen2.5-7b", "qwen2.5-14b", "qwen2.5-32b", "qwen3-1.7b",
                             "qwen3-4b", "qwen3-8b", "qwen3-14b", "qwen3-32b"})
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
