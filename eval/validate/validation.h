// A validation: measured points, the cost model's predictions for them, the errors by kind and machine, and how to show
// them.
#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "eval/predict/level.h"
#include "eval/predict/prediction.h"
#include "eval/report/statistics.h"

namespace tandem::eval {

/// A time or rate that was measured on named hardware, with its conditions and source (hardware/validation/points.json,
/// and any file of that form).
struct MeasuredPoint {
  std::string id, kind, hardware, metric, unit, source;
  std::string engine, model, model_shape, precision, submission;  // empty: not said
  double value = 0;                                               // in `unit`, above 0
  std::optional<double> batch;                                    // sequences, or rows of a product
  std::optional<double> context;  // KV tokens of each sequence; the mean where the text of a source has a range
  std::optional<double> tokens, prefix_tokens, prompt_tokens, generated_tokens, transfer_bytes, descriptors;
  std::uint32_t gpus = 1;
};

/// The object's list "points". InputError naming the file, the point and the field: for text that is not such an
/// object, a missing or empty id, kind, hardware, unit or source, an id that occurs twice, a value that is not above 0
/// and a number that no such measurement has. Fields that it does not know are ignored.
std::vector<MeasuredPoint> parse_points(std::string_view text, const std::string& file);

enum class UnitKind : std::uint8_t { time, tokens_per_second, bytes_per_second, other };
UnitKind unit_kind(const MeasuredPoint& point);

/// Nanoseconds of a point whose unit is a time: ns, us, ms or s, also "per layer", "per token", "per transfer" and "per
/// call".
std::optional<double> nanoseconds(const MeasuredPoint& point);

/// "32 query heads, 8 KV heads, head_dim 128 (...)", "... (32/8 heads, d 128)".
struct HeadShape {
  std::uint32_t q_heads = 0, kv_heads = 0, head_dim = 0;
};
std::optional<HeadShape> head_shape(const MeasuredPoint& point);

/// Outputs and inputs of a product: "N=4096 K=16384", or the layer that `metric` names of a known model.
struct MatrixShape {
  std::uint64_t outputs = 0, inputs = 0;
};
std::optional<MatrixShape> matrix_shape(const MeasuredPoint& point);

/// The preset (engine/model/presets.h) that a model's name means; empty: none.
std::string preset_of(std::string_view model);

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
  const char* level = "machine";  // or "a published engine" (level.h)
  bool calibrated = false;        // the point's group (hardware x engine) is one that the cost model was fitted to
  double predicted = 0;           // in the point's unit
  double low = 0, high = 0;       // what the prediction may be, by the ranges of the profile's numbers; in that unit
  std::uint32_t layers = 0;       // of a decode step; else 0
  /// Relative error of the time: above 0 where the prediction is too slow, also where the unit is a rate.
  double error() const;
  bool in_range() const { return low <= point.value && point.value <= high; }
  /// How far the range's ends lie from its middle, on a log scale, as a share.
  double half_width() const { return std::sqrt(high / low) - 1; }
};

/// Predicts points one after the other; keeps the profiles and steps that it has made.
struct Predictor {
  /// A decode step of full attention, or the time to the first token.
  struct Step {
    double ms = 0;
    TimeRange range = {};
    std::string refused = {};
  };
  struct Apart {
    std::string hardware, engine, kind, model, why;  // beginnings of names; empty: any
  };

  /// Reads hardware/devices, hardware/links and hardware/validation.
  Predictor();
  Comparison compare(const MeasuredPoint& point);

  std::vector<DeviceFacts> devices;
  Workload workload;
  std::vector<std::pair<std::string, std::string>> calibration;  // hardware, engine
  std::vector<std::pair<std::string, LayerTime>> engines;
  std::vector<Apart> apart;
  std::map<std::string, HardwareProfile> profiles;
  std::map<std::string, Step> steps;
};

/// The device of hardware/devices with the longest name that stands in `hardware`; nullptr: none.
const DeviceFacts* device_in(const std::vector<DeviceFacts>& devices, const std::string& hardware);

/// Errors of points of one kind, relative to what was measured; above 0: predicted as too slow.
struct ErrorGroup {
  std::string what, device;  // device empty: all
  const char* level = "machine";
  std::string points;       // "calibration" (the cost model was fitted to them), "validation", "in L2 cache", "apart"
  Estimate absolute, bias;  // means, with 95 % bootstrap intervals
  double worst = 0;         // the error that is farthest from 0
  double in_range = 0;      // share of the points that lie in their prediction's range
  double half_width = 0;    // median of the ranges: how far an end lies from the middle, as a share
};

struct Validation {
  std::string file;
  std::vector<Comparison> comparisons;  // as the points stand in the file

  /// Groups of compared points, in the order in which kinds first occur.
  std::vector<ErrorGroup> groups(bool by_device) const;
};

/// `progress`: in points. Interrupted where `interrupted` says so.
Validation validate(const std::vector<MeasuredPoint>& points, std::string file,
                    const std::function<void(std::uint64_t done, std::uint64_t total)>& progress,
                    const std::function<bool()>& interrupted);

/// How much longer than a serving time a predicted step of the same shape may be, which includes no prefill.
inline constexpr double kAboveServing = 1.1;

/// Tables by kind and by machine, what is an upper bound, and what was skipped and why. `every_point`: each point's
/// error, too.
std::string validation_text(const Validation& validation, bool markdown, bool every_point);
std::string validation_json(const Validation& validation, const std::string& command, const std::string& program);

}  // namespace tandem::eval
