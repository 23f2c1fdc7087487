// The link's curve from a probe's copies of many pieces.
#include <algorithm>
#include <cmath>
#include <map>

#include "engine/common/error.h"
#include "hardware/calibration/calibration.h"

namespace tandem::hardware {
namespace {

// What a transfer takes once lies in the best rate, too: of 64 MB at 50 GB/s 5 us are 0.4 %.
constexpr double kAboveBest = 1.02;

/// Seconds by number of pieces, of one size of piece.
using ByCount = std::map<std::uint64_t, double>;

struct PieceTime {
  double seconds = 0, once = 0;
};

/// What one more piece costs, no less than `least`, and what is left of the largest transfer then: no more than all of
/// the smallest one, since a small error of what a piece costs is a large one of that. Where only one number of pieces
/// was measured: its share of that transfer.
PieceTime piece_time(const ByCount& by_count, double least) {
  const auto [count, seconds] = *std::prev(by_count.end());
  const double pieces = static_cast<double>(count), share = seconds / pieces;
  if (by_count.size() < 2) return {share, 0};
  const auto [fewer, shorter] = *std::prev(by_count.end(), 2);
  const double more = (seconds - shorter) / (pieces - static_cast<double>(fewer));
  const double piece = std::clamp(more, std::min(least, share), share);
  return {piece, std::min(seconds - piece * pieces, by_count.begin()->second)};
}

std::uint64_t whole(const ProbeReport& probe, const ProbeFigure& figure, const char* name) {
  constexpr std::uint64_t kMost = std::uint64_t{1} << 32;
  const auto found = figure.conditions.find(name);
  if (found == figure.conditions.end() || !found->is_number_unsigned() || *found < 1u || *found > kMost)
    throw_input_error("{}: a figure 'link' needs the condition '{}', a whole number in 1 .. 2^32.", probe.file, name);
  return found->get<std::uint64_t>();
}

}  // namespace

LinkCurve link_curve(const ProbeReport& probe, const std::string& direction, const std::string& method) {
  std::map<std::uint64_t, ByCount> measured;  // by bytes of a piece
  double best_rate = 0;                       // bytes per second
  for (const ProbeFigure* figure :
       probe.all("link", {{"method", method}, {"direction", direction}, {"beside", "nothing"}})) {
    const std::uint64_t bytes = whole(probe, *figure, "piece_bytes"), pieces = whole(probe, *figure, "pieces");
    if (!(figure->value > 0)) continue;
    const double moved = static_cast<double>(bytes) * static_cast<double>(pieces);
    // The zero-copy kernel is measured with other numbers of blocks, too: those come later and the first one stays.
    measured[bytes].emplace(pieces, moved / (figure->value * 1e9));
    best_rate = std::max(best_rate, figure->value * 1e9);
  }
  LinkCurve curve;
  std::vector<double> seconds;
  for (const auto& [bytes, by_count] : measured) {
    const PieceTime time = piece_time(by_count, static_cast<double>(bytes) / (kAboveBest * best_rate));
    curve.points.push_back({bytes, 0});
    seconds.push_back(time.seconds);
    if (curve.points.size() == 1) curve.once_us = time.once * 1e6;
  }
  for (std::size_t i = 0; i < seconds.size(); ++i)
    curve.points[i].gbps = static_cast<double>(curve.points[i].piece_bytes) / seconds[i] * 1e-9;
  return curve;
}

}  // namespace tandem::hardware
