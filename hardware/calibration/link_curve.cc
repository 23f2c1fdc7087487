// The link's curve from a probe's copies of many pieces.
#include <algorithm>
#include <cmath>
#include <map>

#include "hardware/calibration/calibration.h"

namespace tandem::hardware {
namespace {

/// The field `name` of a figure's conditions; 0 where it is none.
double condition(const ProbeFigure& figure, const char* name) {
  const auto found = figure.conditions.find(name);
  return found != figure.conditions.end() && found->is_number() ? found->get<double>() : 0;
}

/// Seconds by number of pieces, of one way and one size of piece.
using ByCount = std::map<double, double>;

/// What one more piece costs. Where noise makes that nothing, or only one number of pieces was measured: its share of
/// the largest transfer.
double seconds_of_piece(const ByCount& by_count) {
  const auto most = std::prev(by_count.end());
  const double share = most->second / most->first;
  if (by_count.size() < 2) return share;
  const auto fewer = std::prev(most);
  const double more = (most->second - fewer->second) / (most->first - fewer->first);
  return more > 0 ? std::min(more, share) : share;
}

}  // namespace

std::vector<LinkPoint> link_curve(const ProbeReport& probe, const std::string& direction) {
  std::map<double, std::map<std::string, ByCount>> measured;  // by bytes of a piece, then by way
  for (const ProbeFigure* figure : probe.all("link", {{"direction", direction}, {"beside", "nothing"}})) {
    const double bytes = condition(*figure, "piece_bytes"), pieces = condition(*figure, "pieces");
    const auto method = figure->conditions.find("method");
    if (!(bytes >= 1) || !(pieces >= 1) || !(figure->value > 0) || method == figure->conditions.end()) continue;
    // The zero-copy kernel is measured with other numbers of blocks, too: those come later and the first one stays.
    measured[bytes][method->dump()].emplace(pieces, bytes * pieces / (figure->value * 1e9));
  }
  std::vector<std::pair<double, double>> pieces;  // bytes, seconds
  for (const auto& [bytes, ways] : measured) {
    double least = INFINITY;
    for (const auto& [way, by_count] : ways) least = std::min(least, seconds_of_piece(by_count));
    pieces.emplace_back(bytes, least);
  }
  for (std::size_t i = pieces.size(); i-- > 1;) {
    pieces[i - 1].second = std::min(pieces[i - 1].second, pieces[i].second);
  }
  std::vector<LinkPoint> curve;
  curve.reserve(pieces.size());
  for (const auto& [bytes, seconds] : pieces)
    curve.push_back({static_cast<std::uint64_t>(bytes), bytes / seconds * 1e-9});
  return curve;
}

}  // namespace tandem::hardware
