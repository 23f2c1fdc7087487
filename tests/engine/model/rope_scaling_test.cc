#include "engine/model/rope_scaling.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <vector>

#include "engine/common/json.h"
#include "engine/common/paths.h"
#include "engine/model/config.h"
#include "engine/model/model.h"
#include "tests/engine/model/model_folder.h"

namespace tandem::testing {
namespace {

using ::testing::HasSubstr;

RopeConfig read(const Json& config) {
  return read_rope(config, "config.json", 2048);
}

std::string sentence(const Json& config) {
  return sentence_of([&] { read(config); });
}

const Json kLlama3 = {{"rope_type", "llama3"},  {"rope_theta", 5e5},       {"factor", 8.0},
                      {"low_freq_factor", 1.0}, {"high_freq_factor", 4.0}, {"original_max_position_embeddings", 8192}};
const Json kYarn = {{"type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 32768}};

class Frequencies : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Transformers, Frequencies,
                         ::testing::Values("tiny_llama", "tiny_llama31", "tiny_qwen25", "tiny_qwen3", "embedded"),
                         [](const auto& param) { return std::string(param.param); });

TEST_P(Frequencies, AreThoseOfTransformers) {
  const Golden golden = load_golden(GetParam());
  const ModelConfig c =
      load_config(golden.model == "embedded" ? (data_path("models") / kEmbeddedModel).string() : golden.model);
  const RopeTable table = make_rope_table(c.head_dim, c.rope);
  ASSERT_EQ(table.inverse_frequency.size(), golden.inverse_frequency.size());
  for (std::size_t i = 0; i < golden.inverse_frequency.size(); ++i)
    EXPECT_NEAR(table.inverse_frequency[i] / golden.inverse_frequency[i], 1, 1e-6) << i;  // theirs is f32
  EXPECT_NEAR(table.scale, golden.rotation_scale, 1e-12);
}

TEST(RopeScaling, Llama31AtItsTrueShape) {
  // Facts of the published scaling: wavelengths below 2048 stay, above 8192 they grow eight times.
  const RopeTable plain(128, 5e5), table = make_rope_table(128, read({{"rope_parameters", kLlama3}}));
  int kept = 0, divided = 0, blended = 0;
  for (std::size_t i = 0; i < 64; ++i) {
    const double wavelength = 2 * M_PI / plain.inverse_frequency[i];
    const double ratio = table.inverse_frequency[i] / plain.inverse_frequency[i];
    if (wavelength < 2048) {
      EXPECT_DOUBLE_EQ(ratio, 1);
      ++kept;
    } else if (wavelength > 8192) {
      EXPECT_DOUBLE_EQ(ratio, 1.0 / 8);
      ++divided;
    } else {
      EXPECT_GT(ratio, 1.0 / 8);
      EXPECT_LT(ratio, 1);
      ++blended;
    }
  }
  EXPECT_EQ(kept, 29);
  EXPECT_EQ(blended, 6);
  EXPECT_EQ(divided, 29);
  EXPECT_EQ(table.scale, 1);
}

TEST(RopeScaling, OlderAndNewerFilesMeanTheSame) {
  Json newer = kYarn;
  newer.erase("type");
  newer["rope_type"] = "yarn";
  newer["rope_theta"] = 1e6;
  const RopeTable a = make_rope_table(128, read({{"rope_theta", 1e6}, {"rope_scaling", kYarn}}));
  const RopeTable b = make_rope_table(128, read({{"rope_parameters", newer}}));
  EXPECT_EQ(a.inverse_frequency, b.inverse_frequency);
  EXPECT_EQ(a.scale, b.scale);
  EXPECT_NEAR(a.scale, 0.1 * std::log(4.0) + 1, 1e-12);
  EXPECT_EQ(
      read({{"rope_scaling", nullptr}, {"rope_parameters", {{"rope_type", "default"}, {"rope_theta", 77.0}}}}).theta,
      77);
}

TEST(RopeScaling, TheOlderGroupAndTheInnerBaseComeFirst) {
  Json same = kYarn;
  same["rope_theta"] = 1e6;
  const Json plain = {{"rope_type", "default"}, {"rope_theta", 1e5}};
  const RopeConfig yarn = read({{"rope_scaling", same}});
  EXPECT_EQ(yarn.theta, 1e6);
  EXPECT_EQ(read({{"rope_theta", 5e5}, {"rope_scaling", same}, {"rope_parameters", plain}}), yarn);
  EXPECT_EQ(read({{"rope_theta", 1e6}, {"rope_scaling", kYarn}, {"rope_parameters", plain}}), yarn);
  EXPECT_EQ(read({{"rope_theta", 5e5}, {"rope_parameters", plain}}).theta, 1e5);
  EXPECT_EQ(read({{"rope_scaling", kYarn}, {"rope_parameters", plain}}).theta, 10000);
  for (const Json& none : {Json(nullptr), Json::object()}) {
    EXPECT_EQ(read({{"rope_scaling", same}, {"rope_parameters", none}}), yarn);
    EXPECT_EQ(read({{"rope_scaling", none}, {"rope_parameters", same}}), yarn);
  }
  for (const Json& bad : {Json(nullptr), Json(0), Json("big"), Json(1e300)}) {
    EXPECT_THAT(sentence({{"rope_theta", bad}}), HasSubstr("rope_theta"));
    EXPECT_THAT(sentence({{"rope_theta", 5e5}, {"rope_parameters", {{"rope_theta", bad}}}}), HasSubstr("rope_theta"));
  }
  EXPECT_THAT(sentence({{"rope_parameters", {{"full_attention", plain}}}}),
              ::testing::AllOf(HasSubstr("rope_parameters"), HasSubstr("'full_attention'")));
}

TEST(RopeScaling, LinearDividesEveryFrequency) {
  const RopeTable plain(16, 1e4),
      table = make_rope_table(16, read({{"rope_scaling", {{"type", "linear"}, {"factor", 4}}}}));
  for (std::size_t i = 0; i < 8; ++i) EXPECT_DOUBLE_EQ(table.inverse_frequency[i], plain.inverse_frequency[i] / 4);
  EXPECT_EQ(read({{"rope_scaling", {{"type", "dynamic"}, {"factor", 4}}}}), RopeConfig())
      << "up to the model's context";
}

TEST(RopeScaling, TheContextBesideTheGroupHasTheLastWord) {
  for (const Json& scaling : {kYarn, kLlama3}) {
    for (const bool inside : {true, false}) {
      Json group = scaling;
      if (!inside) group.erase("original_max_position_embeddings");
      EXPECT_EQ(read({{"rope_scaling", group}, {"original_max_position_embeddings", 512}}).scaling.original_positions,
                512u);
      EXPECT_THAT(sentence({{"rope_scaling", group}, {"original_max_position_embeddings", "512"}}),
                  HasSubstr("original_max_position_embeddings"));
    }
  }
}

TEST(RopeScaling, WhatTransformersReadsIsNotRefused) {
  const auto yarn = [](const char* field, const Json& value, std::uint32_t max_positions = 2048) {
    Json group = kYarn;
    group["original_max_position_embeddings"] = 256;
    group["mscale"] = 0.7;
    group["mscale_all_dim"] = 0.5;
    group[field] = value;
    return read_rope({{"rope_scaling", group}}, "config.json", max_positions).scaling;
  };
  const double alone = 0.1 * std::log(4.0) + 1;
  EXPECT_NEAR(yarn("mscale", 0.7).attention_factor, (0.07 * std::log(4.0) + 1) / (0.05 * std::log(4.0) + 1), 1e-12);
  for (const char* name : {"mscale", "mscale_all_dim"})
    for (const Json& none : {Json(0), Json(0.0), Json(nullptr)}) EXPECT_EQ(yarn(name, none).attention_factor, alone);
  EXPECT_EQ(yarn("factor", nullptr).factor, 8);
  EXPECT_THAT(sentence_of([&] { yarn("factor", nullptr, 128); }), HasSubstr("'factor'"));
  EXPECT_EQ(read({{"rope_scaling", {{"rope_type", "default"}, {"factor", 1.0}}}}), RopeConfig());
}

TEST(RopeScaling, YarnStretchesTheModelsPositions) {
  Json config = parse_json(read_bytes(golden_folder() / "tiny_qwen25" / "config.json"), "JSON");
  const TemporaryFolder folder;
  config["max_position_embeddings"] = 48;
  write_bytes(folder.path() / "config.json", json_text(config));
  EXPECT_EQ(load_config(folder.path()).max_positions, 192u);
  config["rope_parameters"].erase("original_max_position_embeddings");
  config["max_position_embeddings"] = 100;
  write_bytes(folder.path() / "config.json", json_text(config));
  EXPECT_EQ(load_config(folder.path()).max_positions, 400u);
}

TEST(RopeScaling, WhatIsNotUnderstoodIsRefusedByName) {
  struct Case {
    Json base;
    const char* field;
    Json value;
  };
  for (const char* group : {"rope_scaling", "rope_parameters"}) {
    for (const Case& c : std::vector<Case>{{kLlama3, "rope_type", "longrope"},
                                           {kLlama3, "rope_type", 3},
                                           {kYarn, "type", "spiral"},
                                           {{{"type", "dynamic"}}, "factor", nullptr},
                                           {{{"type", "linear"}}, "factor", 0.5},
                                           {kYarn, "partial_rotary_factor", 0.25},
                                           {{{"rope_type", "default"}}, "factor", 4.0},
                                           {kLlama3, "factor", nullptr},
                                           {kYarn, "mscale", -1},
                                           {kYarn, "mscale_all_dim", "x"},
                                           {kLlama3, "factor", 0.5},
                                           {kLlama3, "factor", "8"},
                                           {kLlama3, "low_freq_factor", nullptr},
                                           {kLlama3, "low_freq_factor", 0},
                                           {kLlama3, "high_freq_factor", 1.0},
                                           {kLlama3, "original_max_position_embeddings", -1},
                                           {kYarn, "beta_fast", -1},
                                           {kYarn, "attention_factor", 0},
                                           {kYarn, "truncate", 1}}) {
      for (const bool with_theta : {false, true}) {  // a base beside the group must not hide it
        Json config = {{group, c.base}};
        config[group][c.field] = c.value;
        if (with_theta) config["rope_theta"] = 5e5;
        const std::string said = sentence(config);
        EXPECT_THAT(said, ::testing::AllOf(HasSubstr(group), HasSubstr(c.field))) << config;
      }
    }
    EXPECT_THAT(sentence({{group, "yarn"}}), HasSubstr(group));
    EXPECT_EQ(sentence({{group, kLlama3}}), "");
    EXPECT_EQ(sentence({{group, kYarn}}), "");
  }
}

}  // namespace
}  // namespace tandem::testing
