// The levels of a simulated time, which are never pooled: the machine with good kernels, this engine with its control
// thread, and published engines.
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
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

/// Published engines, by name and version, the beginning of a point's engine: each has one number, by decode steps that
/// were measured of it (hardware/validation/engines.json), a time on the device.
std::vector<std::pair<std::string, LayerTime>> published_engines();

struct Level {
  std::string name = "machine";
  std::string meaning = "the hardware with the best kernels that were measured on it";
  LayerTime device = {};                          // of a published engine
  std::map<std::string, LayerTime> control = {};  // of this engine's control thread, by method; else empty
};

/// "machine", "this-engine", and the published engines with a time ("vllm-0.19.0"); `control` is left empty.
std::vector<Level> levels();
/// One of them, with its `control`. InputError naming all.
Level load_level(const std::string& name);

/// The machine with what the level adds for a method. InputError where this engine's control thread was not timed with
/// it.
HardwareProfile at_level(HardwareProfile machine, const Level& level, const std::string& method);

}  // namespace tandem::eval
