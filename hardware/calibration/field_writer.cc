#include "hardware/calibration/field_writer.h"

#include <algorithm>
#include <cmath>
#include <fmt/core.h>
#include <utility>

namespace tandem::hardware {
namespace {

/// Four digits: what a median of a few repeats can hold.
double rounded(double value) {
  if (value == 0) return 0;
  const double unit = std::pow(10.0, std::floor(std::log10(std::abs(value))) - 3);
  return std::round(value / unit) * unit;
}

bool is_measure(double value) {
  return value > 0 && std::isfinite(value);
}

}  // namespace

double spread_of(const ProbeFigure& figure) {
  return figure.value > 0 ? (figure.p90 - figure.p10) / figure.value : -1;
}

std::string FieldWriter::text_of(double value) {
  return fmt::format("{:.4g}", value);
}
std::string FieldWriter::text_of(Nanos value) {
  return fmt::format("{}", value);
}
std::string FieldWriter::text_of(std::uint32_t value) {
  return fmt::format("{}", value);
}
std::string FieldWriter::text_of(const std::vector<LinkPoint>& curve) {
  if (curve.empty()) return "none";
  return fmt::format("{:.3g} to {:.3g}", curve.front().gbps, curve.back().gbps);
}

std::string FieldWriter::measured_source(const MeasuredValue& from) const {
  std::string text = "measured: " + from.what;
  if (from.figure != nullptr)
    text += fmt::format(", median of {} ({:.4g} to {:.4g} {})", from.figure->repeats, from.figure->p10,
                        from.figure->p90, from.figure->unit);
  return text + fmt::format("; {}, {}", probe_.machine, probe_.started_utc);
}

template <class T>
void FieldWriter::note_measured(const std::string& field, const T& before, const T& value, const MeasuredValue& from) {
  const ProbeFigure* figure = from.figure;
  const double spread = figure == nullptr ? -1 : spread_of(*figure);
  note(field, before, value, kMeasured, measured_source(from), spread);
  if (spread > kWideSpread)
    warn(
        fmt::format("{} rests on a figure that varied from {:.4g} to {:.4g} {} ({}): measure again on a quiet "
                    "machine.",
                    field, figure->p10, figure->p90, figure->unit, from.what));
}

void FieldWriter::set(const std::string& field, double& value, const std::optional<MeasuredValue>& from) {
  if (!from || !is_measure(from->value)) return assume(field, value);
  const bool share = field.ends_with("_efficiency");
  if (share && from->value > 1)
    warn(fmt::format("{} came to {:.3g} ({}) and is written as 1.", field, from->value, from->what));
  const double before = std::exchange(value, rounded(share ? std::min(1.0, from->value) : from->value));
  note_measured(field, before, value, *from);
}

void FieldWriter::set(const std::string& field, Nanos& value, const std::optional<MeasuredValue>& from) {
  if (!from || !is_measure(from->value)) return assume(field, value);
  const Nanos before = std::exchange(value, static_cast<Nanos>(std::llround(from->value * 1e3)));
  note_measured(field, before, value, *from);
}

void FieldWriter::set(const std::string& field, std::vector<LinkPoint>& value, std::vector<LinkPoint> measured,
                      const std::string& what) {
  for (LinkPoint& point : measured) point.gbps = rounded(point.gbps);
  const std::vector<LinkPoint> before = std::exchange(value, std::move(measured));
  note(field, before, value, kMeasured, measured_source({0, what}));
}

}  // namespace tandem::hardware
