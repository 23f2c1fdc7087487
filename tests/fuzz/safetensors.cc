// Safetensors files: header, lengths and tensors, and the index of a model in several files.
#include "engine/model/safetensors.h"

#include "engine/model/config.h"
#include "engine/model/weights.h"
#include "tests/files.h"
#include "tests/fuzz/fuzz.h"
#include "tests/golden/golden.h"

namespace tandem::fuzz {

int fuzz_safetensors(int argc, char** argv) {
  const fuzz::ScratchFolder folder, sharded;
  const ModelConfig config = load_config(testing::golden_folder() / "tiny_qwen2");
  const std::string whole = fuzz::read_seed((testing::golden_folder() / "tiny_qwen2" / "model.safetensors").string());
  // The damage belongs into the header, so the tensors of the whole model follow unchanged.
  const std::size_t header = 8 + static_cast<unsigned char>(whole[0]) + 256u * static_cast<unsigned char>(whole[1]);
  const std::string tensors =
      R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"b":{"dtype":"BF16","shape":[2,3],)"
      R"("data_offsets":[4,16]},"__metadata__":{"format":"pt"}})";
  const std::string small = testing::safetensors_bytes(tensors, std::string(16, 'x'));
  sharded.write("model-1.safetensors", small);
  return fuzz::run(argc, argv,
                   {{"file",
                     {small},
                     [&](const std::string& input) {
                       folder.write("model.safetensors", input);
                       TensorFiles::open_folder(folder.path());
                     }},
                    {"model",
                     {whole.substr(0, header)},
                     [&](const std::string& input) {
                       folder.write("model.safetensors", input + whole.substr(header));
                       load_weights(folder.path(), config);
                     }},
                    {"index",
                     {R"({"metadata": {"total_size": 16},)"
                      R"( "weight_map": {"a": "model-1.safetensors", "b": "model-1.safetensors"}})"},
                     [&](const std::string& input) {
                       sharded.write("model.safetensors.index.json", input);
                       TensorFiles::open_folder(sharded.path());
                     }}});
}

}  // namespace tandem::fuzz
