// config.json, and generation_config.json beside it.
#include "engine/model/config.h"

#include "engine/model/presets.h"
#include "tests/fuzz/fuzz.h"
#include "tests/golden/golden.h"

namespace tandem::fuzz {

int fuzz_config(int argc, char** argv) {
  const fuzz::ScratchFolder folder;
  const auto golden = [](const std::string& name) {
    return fuzz::read_seed((testing::golden_folder() / name / "config.json").string());
  };
  const auto read = [&](const std::string& config_json, const std::string& generation) {
    folder.write("config.json", config_json);
    folder.write("generation_config.json", generation);
    const ModelConfig config = load_config(folder.path());
    if (config.layers <= 64) parameter_count(config);
    make_rope_table(config.head_dim, config.rope);
  };
  const std::string generation = R"({"bos_token_id": 1, "eos_token_id": [2, 3], "temperature": 0.6})";
  const std::string config = golden("tiny_qwen25");
  return fuzz::run(argc, argv,
                   {{"config",
                     {golden("tiny_llama31"), golden("tiny_qwen2"), config, golden("tiny_qwen3")},
                     [&](const std::string& input) { read(input, generation); }},
                    {"generation_config", {generation, R"({"eos_token_id": 5})"}, [&](const std::string& input) {
                       read(config, input);
                     }}});
}

}  // namespace tandem::fuzz
