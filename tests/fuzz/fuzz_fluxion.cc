// A file of Fluxion's predictor; what is accepted must also run.
#include <nlohmann/json.hpp>

#include "methods/fluxion/predictor.h"
#include "methods/fluxion/selector.h"
#include "tests/fuzz/fuzz.h"

namespace {

void add(nlohmann::json& header, std::string& body, const std::string& name, std::vector<int> shape,
         const char* dtype) {
  const std::size_t begin = body.size();
  std::size_t n = 1;
  for (const int s : shape) n *= static_cast<std::size_t>(s);
  for (std::size_t i = 0; i < n; ++i) {
    const float real = 0.25f + 0.125f * static_cast<float>(i % 7);
    const std::int32_t whole = 2;
    body.append(dtype[0] == 'I' ? reinterpret_cast<const char*>(&whole) : reinterpret_cast<const char*>(&real), 4);
  }
  header[name] = {{"dtype", dtype}, {"shape", shape}, {"data_offsets", {begin, body.size()}}};
}

std::string predictor_bytes(const std::vector<int>& trunk) {
  nlohmann::json header;
  std::string body;
  add(header, body, "feature.mean", {41}, "F32");
  add(header, body, "feature.std", {41}, "F32");
  int in = 41;
  for (std::size_t i = 0; i < trunk.size(); ++i) {
    const std::string name = "trunk." + std::to_string(i);
    add(header, body, name + ".weight", {trunk[i], in}, "F32");
    add(header, body, name + ".bias", {trunk[i]}, "F32");
    in = trunk[i];
  }
  add(header, body, "heads.weight", {3, in}, "F32");
  add(header, body, "heads.bias", {3}, "F32");
  add(header, body, "limits", {2}, "F32");
  add(header, body, "model", {7}, "I32");
  const std::string text = header.dump();
  std::string length;
  for (int i = 0; i < 8; ++i) length.push_back(static_cast<char>(text.size() >> (8 * i) & 0xFF));
  return length + text + body;
}

}  // namespace

int main(int argc, char** argv) {
  using namespace tandem;
  const fuzz::ScratchFolder folder;
  fuzz::Target target;
  target.seeds = {predictor_bytes({}), predictor_bytes({3}), predictor_bytes({2, 4})};
  target.consume = [&](const std::string& input) {
    folder.write("predictor.safetensors", input);
    const Predictor predictor = Predictor::load(folder.path() + "/predictor.safetensors");
    const std::vector<float> features(kFeatures, 1);
    HeadProperties out;
    predictor.predict(features.data(), 1, &out);
    choose_granularity({&out, 1}, 32000, SelectorStage::skip);
  };
  return fuzz::run(argc, argv, target);
}
