#include "eval/target/ranges.h"

#include <algorithm>
#include <cmath>

#include "engine/common/error.h"

namespace tandem::eval {

double replayed_step(const SimCalls& calls, const HardwareProfile& profile) {
  Nanos sum = 0;
  std::uint32_t later = 0;
  for (const StepMark& step : replay(calls, profile)) {
    if (step.step == Device::kSetupStep || step.step == 0) continue;
    sum += step.end - step.begin;
    ++later;
  }
  TANDEM_CHECK(later > 0 && sum > 0, "{} recorded steps after the first", later);
  return double(sum) / later;
}

TimeRange range_of(const HardwareProfile& profile, const std::function<double(const HardwareProfile&)>& time) {
  const double nominal = time(profile);
  double up = 0, down = 0, most = 0;  // squares of logs; a log
  TimeRange range;
  for (const auto& [field, ends] : profile.ranges) {
    const double low = std::log(time(with_field(profile, field, ends.low)) / nominal),
                 high = std::log(time(with_field(profile, field, ends.high)) / nominal);
    const double longer = std::max({low, high, 0.0}), shorter = std::max({-low, -high, 0.0});
    up += longer * longer;
    down += shorter * shorter;
    if (std::max(longer, shorter) > most) {
      most = std::max(longer, shorter);
      range.widest = field;
    }
  }
  range.low = std::exp(-std::sqrt(down));
  range.high = std::exp(std::sqrt(up));
  return range;
}

}  // namespace tandem::eval
