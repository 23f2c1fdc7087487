#include "engine/model/presets.h"

#include <map>

#include "engine/model/model.h"
#include "tests/engine/model/model_folder.h"

namespace tandem::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(Presets, HaveThePublishedNumbersOfParameters) {
  // Totals of the safetensors files on Hugging Face.
  const std::map<std::string, std::uint64_t> published = {
      {"llama-2-7b", 6738415616},     {"llama-2-13b", 13015864320}, {"llama-2-70b", 68976648192},
      {"llama-33b", 32528943616},     {"mistral-7b", 7241732096},   {"llama-3.1-8b", 8030261248},
      {"llama-3.1-70b", 70553706496}, {"llama-3.2-1b", 1235814400}, {"qwen2.5-0.5b", 494032768},
      {"qwen2.5-7b", 7615616512},     {"qwen2.5-14b", 14770033664}, {"qwen2.5-32b", 32763876352},
      {"qwen3-0.6b", 596049920},      {"qwen3-1.7b", 1720574976},   {"qwen3-4b", 4022468096},
      {"qwen3-8b", 8190735360},       {"qwen3-14b", 14768307200},   {"qwen3-32b", 32762123264},
  };
  EXPECT_EQ(preset_names().size(), published.size());
  for (const auto& [name, count] : published) EXPECT_EQ(parameter_count(preset_config(name)), count) << name;
}

TEST(Presets, UnknownOnesAreSentences) {
  EXPECT_THAT(sentence_of([] { preset_config("qwen3-8"); }), HasSubstr("Did you mean 'qwen3-8b'?"));
  EXPECT_THAT(sentence_of([] { load_model("synthetic:llama-3.1-8B"); }),
              AllOf(HasSubstr("'llama-3.1-8B'"), HasSubstr("Did you mean 'llama-3.1-8b'?")));
  EXPECT_THAT(sentence_of([] { load_model("synthetic:"); }), HasSubstr("There are llama-2-7b"));
}

TEST(Presets, WhatExceedsTheMemoryIsRefusedBeforeItIsTried) {
  ModelConfig config = preset_config("qwen3-32b");
  config.layers = 1024;
  EXPECT_THAT(sentence_of([&] { random_weights(config, DType::f32, 1); }), HasSubstr("GB of free memory"));
}

}  // namespace
}  // namespace tandem::testing
