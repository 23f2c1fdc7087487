// The fields of a profile that is made: each with its value, where that comes from, and how far the figure varied.
#pragma once

#include <optional>
#include <string>

#include "hardware/calibration/calibration.h"

namespace tandem::hardware {

/// What a field is taken from.
struct MeasuredValue {
  double value = 0;
  std::string what;                     // "dram_read, 2 threads"
  const ProbeFigure* figure = nullptr;  // the one behind it, where that is one
};

inline std::optional<MeasuredValue> measured_by(const ProbeFigure* figure, const std::string& what) {
  if (figure == nullptr) return std::nullopt;
  return MeasuredValue{figure->value, what, figure};
}

/// (p90 - p10) / median; below 0: not known.
double spread_of(const ProbeFigure& figure);

/// Of p10 to p90: beyond it a figure is named in a warning.
inline constexpr double kWideSpread = 0.25;

/// Writes into `result`, whose profile begins as the base's.
class FieldWriter {
 public:
  FieldWriter(const ProbeReport& probe, const HardwareProfile& base, CalibratedProfile& result)
      : probe_(probe), base_(base), result_(result) {}

  /// Keeps the base's value; `value` of the new profile is the same.
  template <class T>
  void assume(const std::string& field, const T& value) {
    const auto found = base_.sources.find(field);
    std::string source = "assumed: not measured, as " + base_.name + " has it";
    if (found != base_.sources.end()) source += " (" + found->second + ")";
    note(field, value, value, base_.name, source);
  }

  /// A rate or share. A share above 1 is 1, with a warning: a cache, or a number of a data sheet that is exceeded.
  void set(const std::string& field, double& value, const std::optional<MeasuredValue>& from);
  /// A time; `from` is in microseconds.
  void set(const std::string& field, Nanos& value, const std::optional<MeasuredValue>& from);
  /// Of a field that a profile need not have: nothing where neither a measurement nor the base has it.
  template <class T>
  void set_optional(const std::string& field, T& value, const std::optional<MeasuredValue>& from) {
    if (value > 0 || (from && from->value > 0)) set(field, value, from);
  }
  /// The link's rates; `measured` has a point.
  void set(const std::string& field, std::vector<LinkPoint>& value, std::vector<LinkPoint> measured,
           const std::string& what);

  template <class T>
  void note(const std::string& field, const T& before, const T& value, const std::string& from,
            const std::string& source, double spread = -1) {
    result_.profile.sources[field] = source;
    result_.profile.ranges.erase(field);  // measured now
    result_.fields.push_back({field, text_of(before), text_of(value), from, spread});
  }
  std::string measured_source(const MeasuredValue& from) const;
  void warn(std::string sentence) { result_.warnings.push_back(std::move(sentence)); }

  static constexpr const char* kMeasured = "measured";

 private:
  static std::string text_of(double value);
  static std::string text_of(Nanos value);
  static std::string text_of(std::uint32_t value);
  static std::string text_of(const std::vector<LinkPoint>& curve);

  template <class T>
  void note_measured(const std::string& field, const T& before, const T& value, const MeasuredValue& from);

  const ProbeReport& probe_;
  const HardwareProfile& base_;
  CalibratedProfile& result_;
};

}  // namespace tandem::hardware
