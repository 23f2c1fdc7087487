#include "eval/predict/ranges.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "engine/common/error.h"

namespace tandem::eval {

double replayed_step(const SimCalls& calls, const HardwareProfile& profile) {
  Nanos sum = 0;
  std::uint32_t later = 0;
  for (const Trace& trace : replay(calls, profile)) {
    for (const StepMark& step : trace.steps) {
      if (step.step == Device::kSetupStep || step.step == 0) continue;
      sum += step.end - step.begin;
      ++later;
    }
  }
  TANDEM_CHECK(later > 0 && sum > 0, "{} recorded steps after the first", later);
  return double(sum) / later;
}

TimeRange range_of(const HardwareProfile& profile, const std::function<double(const HardwareProfile&)>& time) {
  constexpr double kNothing = 1e-3;  // a change that is none
  struct Ends {
    std::string field;
    double slower, faster;
    bool has_faster, has_slower;  // not where both ends make a time longer, or both shorter
  };
  const double nominal = time(profile);
  double up = 0, down = 0, most = 0;  // squares of logs; a log
  std::vector<Ends> moving;           // fields that change the time at one end at least
  TimeRange range;
  for (const auto& [field, ends] : profile.ranges) {
    const double low = std::log(time(with_field(profile, field, ends.low)) / nominal),
                 high = std::log(time(with_field(profile, field, ends.high)) / nominal);
    const double longer = std::max({low, high, 0.0}), shorter = std::max({-low, -high, 0.0});
    up += longer * longer;
    down += shorter * shorter;
    if (std::max(longer, shorter) > kNothing)
      moving.push_back({field, low > high ? ends.low : ends.high, low > high ? ends.high : ends.low,
                        std::min(low, high) <= kNothing, std::max(low, high) >= -kNothing});
    if (std::max(longer, shorter) > most) {
      most = std::max(longer, shorter);
      range.widest = field;
    }
  }
  const auto together = [&](double Ends::*end, bool Ends::*has) {
    HardwareProfile moved = profile;
    for (const Ends& ends : moving)
      if (ends.*has) moved = with_field(std::move(moved), ends.field, ends.*end, 1 / std::sqrt(double(moving.size())));
    return time(moved) / nominal;
  };
  range.low = std::min(std::exp(-std::sqrt(down)), together(&Ends::faster, &Ends::has_faster));
  range.high = std::max(std::exp(std::sqrt(up)), together(&Ends::slower, &Ends::has_slower));
  return range;
}

}  // namespace tandem::eval
