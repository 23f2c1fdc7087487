// Predictions of the cost model for measured points.
#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/device/profile.h"
#include "engine/device/types.h"
#include "engine/runtime/workload.h"
#include "eval/predict/level.h"
#include "eval/predict/ranges.h"
#include "eval/validate/points.h"

namespace tandem::eval {

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
  std::string why;                // of a point that is skipped or apart, a sentence without its end
  std::string device;             // of hardware/devices, or a link of hardware/links
  std::string what;               // kind of figure: "decode attention", "attention, batch 1", "decode product", ...
  bool published_engine = false;  // the point's level; else machine (level.h)
  bool calibrated = false;        // the point's group (hardware x engine) is one that the cost model was fitted to
  double predicted = 0;           // in the point's unit
  double low = 0, high = 0;       // what the prediction may be, by the ranges of the profile's numbers; in that unit
  std::uint32_t layers = 0;       // of a decode step; else 0
  const char* level() const { return published_engine ? "a published engine" : "machine"; }
  /// Relative error of the time: above 0 where the prediction is too slow, also where the unit is a rate.
  double error() const;
  bool in_range() const { return low <= point.value && point.value <= high; }
  /// How far the range's ends lie from its middle, on a log scale, as a share.
  double half_width() const { return std::sqrt(high / low) - 1; }
};

class Predictor {
 public:
  /// Reads hardware/devices, hardware/links and hardware/validation.
  Predictor();
  Comparison compare(const MeasuredPoint& point);

 private:
  void predict_point(Comparison& c);  // in ns, or in bytes or tokens of a ns
  struct Step {
    double ms = 0;
    TimeRange range;
    std::string refused;
  };
  const HardwareProfile& profile(const std::string& device);
  void decode_attention(Comparison& c, const DeviceFacts& device);
  void product(Comparison& c);
  void prefill_attention(Comparison& c);
  void transfer(Comparison& c, const DeviceFacts* device);
  void whole_step(Comparison& c);
  /// Sets what is predicted and its range. `time`: ns on a profile; `bytes`: of a rate, else 0.
  void predict(Comparison& c, const HardwareProfile& hardware,
               const std::function<double(const HardwareProfile&)>& time, double bytes = 0);
  /// A decode step of full attention, or with `first` the time to the first token.
  const Step& step(const std::string& device, const std::string& preset, std::uint32_t batch, std::uint32_t context,
                   const LayerTime& engine, bool first);

  std::vector<DeviceFacts> devices_;
  Workload workload_;
  std::vector<std::pair<std::string, std::string>> calibration_;  // hardware, engine
  std::vector<PublishedEngine> engines_;
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
