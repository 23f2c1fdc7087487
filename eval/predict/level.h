// The levels of a simulated time, which are never pooled: the machine with good kernels, this engine with its control
// thread, and published engines.
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "engine/device/profile.h"

namespace tandem::eval {

/// A file of hardware/validation.
nlohmann::json validation_file(const char* name);

/// Time that an engine adds to each layer of a decode step, with its range.
struct LayerTime {
  Nanos ns = 0;
  FieldRange range = {};
};

/// A published engine: one number, by decode steps that were measured of it (hardware/validation/engines.json).
struct PublishedEngine {
  std::string engine;  // name and version; the beginning of a point's engine
  LayerTime layer;     // device time
};
std::vector<PublishedEngine> published_engines();

struct Level {
  std::string name = "machine";
  std::string meaning = "the hardware with the best kernels that were measured on it";
  LayerTime device;                          // of a published engine
  std::map<std::string, LayerTime> control;  // of this engine's control thread, by method
  bool this_engine = false;
};

/// "machine", "this-engine", or the name of a published engine with a time ("vllm-0.19.0"). InputError naming all.
Level load_level(const std::string& name);
std::vector<std::string> level_names();

/// The machine with what the level adds for a method. InputError where this engine's control thread was not timed with
/// it.
HardwareProfile at_level(HardwareProfile machine, const Level& level, const std::string& method);

}  // namespace tandem::eval
