// Predictions of the cost model for measured points.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/device/profile.h"
#include "engine/device/types.h"
#include "engine/runtime/workload.h"
#include "eval/validate/points.h"

namespace tandem::eval {

/// The levels of a time, which are never pooled.
enum class Level : std::uint8_t {
  machine,           // the hardware with the best kernels that were measured on it
  published_engine,  // another engine, by one declared overhead per layer (hardware/validation/engines.json)
};
const char* to_string(Level level);  // "machine", "a published engine"

/// The use of a comparison. Errors by kind are those of `compared`; points in the cache have a row of their own.
enum class Use : std::uint8_t {
  compared,
  in_cache,     // the kernel's data fits in the L2 cache, where a loop may have kept it
  upper_bound,  // the measured time includes other work: the prediction must not be longer
  apart,        // kernels that are known to be slow: they tell of an engine, not of the machine (`why`)
  skipped,      // nothing is predicted: `why`
};

struct Comparison {
  MeasuredPoint point;
  Use use = Use::skipped;
  std::string why;     // of a point that is skipped or apart, a sentence without its end
  std::string device;  // of hardware/devices, or a link of hardware/links
  std::string what;    // kind of figure: "decode attention", "attention, batch 1", "decode product", ...
  Level level = Level::machine;
  bool calibrated = false;   // the point's group (hardware x engine) is one that the cost model was fitted to
  double predicted = 0;      // in the point's unit
  std::uint32_t layers = 0;  // of a decode step; else 0
  /// Relative error of the time: above 0 where the prediction is too slow, also where the unit is a rate.
  double error() const;
};

/// Time that a published engine adds to each layer of a decode step, one number per engine.
struct EngineOverhead {
  std::string engine;  // the beginning of a point's engine
  Nanos layer_ns = 0;
};

class Predictor {
 public:
  /// Reads hardware/devices, hardware/links and hardware/validation.
  Predictor();
  Comparison compare(const MeasuredPoint& point);

 private:
  struct Step {
    double step_ms = 0, prefill_ms = 0;
    std::string refused;
  };
  const HardwareProfile& profile(const std::string& device);
  void decode_attention(Comparison& c, const DeviceFacts& device);
  void product(Comparison& c);
  void prefill_attention(Comparison& c);
  void transfer(Comparison& c, const DeviceFacts* device);
  void whole_step(Comparison& c);
  const Step& step(const std::string& device, const std::string& preset, std::uint32_t batch, std::uint32_t context,
                   Nanos layer_ns);

  std::vector<DeviceFacts> devices_;
  Workload workload_;
  std::vector<std::pair<std::string, std::string>> calibration_;  // hardware, engine
  std::vector<EngineOverhead> engines_;
  struct Apart {
    std::string hardware, engine, kind, model, why;  // beginnings of names; empty: any
  };
  std::vector<Apart> apart_;
  std::map<std::string, HardwareProfile> profiles_;
  std::map<std::string, Step> steps_;
};

/// The device of hardware/devices with the longest name that stands in `hardware`; nullptr: none.
const DeviceFacts* device_in(const std::vector<DeviceFacts>& devices, const std::string& hardware);

}  // namespace tandem::eval
