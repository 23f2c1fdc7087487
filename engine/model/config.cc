#include "engine/model/config.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "engine/common/error.h"
#include "engine/model/json_file.h"

namespace tandem {
namespace {

using Json = nlohmann::json;

class Fields {
 public:
  Fields(const Json& json, std::string file) : json_(json), file_(std::move(file)) {}

  bool has(const char* name) const { return json_.contains(name) && !json_[name].is_null(); }

  std::uint32_t size(const char* name, std::uint32_t most) const {
    const Json& value = get(name);
    if (!value.is_number_integer() || value.get<std::int64_t>() < 1 || value.get<std::int64_t>() > most) {
      bad(name, value, fmt::format("a whole number from 1 to {}", most));
    }
    return value.get<std::uint32_t>();
  }

  double number(const char* name, double above, double most) const {
    const Json& value = get(name);
    if (!value.is_number() || !(value.get<double>() > above) || !(value.get<double>() <= most)) {
      bad(name, value, fmt::format("a number above {} and at most {}", above, most));
    }
    return value.get<double>();
  }

  std::string text(const char* name) const {
    const Json& value = get(name);
    if (!value.is_string()) bad(name, value, "a text");
    return value.get<std::string>();
  }

  bool flag(const char* name, bool otherwise) const {
    if (!has(name)) return otherwise;
    if (!json_[name].is_boolean()) bad(name, json_[name], "true or false");
    return json_[name].get<bool>();
  }

  /// A token id or a list of them.
  std::vector<std::int32_t> tokens(const char* name, std::uint32_t vocab) const {
    std::vector<std::int32_t> out;
    if (!has(name)) return out;
    const Json list = json_[name].is_array() ? json_[name] : Json::array({json_[name]});
    for (const Json& value : list) {
      if (!value.is_number_integer() || value.get<std::int64_t>() < 0 || value.get<std::int64_t>() >= vocab) {
        bad(name, value, fmt::format("token numbers below the vocabulary's {}", vocab));
      }
      out.push_back(value.get<std::int32_t>());
    }
    return out;
  }

  [[noreturn]] void bad(const char* name, const Json& value, const std::string& wanted) const {
    std::string shown = value.dump(-1, ' ', false, Json::error_handler_t::replace);
    if (shown.size() > 60) shown = shown.substr(0, 60) + "...";
    throw_input_error("{}: field '{}' is {}, but {} is needed.", file_, name, shown, wanted);
  }

 private:
  const Json& get(const char* name) const {
    if (!has(name)) throw_input_error("{}: field '{}' is missing.", file_, name);
    return json_[name];
  }

  const Json& json_;
  std::string file_;
};

/// Older writers have rope_theta and rope_scaling, newer ones both inside rope_parameters. Only plain RoPE passes: a
/// scaled one read as plain gives a model that runs and answers nonsense.
double rope_base(const Fields& fields, const Json& json, const std::string& file) {
  double base = fields.has("rope_theta") ? fields.number("rope_theta", 1, 1e12) : 10000.0;
  for (const char* group : {"rope_scaling", "rope_parameters"}) {
    if (!fields.has(group)) continue;
    if (!json[group].is_object()) fields.bad(group, json[group], "an object or null");
    const Fields rope(json[group], fmt::format("{}, {}", file, group));
    for (const char* name : {"rope_type", "type"}) {
      if (rope.has(name) && json[group][name] != "default") {
        rope.bad(name, json[group][name], "\"default\" (scaled RoPE is not supported yet)");
      }
    }
    if (rope.has("factor")) rope.bad("factor", json[group]["factor"], "null (scaled RoPE is not supported yet)");
    if (rope.has("partial_rotary_factor") && rope.number("partial_rotary_factor", 0, 1) != 1) {
      rope.bad("partial_rotary_factor", json[group]["partial_rotary_factor"], "1");
    }
    if (rope.has("rope_theta")) base = rope.number("rope_theta", 1, 1e12);
  }
  if (fields.has("partial_rotary_factor") && fields.number("partial_rotary_factor", 0, 1) != 1) {
    fields.bad("partial_rotary_factor", json["partial_rotary_factor"], "1");
  }
  return base;
}

}  // namespace

ModelConfig load_config(const std::filesystem::path& folder) {
  const std::filesystem::path file = folder / "config.json";
  const Json json = read_json_object(file);
  const Fields fields(json, file.string());
  ModelConfig c;
  c.architecture = fields.text("model_type");
  if (c.architecture != "llama" && c.architecture != "qwen3") {
    throw_input_error("{}: field 'model_type' is \"{}\"; this version runs \"llama\" and \"qwen3\".", file.string(),
                      c.architecture);
  }
  c.qk_norm = c.architecture == "qwen3";
  c.layers = fields.size("num_hidden_layers", 1024);
  c.hidden = fields.size("hidden_size", 1u << 17);
  c.intermediate = fields.size("intermediate_size", 1u << 20);
  c.q_heads = fields.size("num_attention_heads", 1024);
  c.kv_heads = fields.has("num_key_value_heads") ? fields.size("num_key_value_heads", 1024) : c.q_heads;
  c.vocab = fields.size("vocab_size", 1u << 21);
  c.max_positions = fields.size("max_position_embeddings", 1u << 24);
  if (c.q_heads % c.kv_heads != 0 || c.q_heads / c.kv_heads > 32) {
    throw_input_error(
        "{}: field 'num_key_value_heads' is {}, which does not divide the {} query heads into groups of 1 to 32.",
        file.string(), c.kv_heads, c.q_heads);
  }
  if (fields.has("head_dim")) {
    c.head_dim = fields.size("head_dim", 1024);
  } else if (c.hidden % c.q_heads != 0) {
    throw_input_error("{}: field 'hidden_size' is {}, which {} heads do not divide, and 'head_dim' is missing.",
                      file.string(), c.hidden, c.q_heads);
  } else {
    c.head_dim = c.hidden / c.q_heads;
  }
  if (c.head_dim % 2 != 0)
    throw_input_error("{}: the head dimension is {}; RoPE needs an even one.", file.string(), c.head_dim);
  c.rms_eps = static_cast<float>(fields.number("rms_norm_eps", 0, 1));
  c.rope_theta = rope_base(fields, json, file.string());
  for (const char* name : {"attention_bias", "mlp_bias", "use_sliding_window"}) {
    if (fields.flag(name, false)) fields.bad(name, json[name], "false (not supported yet)");
  }
  if (fields.has("quantization_config")) {
    fields.bad("quantization_config", json["quantization_config"], "null (quantised weights are not supported)");
  }
  if (fields.has("layer_types")) {
    for (const Json& type : json["layer_types"]) {
      if (type != "full_attention") fields.bad("layer_types", type, "\"full_attention\" in every layer");
    }
  }
  if (fields.has("hidden_act") && fields.text("hidden_act") != "silu")
    fields.bad("hidden_act", json["hidden_act"], "\"silu\"");
  c.tied_embeddings = fields.flag("tie_word_embeddings", false);
  const std::vector<std::int32_t> bos = fields.tokens("bos_token_id", c.vocab);
  if (!bos.empty()) c.bos = bos.front();
  c.stop_tokens = fields.tokens("eos_token_id", c.vocab);
  const std::filesystem::path generation = folder / "generation_config.json";
  if (path_exists(generation)) {
    const Json other = read_json_object(generation);
    const Fields more(other, generation.string());
    for (const std::int32_t token : more.tokens("eos_token_id", c.vocab)) {
      if (std::find(c.stop_tokens.begin(), c.stop_tokens.end(), token) == c.stop_tokens.end())
        c.stop_tokens.push_back(token);
    }
  }
  return c;
}

}  // namespace tandem
