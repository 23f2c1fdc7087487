// Machines as people name them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/device/profile.h"

namespace tandem::cli {

/// Names of shipped profiles or JSON files, with commas; "all" stands for those of the shipped ones that are not
/// named. InputError for two of one name.
std::vector<HardwareProfile> load_profiles(const std::string& text, std::string_view option);

}  // namespace tandem::cli
