// config.json, and generation_config.json beside it.
#include "engine/model/config.h"
#include "engine/model/presets.h"
#include "tests/fuzz/fuzz.h"
#include "tests/golden/golden.h"

int main(int argc, char** argv) {
  using namespace tandem;
  const fuzz::ScratchFolder folder;
  fuzz::Target target;
  for (const char* name : {"tiny_llama31", "tiny_qwen2", "tiny_qwen25", "tiny_qwen3"})
    target.seeds.push_back(fuzz::read_seed((testing::golden_folder() / name / "config.json").string()));
  target.consume = [&](const std::string& input) {
    folder.write("config.json", input);
    folder.write("generation_config.json", R"({"eos_token_id": [2, 3]})");
    const ModelConfig config = load_config(folder.path());
    if (config.layers <= 64) parameter_count(config);
    make_rope_table(config.head_dim, config.rope);
  };
  return fuzz::run(argc, argv, target);
}
