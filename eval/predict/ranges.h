// The range of a predicted step: what it may be, given what the profile's assumed and fitted numbers may be.
#pragma once

#include <functional>
#include <string>

#include "engine/device/profile.h"
#include "engine/device/sim_device.h"

namespace tandem::eval {

/// Steps of a decode from which its range comes, the first included.
inline constexpr std::uint32_t kRangeSteps = 4;

/// Factors on a time.
struct TimeRange {
  double low = 1, high = 1;
  std::string widest;  // the field whose ends move the time most; empty: none does
};

/// The range of `time` on this profile: moves one number of profile.ranges at a time to its low and its high, and adds
/// the changes in quadrature on a log scale, longer and shorter times apart, as if the numbers were independent. Where
/// two limits are equally slow neither alone makes a time shorter: so all n numbers that matter also move together,
/// each 1/sqrt(n) of its way, which in a product of powers never is more than the quadrature.
TimeRange range_of(const HardwareProfile& profile, const std::function<double(const HardwareProfile&)>& time);

/// Mean window of the recorded steps after the first, ns, on this profile.
double replayed_step(const SimCalls& calls, const HardwareProfile& profile);

}  // namespace tandem::eval
