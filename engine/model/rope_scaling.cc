#include "engine/model/rope_scaling.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

#include "engine/model/json_fields.h"

namespace tandem {
namespace {

using Json = nlohmann::json;

constexpr double kMostFactor = 4096;

/// 0 and null count as nothing.
double optional_number(const JsonFields& fields, const char* name, double otherwise, double most) {
  return fields.has(name) && fields[name] != 0 ? fields.number(name, 0, most) : otherwise;
}

/// `name`: of the field.
RopeScaling::Type read_type(const JsonFields& fields, const char* name) {
  if (!fields.contains(name)) return RopeScaling::Type::none;
  const std::pair<const char*, RopeScaling::Type> types[] = {{"default", RopeScaling::Type::none},
                                                             {"dynamic", RopeScaling::Type::none},
                                                             {"linear", RopeScaling::Type::linear},
                                                             {"llama3", RopeScaling::Type::llama3},
                                                             {"yarn", RopeScaling::Type::yarn}};
  for (const auto& [text, type] : types)
    if (fields[name] == text) return type;
  fields.bad(name, "\"default\", \"linear\", \"dynamic\", \"llama3\" or \"yarn\"");
}

/// Yarn's growth of attention with the stretch: 0.1 m ln(factor) + 1.
double yarn_magnitude(double factor, double m) {
  return factor <= 1 ? 1 : 0.1 * m * std::log(factor) + 1;
}

/// The context before stretching that transformers takes: the one beside the group has the last word.
std::uint32_t original_positions(const JsonFields& beside, const JsonFields& fields, std::uint32_t max_positions) {
  constexpr const char* kName = "original_max_position_embeddings";
  if (beside.has(kName)) return beside.size(kName, 1u << 24);
  return fields.has(kName) ? fields.size(kName, 1u << 24) : max_positions;
}

/// What YaRN multiplies cosine and sine by.
double attention_factor(const JsonFields& fields, double factor) {
  if (fields.has("attention_factor")) return fields.number("attention_factor", 0, 1e3);
  const auto magnitude = [&](const char* name) { return optional_number(fields, name, 0, 1e3); };
  const double scale = magnitude("mscale"), all_dimensions = magnitude("mscale_all_dim");
  if (scale == 0 || all_dimensions == 0) return yarn_magnitude(factor, 1);
  return yarn_magnitude(factor, scale) / yarn_magnitude(factor, all_dimensions);
}

/// `beside`: config.json itself, which holds the group `fields`.
RopeScaling read_scaling(const JsonFields& beside, const JsonFields& fields, std::uint32_t max_positions) {
  RopeScaling s;
  const char* const type = fields.contains("rope_type") ? "rope_type" : "type";  // its older name
  s.type = read_type(fields, type);
  if (s.type == RopeScaling::Type::none) {
    if (fields.contains(type) && fields[type] == "dynamic") {
      fields.number("factor", 0, kMostFactor);
    } else if (fields.has("factor") && fields["factor"] != 1) {
      fields.bad("factor", "no factor other than 1 where the type is \"default\"");
    }
    return s;
  }
  // Only where nothing is stretched does transformers turn every dimension whatever this says.
  constexpr const char* kPart = "partial_rotary_factor";
  const JsonFields& place = fields.contains(kPart) ? fields : beside;
  if ((fields.contains(kPart) || beside.has(kPart)) && place.number(kPart, 0, 1) != 1) place.bad(kPart, "1");
  if (s.type == RopeScaling::Type::linear) {
    s.factor = fields.number("factor", 0, kMostFactor);
    if (s.factor < 1) fields.bad("factor", "a number from 1 to 4096");
    return s;
  }
  s.original_positions = original_positions(beside, fields, max_positions);
  if (s.type == RopeScaling::Type::yarn && fields.contains("factor") && fields["factor"].is_null()) {
    s.factor = double(max_positions) / s.original_positions;  // null: as much as the two contexts say
  } else {
    s.factor = fields.number("factor", 0, kMostFactor);
  }
  if (!(s.factor >= 1 && s.factor <= kMostFactor)) fields.bad("factor", "a number from 1 to 4096");
  if (s.type == RopeScaling::Type::llama3) {
    s.low_freq_factor = fields.number("low_freq_factor", 0, 1e6);
    s.high_freq_factor = fields.number("high_freq_factor", 0, 1e6);
    if (s.high_freq_factor <= s.low_freq_factor) fields.bad("high_freq_factor", "a number above low_freq_factor");
    return s;
  }
  s.beta_fast = optional_number(fields, "beta_fast", 32, 1e6);
  s.beta_slow = optional_number(fields, "beta_slow", 1, 1e6);
  s.truncate = fields.flag("truncate").value_or(true);
  s.attention_factor = attention_factor(fields, s.factor);
  return s;
}

/// 0 keeps a dimension's frequency, 1 divides it by the factor.
double llama3_share(double frequency, const RopeScaling& s) {
  const double turns = s.original_positions * frequency / (2 * std::numbers::pi);  // within the original context
  return 1 - std::clamp((turns - s.low_freq_factor) / (s.high_freq_factor - s.low_freq_factor), 0.0, 1.0);
}

/// The dimension that makes `turns` turns within the original context.
double yarn_dimension(double turns, std::uint32_t head_dim, double theta, const RopeScaling& s) {
  return head_dim * std::log(s.original_positions / (turns * 2 * std::numbers::pi)) / (2 * std::log(theta));
}

}  // namespace

RopeConfig read_rope(const Json& config, const std::string& file, std::uint32_t max_positions) {
  constexpr double kDefaultTheta = 10000, kMostTheta = 1e12;
  const JsonFields fields(config, file);
  const char* name = "rope_parameters";
  for (const char* group : {"rope_scaling", "rope_parameters"}) {
    if (fields.has(group) && !config[group].is_object()) fields.bad(group, "an object or null");
    if (!fields.has(group) || config[group].empty()) continue;
    name = group;
    break;
  }
  const Json group = fields.has(name) ? config[name] : Json::object();
  const JsonFields inner(group, fmt::format("{}, {}", file, name));
  for (const char* type : {"full_attention", "sliding_attention"})
    if (group.contains(type))
      inner.bad(type, "one group for all layers (transformers reads no other for these families)");
  RopeConfig rope;
  const JsonFields& place = group.contains("rope_theta") ? inner : fields;
  rope.theta = place.contains("rope_theta") ? place.number("rope_theta", 1, kMostTheta) : kDefaultTheta;
  rope.scaling = read_scaling(fields, inner, max_positions);
  return rope;
}

RopeTable make_rope_table(std::uint32_t head_dim, const RopeConfig& rope) {
  RopeTable table(head_dim, rope.theta);
  const RopeScaling& s = rope.scaling;
  double low = 0, high = 0;
  if (s.type == RopeScaling::Type::yarn) {
    low = yarn_dimension(s.beta_fast, head_dim, rope.theta, s);
    high = yarn_dimension(s.beta_slow, head_dim, rope.theta, s);
    if (s.truncate) {
      low = std::floor(low);
      high = std::ceil(high);
    }
    low = std::max(low, 0.0);
    high = std::min(high, head_dim - 1.0);
    if (low == high) high += 0.001;
    table.scale = s.attention_factor;
  }
  for (std::size_t i = 0; i < table.inverse_frequency.size(); ++i) {
    double& frequency = table.inverse_frequency[i];
    double share = s.type == RopeScaling::Type::linear ? 1 : 0;
    if (s.type == RopeScaling::Type::llama3) share = llama3_share(frequency, s);
    if (s.type == RopeScaling::Type::yarn) share = std::clamp((double(i) - low) / (high - low), 0.0, 1.0);
    frequency *= (1 - share) + share / s.factor;
  }
  return table;
}

}  // namespace tandem
