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
                                 {"architectures", {"LlamaForCausalLM"}},
                                 {"head_dim", 15},
                                 {"head_dim", 2000},
                                 {"num_key_value_heads", 4},
                                 {"num_attention_heads", 100},
                                 {"rms_norm_eps", -1},
                                 {"rms_norm_eps", 0},
                                 {"rms_norm_eps", 2},
                                 {"rms_norm_eps", "1e-6"},
                                 {"rms_norm_eps", nullptr},
                                 {"rope_theta", 0},
                                 {"rope_theta", "big"},
                                 {"rope_theta", 1e300},
                                 {"rope_parameters", 3},
                                 {"rope_scaling", "yarn"},
                                 {"attention_bias", true},
                                 {"attention_bias", 1},
                                 {"mlp_bias", true},
                                 {"use_sliding_window", true},
                                 {"hidden_act", "gelu"},
                                 {"hidden_act", 1},
                                 {"eos_token_id", 128},
                                 {"eos_token_id", -1},
                                 {"eos_token_id", "x"},
                                 {"eos_token_id", 1.5},
                                 {"bos_token_id", 128},
                                 {"tie_word_embeddings", "yes"},
                                 {"quantization_config", {{"bits", 4}}},
                                 {"partial_rotary_factor", 0.5},
                                 {"layer_types", {"full_attention", "sliding_attention"}}};
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

TEST_F(Config, AMissingFieldIsNamed) {
  for (const char* name : {"model_type", "num_hidden_layers", "hidden_size", "intermediate_size", "num_attention_heads",
                           "vocab_size", "max_position_embeddings", "rms_norm_eps"}) {
    Json json = sound_config();
    json.erase(name);
    EXPECT_THAT(sentence(json), AllOf(HasSubstr(std::string("'") + name + "'"), HasSubstr("missing")));
  }
}

TEST_F(Config, StopTokensComeFromBothFiles) {
  Json json = sound_config();
  json["eos_token_id"] = {2, 5};
  const auto generation = folder_.path() / "generation_config.json";
  write_bytes(generation, R"({"eos_token_id": [5, 9]})");
  EXPECT_EQ(load(json).stop_tokens, (std::vector<std::int32_t>{2, 5, 9}));
  write_bytes(generation, R"({"eos_token_id": 7})");
  EXPECT_EQ(load(json).stop_tokens, (std::vector<std::int32_t>{2, 5, 7}));
  json.erase("eos_token_id");
  write_bytes(generation, "{}");
  EXPECT_THAT(load(json).stop_tokens, ::testing::IsEmpty());
  for (const char* text : {R"({"eos_token_id": [5, "x"]})", R"({"eos_token_id": 128})", "[", ""}) {
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
