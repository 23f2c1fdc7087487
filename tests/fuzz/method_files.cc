// What methods, machines and engines read: predictors, head spreads, recall intervals, specs, workloads, profiles and
// prefilled prompts. What is accepted must also be of use.
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "engine/common/paths.h"
#include "engine/runtime/prefix_file.h"
#include "engine/runtime/workload.h"
#include "methods/fluxion/drawn_heads.h"
#include "methods/fluxion/predictor.h"
#include "methods/fluxion/selector.h"
#include "methods/options.h"
#include "methods/registry.h"
#include "methods/scoutattention/recall_intervals.h"
#include "tests/engine/runtime/tiny.h"
#include "tests/files.h"
#include "tests/fuzz/fuzz.h"

namespace tandem::fuzz {
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
  return testing::safetensors_bytes(header.dump(), body);
}

void use_predictor(const fuzz::ScratchFolder& folder, const std::string& bytes) {
  folder.write("predictor.safetensors", bytes);
  const Predictor predictor = Predictor::load(folder.path() + "/predictor.safetensors");
  const std::vector<float> features(kFeatures, 1);
  HeadProperties out;
  predictor.predict(features.data(), 1, &out);
  choose_granularity({&out, 1}, 32000, SelectorStage::skip);
}

/// Block of a prefix cache that is looked for.
PrefixFileKey prefix_key(std::span<const std::int32_t> prompt) {
  return {.identity = "fuzz", .tokens = prompt, .first = 16, .kv_bytes = 96, .query_bytes = 40, .sum_bytes = 24};
}

/// A file of the prefix cache ends in a hash of all before it, which a damaged one is given anew: so the rest is looked
/// at.
void use_prefix(std::span<const std::int32_t> prompt, const fuzz::ScratchFolder& folder, std::string bytes) {
  bytes.resize(std::max<std::size_t>(bytes.size(), sizeof(std::uint64_t)));
  seal_prefix_file(bytes);
  folder.write("block.prefix", bytes);
  const PrefixFileKey key = prefix_key(prompt);
  std::string read;
  const auto parts = read_prefix_file(folder.path() + "/block.prefix", key, read);
  if (!parts) return;
  for (const auto& [begin, size] : {std::pair{parts->kv, key.kv_bytes}, std::pair{parts->queries, key.query_bytes},
                                    std::pair{parts->sums, key.sum_bytes}})
    if (begin > read.size() || read.size() - begin < size) std::abort();
}

std::string seed_of(const char* path) {
  return fuzz::read_seed(data_path(path).string());
}

}  // namespace

int fuzz_method_files(int argc, char** argv) {
  const fuzz::ScratchFolder folder;
  const std::vector<std::int32_t> prompt = testing::random_prompt(40, 1);
  PrefixFileParts parts;
  std::string whole = make_prefix_file(prefix_key(prompt), {}, parts);
  seal_prefix_file(whole);
  return fuzz::run(
      argc, argv,
      {{"predictor",
        {predictor_bytes({}), predictor_bytes({3}), predictor_bytes({2, 4})},
        [&](const std::string& input) { use_predictor(folder, input); }},
       {"head_spreads",
        {seed_of("hardware/workloads/fluxion-heads.json")},
        [](const std::string& input) { drawn_heads(parse_head_spreads(input, "heads.json"), BudgetPolicy::fluxion); }},
       {"recall_intervals",
        {R"({"intervals": [8, 12, 9], "weights_hash": "0011223344556677"})", R"({"intervals": [0]})"},
        [&](const std::string& input) {
          folder.write("recall.json", input);
          parse_recall_intervals(parse_recall_intervals(folder.path() + "/recall.json").text());
        }},
       {"spec",
        {"hgca:device_kv=256,block=16", "scoutattention:budget=512,recall=4-8", "infinigen:alpha=1e9,dense_layers=1"},
        [](const std::string& input) { make_method(input); }},
       {"workload",
        {seed_of("hardware/workloads/published.json"),
         workload_to_json({"test", "made up", {{{2, 0.5, 0.9, 0}}, {{1, 0, 0, 40}}}})},
        [](const std::string& input) {
          parse_workload(workload_to_json(parse_workload(input, "workload.json")), "again");
        }},
       {"profile",
        {seed_of("hardware/profiles/h200.json"), seed_of("hardware/profiles/asyncspade-a100.json")},
        [](const std::string& input) { make_sim_device(parse_profile(input, "fuzz", "profile.json"), {}); }},
       {"prefix", {whole}, [&](const std::string& input) { use_prefix(prompt, folder, input); }}});
}

}  // namespace tandem::fuzz
