#include "engine/model/config.h"

#include <functional>
#include <sys/stat.h>
#include <vector>

#include "engine/common/json.h"
#include "engine/common/paths.h"
#include "tests/engine/model/model_folder.h"

namespace tandem::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

Json sound_config() {
  return parse_json(read_bytes(golden_folder() / "tiny_qwen3" / "config.json"), "JSON");
}

class Config : public ::testing::Test {
 protected:
  ModelConfig load(const Json& json) {
    write_bytes(folder_.path() / "config.json", json_text(json));
    return load_config(folder_.path());
  }
  std::string sentence(const Json& json) {
    return sentence_of([&] { load(json); });
  }
  std::string sentence_of_text(const std::string& text) {
    write_bytes(folder_.path() / "config.json", text);
    return sentence_of([&] { load_config(folder_.path()); });
  }
  TemporaryFolder folder_;
};

TEST_F(Config, ReadsTheEmbeddedModelsShape) {
  const ModelConfig c = load_config(data_path("models/seed"));
  EXPECT_EQ(c.architecture, "qwen3");
  EXPECT_EQ(std::vector<std::uint32_t>(
                {c.layers, c.hidden, c.intermediate, c.q_heads, c.kv_heads, c.head_dim, c.vocab, c.max_positions}),
            std::vector<std::uint32_t>({4, 256, 640, 8, 2, 64, 2048, 16384}));
  EXPECT_FLOAT_EQ(c.rms_eps, 1e-6f);
  EXPECT_EQ(c.rope.theta, 500000.0);
  EXPECT_TRUE(c.qk_norm);
  EXPECT_TRUE(c.tied_embeddings);
  EXPECT_EQ(c.bos, 1);
  EXPECT_EQ(c.stop_tokens, std::vector<std::int32_t>{2});
}

TEST_F(Config, Qwen2HasBiases) {
  const ModelConfig c = load_config(golden_folder() / "tiny_qwen2");
  EXPECT_EQ(c.architecture, "qwen2");
  EXPECT_TRUE(c.qkv_bias);
  EXPECT_FALSE(c.qk_norm);
}

TEST_F(Config, WhatTransformersReadsIsNotRefused) {
  Json json = parse_json(read_bytes(golden_folder() / "tiny_qwen2" / "config.json"), "JSON");
  json["attention_bias"] = true;  // Qwen2 has these biases whatever the field says
  json["hidden_act"] = "swish";
  EXPECT_TRUE(load(json).qkv_bias);
  json["model_type"] = "qwen3";
  EXPECT_THAT(sentence(json), HasSubstr("attention_bias"));
}

TEST_F(Config, LlamaHasNoQkNormAndItsOwnDefaults) {
  Json json = sound_config();
  json["model_type"] = "llama";
  for (const char* name :
       {"head_dim", "num_key_value_heads", "rope_parameters", "tie_word_embeddings", "bos_token_id"}) {
    json.erase(name);
  }
  const ModelConfig c = load(json);
  EXPECT_FALSE(c.qk_norm);
  EXPECT_FALSE(c.tied_embeddings);
  EXPECT_EQ(c.head_dim, c.hidden / c.q_heads);
  EXPECT_EQ(c.kv_heads, c.q_heads);
  EXPECT_EQ(c.rope.theta, 10000.0);
  EXPECT_EQ(c.bos, -1);
}

struct BadField {
  const char* field;
  Json value;
};

TEST_F(Config, EveryBadValueIsNamedWithFileAndField) {
  std::vector<BadField> cases = {{"model_type", "mamba"},
                                 {"model_type", 7},
                                 {"model_type", nullptr},
                                 {"head_dim", 15},
                                 {"head_dim", 2000},
                                 {"num_key_value_heads", 4},
                                 {"num_attention_heads", 100},
                                 {"rms_norm_eps", -1},
                                 {"rms_norm_eps", 0},
                                 {"rms_norm_eps", 2},
                                 {"rms_norm_eps", "1e-6"},
                                 {"rms_norm_eps", nullptr},
                                 {"rope_parameters", 3},
                                 {"rope_scaling", "yarn"},
                                 {"attention_bias", true},
                                 {"attention_bias", 1},
                                 {"torch_dtype", "float31"},
                                 {"dtype", 32},
                                 {"hidden_act", "gelu"},
                                 {"hidden_act", 1},
                                 {"eos_token_id", 128},
                                 {"eos_token_id", -1},
                                 {"eos_token_id", "x"},
                                 {"eos_token_id", 1.5},
                                 {"bos_token_id", 128},
                                 {"tie_word_embeddings", "yes"},
                                 {"quantization_config", {{"bits", 4}}},
                                 {"tie_word_embeddings", nullptr},
                                 {"layer_types", {"full_attention", "sliding_attention"}},
                                 {"layer_types", {"full_attention"}},
                                 {"layer_types", "full_attention"}};
  // Every size: missing, not a number, not whole, none, negative, absurd, beyond 64 bits.
  for (const char* size : {"num_hidden_layers", "hidden_size", "intermediate_size", "num_attention_heads", "vocab_size",
                           "max_position_embeddings"}) {
    for (const Json& value : {Json(nullptr), Json("8"), Json(2.5), Json(0), Json(-3), Json(1ll << 40), Json(~0ull),
                              Json(1e30), Json(true), Json::array({2}), Json::object()}) {
      cases.push_back({size, value});
    }
  }
  for (const BadField& c : cases) {
    Json json = sound_config();
    json[c.field] = c.value;
    const std::string said = sentence(json);
    // A bad count of query heads may show in what is derived from it.
    const bool derived = std::string(c.field) == "num_attention_heads" || std::string(c.field) == "head_dim";
    EXPECT_THAT(said, AllOf(HasSubstr("config.json"), HasSubstr(derived ? "head" : c.field)))
        << c.field << " = " << c.value;
  }
  EXPECT_EQ(sentence(sound_config()), "");  // what the cases above started from
}

TEST_F(Config, MissingFieldsAreTransformersDefaults) {
  Json json = sound_config();
  json.erase("model_type");
  EXPECT_THAT(sentence(json), AllOf(HasSubstr("'model_type'"), HasSubstr("missing")));
  const auto shape = [this](const char* type) {
    const ModelConfig c = load({{"model_type", type}});
    EXPECT_FLOAT_EQ(c.rms_eps, 1e-6f);
    EXPECT_EQ(c.rope, RopeConfig());
    EXPECT_FALSE(c.tied_embeddings);
    return std::vector<std::uint32_t>{c.layers,   c.hidden,   c.intermediate, c.q_heads,
                                      c.kv_heads, c.head_dim, c.vocab,        c.max_positions};
  };
  EXPECT_EQ(shape("llama"), (std::vector<std::uint32_t>{32, 4096, 11008, 32, 32, 128, 32000, 2048}));
  EXPECT_EQ(shape("qwen2"), (std::vector<std::uint32_t>{32, 4096, 22016, 32, 32, 128, 151936, 32768}));
  EXPECT_EQ(shape("qwen3"), (std::vector<std::uint32_t>{32, 4096, 22016, 32, 32, 128, 151936, 32768}));
}

TEST_F(Config, HeadsAreMissingOrNullInTheirOwnWays) {
  Json json = sound_config();  // 6 heads, 3 for keys and values, of 16 dimensions
  json.erase("num_key_value_heads");
  EXPECT_THAT(sentence(json), HasSubstr("'num_key_value_heads' is 32"));
  json["num_key_value_heads"] = nullptr;
  EXPECT_EQ(load(json).kv_heads, 6u);
  json.erase("head_dim");
  EXPECT_EQ(load(json).head_dim, 128u);
  json["head_dim"] = nullptr;
  EXPECT_THAT(sentence(json), HasSubstr("head_dim"));
  json["model_type"] = "llama";
  EXPECT_EQ(load(json).head_dim, 8u);
  json.erase("num_key_value_heads");
  EXPECT_EQ(load(json).kv_heads, 6u);
  json["head_dim"] = 16;
  json["num_attention_heads"] = 5;
  EXPECT_THAT(sentence(json), AllOf(HasSubstr("'hidden_size' is 48"), HasSubstr("'num_attention_heads', 5")));
}

TEST_F(Config, FieldsCountOnlyInTheFamiliesThatHaveThem) {
  Json json = sound_config();
  json.erase("layer_types");
  json.erase("sliding_window");
  json["mlp_bias"] = true;
  json["architectures"] = {"LlamaForCausalLM"};
  json["partial_rotary_factor"] = 0.5;  // plain RoPE turns all dimensions
  EXPECT_EQ(sentence(json), "");
  json["use_sliding_window"] = true;
  EXPECT_EQ(sentence(json), "") << "windows begin at layer 28";
  json["max_window_layers"] = 1;
  EXPECT_THAT(sentence(json), AllOf(HasSubstr("'use_sliding_window'"), HasSubstr("'max_window_layers'")));
  json["sliding_window"] = nullptr;
  EXPECT_EQ(sentence(json), "");
  json["sliding_window"] = 8;
  json["layer_types"] = {"full_attention", "full_attention"};
  EXPECT_EQ(sentence(json), "") << "layer_types has the last word";
  json.erase("layer_types");
  json["model_type"] = "llama";
  EXPECT_THAT(sentence(json), HasSubstr("mlp_bias"));
  json.erase("mlp_bias");
  EXPECT_EQ(sentence(json), "");
}

TEST_F(Config, GenerationConfigDecidesAloneWhatStops) {
  Json json = sound_config();
  json["eos_token_id"] = {2, 5};
  EXPECT_EQ(load(json).stop_tokens, (std::vector<std::int32_t>{2, 5}));
  const auto generation = folder_.path() / "generation_config.json";
  write_bytes(generation, R"({"eos_token_id": [5, 9]})");
  EXPECT_EQ(load(json).stop_tokens, (std::vector<std::int32_t>{5, 9}));
  write_bytes(generation, R"({"eos_token_id": 7})");
  EXPECT_EQ(load(json).stop_tokens, std::vector<std::int32_t>{7});
  for (const char* nothing : {"{}", R"({"eos_token_id": null, "temperature": 0.5})"}) {
    write_bytes(generation, nothing);
    EXPECT_THAT(load(json).stop_tokens, ::testing::IsEmpty());
  }
  for (const char* text : {R"({"eos_token_id": [5, "x"]})", R"({"eos_token_id": -1})", "[", ""}) {
    write_bytes(generation, text);
    EXPECT_THAT(sentence(json), HasSubstr("generation_config.json")) << text;
  }
}

TEST_F(Config, DamagedFilesAreSentences) {
  for (const char* text : {"", "{", "[]", "null", "7", "\xff\xfe{}", "{\"model_type\": \"qw\xffn\"}", "{} {}"}) {
    EXPECT_THAT(sentence_of_text(text), HasSubstr("config.json")) << text;
  }
  // Deep values overflowed the stack where they were copied or printed.
  const std::string deep = std::string(300000, '[') + std::string(300000, ']');
  for (const char* field : {"eos_token_id", "hidden_size", "rope_scaling"}) {
    EXPECT_THAT(sentence_of_text(std::string("{\"model_type\":\"qwen3\",\"") + field + "\":" + deep + "}"),
                HasSubstr("nested"));
  }
  std::filesystem::remove(folder_.path() / "config.json");
  EXPECT_THAT(sentence_of([&] { load_config(folder_.path()); }), HasSubstr("cannot be read"));
  std::filesystem::create_directory(folder_.path() / "config.json");
  EXPECT_THAT(sentence_of([&] { load_config(folder_.path()); }), HasSubstr("not a regular file"));
  std::filesystem::remove(folder_.path() / "config.json");
  ASSERT_EQ(mkfifo((folder_.path() / "config.json").c_str(), 0600), 0);  // must not wait for a writer
  EXPECT_THAT(sentence_of([&] { load_config(folder_.path()); }), HasSubstr("not a regular file"));
}

}  // namespace
}  // namespace tandem::testing
