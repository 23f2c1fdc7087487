#include "engine/model/config.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "engine/common/error.h"
#include "engine/model/json_fields.h"

namespace tandem {

using Json = nlohmann::json;

namespace {

/// What transformers takes for a field that is missing.
struct FamilyDefaults {
  std::uint32_t hidden, intermediate, layers, q_heads, vocab, max_positions;
};
constexpr FamilyDefaults kLlamaDefaults = {4096, 11008, 32, 32, 32000, 2048};
constexpr FamilyDefaults kQwenDefaults = {4096, 22016, 32, 32, 151936, 32768};
constexpr double kDefaultEps = 1e-6;

/// A Llama's head dimension follows from the others where it is null, a Qwen2's where it is missing; a Qwen3's is 128.
std::uint32_t read_head_dim(const JsonFields& fields, const ModelConfig& c) {
  constexpr std::uint32_t kMost = 1024, kQwen3 = 128;
  const bool divides = c.hidden % c.q_heads == 0;
  if (c.architecture == "llama" && !divides)
    throw_input_error("{}: field 'hidden_size' is {}, which field 'num_attention_heads', {}, does not divide.",
                      fields.file(), c.hidden, c.q_heads);
  const bool given = c.architecture == "llama" ? fields.has("head_dim") : fields.contains("head_dim");
  if (given) return fields.size("head_dim", kMost);
  if (c.architecture == "qwen3") return kQwen3;
  if (!divides)
    throw_input_error("{}: field 'hidden_size' is {}, which {} heads do not divide, and 'head_dim' is missing.",
                      fields.file(), c.hidden, c.q_heads);
  return c.hidden / c.q_heads;
}

/// Layers with a sliding window are not supported. Which they are, layer_types says, or else max_window_layers; both
/// count only where use_sliding_window is true, and in Qwen's models.
void check_windows(const JsonFields& fields, const ModelConfig& c) {
  constexpr std::uint32_t kWindowLayers = 28;
  if (fields.has("layer_types")) {
    const Json& types = fields["layer_types"];
    if (!types.is_array()) fields.bad("layer_types", types, "a list with an entry for each layer");
    if (types.size() != c.layers)
      throw_input_error("{}: field 'layer_types' has {} entries, but field 'num_hidden_layers' is {}.", fields.file(),
                        types.size(), c.layers);
    for (const Json& type : types)
      if (type != "full_attention") fields.bad("layer_types", type, "\"full_attention\" in every layer");
    return;
  }
  if (c.architecture == "llama" || fields.flag("use_sliding_window") != true) return;
  if (fields.contains("sliding_window") && fields["sliding_window"].is_null()) return;
  const std::uint32_t first = fields.contains("max_window_layers") && fields["max_window_layers"] == 0
                                  ? 0
                                  : fields.size_or("max_window_layers", 1u << 20, kWindowLayers);
  if (first < c.layers)
    fields.bad("use_sliding_window",
               fmt::format("false, or a 'max_window_layers' of all {} layers (windows are not supported)", c.layers));
}

/// The type of the tensors is their own affair, but a name that PyTorch does not know is a mistake to transformers.
void check_dtype(const JsonFields& fields) {
  const char* name = fields.has("dtype") ? "dtype" : "torch_dtype";
  if (!fields.has(name)) return;
  const std::vector<std::string> known = {"float32", "float",         "float16",     "half", "bfloat16",
                                          "float64", "float8_e4m3fn", "float8_e5m2", "int8", "uint8"};
  if (std::ranges::find(known, fields.text(name)) == known.end())
    fields.bad(name, "a type of PyTorch such as \"bfloat16\"");
}

/// generation_config.json decides alone where it exists. An id without a row is never said.
std::vector<std::int32_t> read_stop_tokens(const JsonFields& fields, const std::filesystem::path& folder,
                                           std::uint32_t vocab) {
  constexpr std::uint32_t kAnyToken = 1u << 31;
  const std::filesystem::path generation = folder / "generation_config.json";
  if (!path_exists(generation)) {
    const bool list = fields.has("eos_token_id") && fields["eos_token_id"].is_array();
    return fields.tokens("eos_token_id", list ? kAnyToken : vocab);
  }
  const Json other = read_json_object(generation);
  return JsonFields(other, generation.string()).tokens("eos_token_id", kAnyToken);
}

}  // namespace

ModelConfig load_config(const std::filesystem::path& folder) {
  const std::filesystem::path file = folder / "config.json";
  const Json json = read_json_object(file);
  const JsonFields fields(json, file.string());
  ModelConfig c;
  c.architecture = fields.text("model_type");
  const std::vector<std::string> known = {"llama", "qwen2", "qwen3"};
  if (std::ranges::find(known, c.architecture) == known.end())
    throw_input_error("{}: field 'model_type' is \"{}\"; this version runs {}.", file.string(), c.architecture,
                      join_names(known));
  c.qk_norm = c.architecture == "qwen3";
  c.qkv_bias = c.architecture == "qwen2";
  const FamilyDefaults& otherwise = c.architecture == "llama" ? kLlamaDefaults : kQwenDefaults;
  c.layers = fields.size_or("num_hidden_layers", 1024, otherwise.layers);
  c.hidden = fields.size_or("hidden_size", 1u << 17, otherwise.hidden);
  c.intermediate = fields.size_or("intermediate_size", 1u << 20, otherwise.intermediate);
  c.q_heads = fields.size_or("num_attention_heads", 1024, otherwise.q_heads);
  // Missing is not null in Qwen's files.
  const bool own_kv_heads = fields.has("num_key_value_heads");
  const std::uint32_t no_kv_heads =
      c.architecture == "llama" || fields.contains("num_key_value_heads") ? c.q_heads : otherwise.q_heads;
  c.kv_heads = own_kv_heads ? fields.size("num_key_value_heads", 1024) : no_kv_heads;
  c.vocab = fields.size_or("vocab_size", 1u << 21, otherwise.vocab);
  c.max_positions = fields.size_or("max_position_embeddings", 1u << 24, otherwise.max_positions);
  if (c.q_heads % c.kv_heads != 0 || c.q_heads / c.kv_heads > 32)
    throw_input_error(
        "{}: field 'num_key_value_heads' is {}, which does not divide the {} query heads into groups of 1 to 32.",
        file.string(), c.kv_heads, c.q_heads);
  c.head_dim = read_head_dim(fields, c);
  if (c.head_dim % 2 != 0)
    throw_input_error("{}: the head dimension is {}; RoPE needs an even one.", file.string(), c.head_dim);
  c.rms_eps = static_cast<float>(fields.contains("rms_norm_eps") ? fields.number("rms_norm_eps", 0, 1) : kDefaultEps);
  c.rope = read_rope(json, file.string(), c.max_positions);
  if (c.rope.scaling.type == RopeScaling::Type::yarn) {  // Qwen's files keep the unstretched length in this field
    const double stretched = c.rope.scaling.factor * c.rope.scaling.original_positions;
    c.max_positions = std::max(c.max_positions, static_cast<std::uint32_t>(std::min(stretched, double(1u << 24))));
  }
  // Of these, a Qwen2 has the first whatever the field says, and no Qwen has the second.
  if (c.architecture != "qwen2" && fields.flag("attention_bias") == true)
    fields.bad("attention_bias", "false (not supported yet)");
  if (c.architecture == "llama" && fields.flag("mlp_bias") == true) fields.bad("mlp_bias", "false (not supported yet)");
  if (fields.has("quantization_config"))
    fields.bad("quantization_config", "null (quantised weights are not supported)");
  check_windows(fields, c);
  check_dtype(fields);
  if (fields.has("hidden_act") && fields.text("hidden_act") != "silu" && fields.text("hidden_act") != "swish")
    fields.bad("hidden_act", "\"silu\", also called \"swish\"");
  if (fields.contains("tie_word_embeddings") && fields["tie_word_embeddings"].is_null())
    fields.bad("tie_word_embeddings", "true or false");
  c.tied_embeddings = fields.flag("tie_word_embeddings").value_or(false);
  const std::vector<std::int32_t> bos = fields.tokens("bos_token_id", c.vocab);
  if (!bos.empty()) c.bos = bos.front();
  c.stop_tokens = read_stop_tokens(fields, folder, c.vocab);
  return c;
}

}  // namespace tandem
