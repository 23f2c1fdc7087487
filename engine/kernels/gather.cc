#include "engine/kernels/gather.h"

#include <algorithm>
#include <cmath>

#include "engine/common/error.h"

namespace tandem {
namespace {

std::vector<double> distinct(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  values.erase(std::unique(values.begin(), values.end()), values.end());
  return values;
}

/// Where `value` lies among `ends`: the index of the lower neighbour and the share of the upper one.
struct Place {
  std::size_t lower = 0, upper = 0;
  double share = 0;
};
Place place(const std::vector<double>& ends, double value) {
  if (value <= ends.front()) return {0, 0, 0};
  if (value >= ends.back()) return {ends.size() - 1, ends.size() - 1, 0};
  const auto upper = static_cast<std::size_t>(std::upper_bound(ends.begin(), ends.end(), value) - ends.begin());
  return {upper - 1, upper, (value - ends[upper - 1]) / (ends[upper] - ends[upper - 1])};
}

}  // namespace

void check_pieces(const Pieces& pieces) {
  const auto number_of = [](const void* at) { return reinterpret_cast<std::uintptr_t>(at); };
  TANDEM_CHECK(
      (pieces.bytes | pieces.from_stride | pieces.to_stride | number_of(pieces.from) | number_of(pieces.to)) % 16 == 0,
      "Pieces of {} bytes at strides of {} and {} are not all multiples of 16.", pieces.bytes, pieces.from_stride,
      pieces.to_stride);
  // The last step of the kernel's loop must not wrap around.
  TANDEM_CHECK(pieces.bytes / 16 * pieces.count < std::size_t{1} << 31, "{} pieces of {} bytes in one gather.",
               pieces.count, pieces.bytes);
}

GatherCrossover::GatherCrossover(std::vector<Point> points) : points_(std::move(points)) {
  for (const Point& point : points_) {
    if (point.bytes == 0 || point.count == 0 || !(point.dma_seconds > 0) || !(point.zero_copy_seconds > 0))
      throw_input_error("The gather crossover has {} pieces of {} bytes in {} s and {} s: all must be above 0.",
                        point.count, point.bytes, point.dma_seconds, point.zero_copy_seconds);
    sizes_.push_back(std::log2(static_cast<double>(point.bytes)));
    counts_.push_back(std::log2(static_cast<double>(point.count)));
  }
  sizes_ = distinct(std::move(sizes_));
  counts_ = distinct(std::move(counts_));
  const auto key = [](const Point& point) { return std::pair(point.bytes, point.count); };
  std::sort(points_.begin(), points_.end(), [&](const Point& a, const Point& b) { return key(a) < key(b); });
  const bool twice = std::adjacent_find(points_.begin(), points_.end(), [&](const Point& a, const Point& b) {
                       return key(a) == key(b);
                     }) != points_.end();
  if (points_.empty() || twice || points_.size() != sizes_.size() * counts_.size())
    throw_input_error(
        "The gather crossover has {} points for {} sizes and {} counts: every size needs every count once.",
        points_.size(), sizes_.size(), counts_.size());
}

GatherWay GatherCrossover::choose(std::size_t bytes, std::uint32_t count) const {
  if (bytes == 0 || count == 0) return GatherWay::dma;
  const Place size = place(sizes_, std::log2(static_cast<double>(bytes)));
  const Place number = place(counts_, std::log2(static_cast<double>(count)));
  const auto advantage = [&](std::size_t s, std::size_t c) {  // of zero copy
    const Point& point = points_[s * counts_.size() + c];
    return std::log(point.dma_seconds / point.zero_copy_seconds);
  };
  const auto along = [&](std::size_t s) {
    return (1 - number.share) * advantage(s, number.lower) + number.share * advantage(s, number.upper);
  };
  return (1 - size.share) * along(size.lower) + size.share * along(size.upper) > 0 ? GatherWay::zero_copy
                                                                                   : GatherWay::dma;
}

}  // namespace tandem
