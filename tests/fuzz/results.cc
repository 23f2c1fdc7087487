// Files of results that a later command reads: targets, sweeps, equal bytes, head errors, and the experiments that
// ship.
#include "engine/common/paths.h"
#include "eval/fluxion/head_errors.h"
#include "eval/match_bytes/match_bytes.h"
#include "eval/predict/prediction.h"
#include "eval/reproduce/experiment.h"
#include "tests/eval/predict/sweeps.h"
#include "tests/eval/report/fixtures.h"
#include "tests/fuzz/fuzz.h"

namespace tandem::fuzz {
namespace {

using namespace eval;

std::string a_target() {
  PredictionOptions options;
  options.methods = {"full", "quest:budget=256", "fluxion:heads=embedded"};  // the last is refused
  options.batch = 2;
  options.context = 512;
  options.steps = 4;
  return prediction_json(predict(load_shape(kShape), load_profile("fluxion-a100"), a_workload(), options));
}

std::string a_sweeps_file() {
  SweepOptions options = a_sweep();
  options.contexts = {512};
  options.hardware.resize(1);
  return json_of(simulate_sweep(load_shape(kShape), a_workload(), options));
}

const EqualBytes kAsked{Measure::touched, {0.3}};
const std::vector<std::string> kGiven = {"full", "quest"};

std::string an_equal() {
  return equal_json(find_equal(kAsked, kGiven, 2000, [](const std::string& spec) {
    const auto options = parse_method_spec(spec).options;
    return Bytes{options.empty() ? 1000 : std::stod(options[0].second)};
  }));
}

Manifest a_manifest() {
  Manifest manifest = example_manifest();
  manifest.methods = {{"full", "full", {}, {}}, {"fluxion", "fluxion", {}, {}}};
  manifest.tasks = {"niah_single_1"};
  manifest.lengths = {512};
  manifest.samples = 5;
  return manifest;
}

}  // namespace

int fuzz_results(int argc, char** argv) {
  const fuzz::ScratchFolder folder;
  const Manifest manifest = a_manifest();
  const auto shipped = [](const char* name) { return fuzz::read_seed(data_path(name).string()); };
  return fuzz::run(
      argc, argv,
      {{"target",
        {a_target()},
        [](const std::string& input) { prediction_text(parse_prediction(input, "target.json"), true); }},
       {"sweep",
        {a_sweeps_file()},
        [](const std::string& input) { sweep_text(parse_sweep(input, "sweep.json").sweep, true); }},
       {"equal",
        {an_equal()},
        [&](const std::string& input) {
          folder.write(kEqualFile, input);
          if (const auto equal = read_equal(folder.path(), kAsked, kGiven)) equal_found_text(*equal, "", true);
        }},
       {"errors",
        {R"({"task":"niah_single_1","length":512,"index":0,"method":"fluxion","heads":48,"error":0.5,"attended":9.5,)"
         R"("worst":0.04,"none":0,"above":[0,0,0,0]})"
         "\n"},
        [&](const std::string& input) {
          folder.write("errors.jsonl", input);
          read_head_errors(folder.path(), manifest);
        }},
       {"experiment",
        {shipped("hardware/experiments/scout.json"), shipped("hardware/experiments/fluxion.json"),
         shipped("hardware/experiments/hgca.json")},
        [](const std::string& input) { parse_experiment(input, "experiment.json"); }}});
}

}  // namespace tandem::fuzz
