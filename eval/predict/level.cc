#include "eval/predict/level.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "engine/common/error.h"
#include "engine/common/json.h"
#include "engine/common/paths.h"
#include "engine/common/read_file.h"
#include "eval/predict/text.h"

namespace tandem::eval {
namespace {

LayerTime layer_time(const nlohmann::json& json, const char* why) {
  return {json.at("layer_ns").get<Nanos>(), {json.at("low_ns").get<double>(), json.at("high_ns").get<double>(), why}};
}

/// "vLLM 0.19.0" as a word of a command line.
std::string word_of(std::string name) {
  std::ranges::replace(name, ' ', '-');
  return lower(std::move(name));
}

constexpr const char* kThisEngine = "this-engine";

}  // namespace

nlohmann::json validation_file(const char* name) {
  const auto path = data_path("hardware/validation") / name;
  return parse_json(read_file(path, kMostOfAFile), path.string());
}

std::vector<std::pair<std::string, LayerTime>> published_engines() {
  std::vector<std::pair<std::string, LayerTime>> engines;
  const nlohmann::json json = validation_file("engines.json");
  for (const auto& engine : json.at("engines"))
    engines.emplace_back(engine.at("engine").get<std::string>(),
                         layer_time(engine, "the middle 80 % of its decode steps, at least 0"));
  return engines;
}

std::vector<Level> levels() {
  std::vector<Level> all = {
      {},
      {kThisEngine,
       "the machine, with every kernel launched by itself and what this engine's control thread takes of a layer "
       "beside the launches, as timed on a CPU (results/launches-zen5-2core.txt); its own GPU kernels were never "
       "timed"}};
  for (const auto& [engine, layer] : published_engines())
    if (layer.ns > 0)
      all.push_back({word_of(engine),
                     fmt::format("the machine, with {:.1f} us of device time more a layer, which fit the decode steps "
                                 "that were measured of {}",
                                 double(layer.ns) * 1e-3, engine),
                     layer});
  return all;
}

Level load_level(const std::string& name) {
  std::vector<std::string> names;
  for (Level& level : levels()) {
    if (level.name == name && name == kThisEngine) {
      const nlohmann::json json = validation_file("this_engine.json");
      for (const auto& [method, time] : json.at("methods").items())
        level.control[method] = layer_time(time, "three runs");
    }
    if (level.name == name) return level;
    names.push_back(level.name);
  }
  throw_input_error("--level: there is no level '{}'.{} There are: {}.", name, did_you_mean(name, names),
                    join_names(names));
}

HardwareProfile at_level(HardwareProfile machine, const Level& level, const std::string& method) {
  if (level.device.ns > 0) {
    machine.device.layer_ns = level.device.ns;
    machine.ranges["device.layer_ns"] = level.device.range;
  }
  if (level.control.empty()) return machine;
  const auto found = level.control.find(method.substr(0, method.find(':')));
  if (found == level.control.end()) throw_input_error("this engine's control thread has not been timed with it");
  machine.device.segment_launch_ns = 0;  // no graphs
  machine.ranges.erase("device.segment_launch_ns");
  machine.control.layer_ns = found->second.ns;  // hooks, submissions and marks included
  machine.control.policy_ns = machine.control.submit_ns = machine.control.operation_ns = 0;
  for (const char* field : {"control.policy_ns", "control.submit_ns", "control.operation_ns"})
    machine.ranges.erase(field);
  machine.ranges["control.layer_ns"] = found->second.range;
  return machine;
}

}  // namespace tandem::eval
