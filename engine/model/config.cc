#include "engine/model/config.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "engine/common/error.h"
#include "engine/model/json_fields.h"
#include "engine/model/json_file.h"

namespace tandem {

using Json = nlohmann::json;

namespace {

/// InputError where "architectures" names the model class of another family than "model_type" does: one of the two
/// fields was edited, and which weights these are nobody knows.
void check_architectures(const JsonFields& fields, const Json& json, const std::string& type) {
  const std::pair<const char*, const char*> families[] = {
      {"llama", "LlamaForCausalLM"}, {"qwen2", "Qwen2ForCausalLM"}, {"qwen3", "Qwen3ForCausalLM"}};
  if (!fields.has("architectures") || !json["architectures"].is_array()) return;
  for (const auto& [family, name] : families)
    for (const Json& architecture : json["architectures"])
      if (architecture == name && family != type)
        fields.bad("architectures", json["architectures"],
                   fmt::format("what belongs to the 'model_type' \"{}\"", type));
}

}  // namespace

ModelConfig load_config(const std::filesystem::path& folder) {
  const std::filesystem::path file = folder / "config.json";
  const Json json = read_json_object(file);
  const JsonFields fields(json, file.string());
  ModelConfig c;
  c.architecture = fields.text("model_type");
  const std::vector<std::string> known = {"llama", "qwen2", "qwen3"};
  if (std::find(known.begin(), known.end(), c.architecture) == known.end()) {
    throw_input_error("{}: field 'model_type' is \"{}\"; this version runs {}.", file.string(), c.architecture,
                      join_names(known));
  }
  check_architectures(fields, json, c.architecture);
  c.qk_norm = c.architecture == "qwen3";
  c.qkv_bias = c.architecture == "qwen2";
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
  c.rope = read_rope(json, file.string(), c.max_positions);
  if (c.rope.scaling.type == RopeScaling::Type::yarn) {  // Qwen's files keep the unstretched length in this field
    const double stretched = c.rope.scaling.factor * c.rope.scaling.original_positions;
    c.max_positions = std::max(c.max_positions, static_cast<std::uint32_t>(std::min(stretched, double(1u << 24))));
  }
  for (const char* name : {"attention_bias", "mlp_bias", "use_sliding_window"}) {
    const bool says_nothing = c.architecture == "qwen2" && std::string_view(name) == "attention_bias";
    if (fields.flag(name, false) && !says_nothing) fields.bad(name, json[name], "false (not supported yet)");
  }
  if (fields.has("quantization_config")) {
    fields.bad("quantization_config", json["quantization_config"], "null (quantised weights are not supported)");
  }
  if (fields.has("layer_types")) {
    for (const Json& type : json["layer_types"]) {
      if (type != "full_attention") fields.bad("layer_types", type, "\"full_attention\" in every layer");
    }
  }
  if (fields.has("hidden_act") && fields.text("hidden_act") != "silu" && fields.text("hidden_act") != "swish")
    fields.bad("hidden_act", json["hidden_act"], "\"silu\", also called \"swish\"");
  c.tied_embeddings = fields.flag("tie_word_embeddings", false);
  const std::vector<std::int32_t> bos = fields.tokens("bos_token_id", c.vocab);
  if (!bos.empty()) c.bos = bos.front();
  c.stop_tokens = fields.tokens("eos_token_id", c.vocab);
  const std::filesystem::path generation = folder / "generation_config.json";
  if (path_exists(generation)) {
    const Json other = read_json_object(generation);
    const JsonFields more(other, generation.string());
    for (const std::int32_t token : more.tokens("eos_token_id", c.vocab)) {
      if (std::find(c.stop_tokens.begin(), c.stop_tokens.end(), token) == c.stop_tokens.end())
        c.stop_tokens.push_back(token);
    }
  }
  return c;
}

}  // namespace tandem
