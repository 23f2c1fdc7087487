// A safetensors file: its header, its lengths and its tensors.
#include "engine/model/config.h"
#include "engine/model/safetensors.h"
#include "engine/model/weights.h"
#include "tests/fuzz/fuzz.h"
#include "tests/golden/golden.h"

int main(int argc, char** argv) {
  using namespace tandem;
  const fuzz::ScratchFolder folder;
  const ModelConfig config = load_config(testing::golden_folder() / "tiny_qwen2");
  const std::string whole = fuzz::read_seed((testing::golden_folder() / "tiny_qwen2" / "model.safetensors").string());
  fuzz::Target target;
  const std::string small =
      R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"b":{"dtype":"BF16","shape":[2,3],)"
      R"("data_offsets":[4,16]},"__metadata__":{"format":"pt"}})";
  std::string length(8, '\0');
  length[0] = static_cast<char>(small.size());
  target.seeds = {length + small + std::string(16, 'x')};
  // The damage belongs into the header, so the tensors of the whole model follow unchanged.
  const std::size_t header = 8 + static_cast<unsigned char>(whole[0]) + 256u * static_cast<unsigned char>(whole[1]);
  target.seeds.push_back(whole.substr(0, header));
  target.consume = [&](const std::string& input) {
    const bool model = input.size() > 1000;
    folder.write("model.safetensors", model ? input + whole.substr(header) : input);
    if (model) {
      load_weights(folder.path(), config);
    } else {
      TensorFiles::open_folder(folder.path());
    }
  };
  return fuzz::run(argc, argv, target);
}
