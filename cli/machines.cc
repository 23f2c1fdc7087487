#include "cli/machines.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <utility>

#include "engine/common/error.h"
#include "eval/run/option_values.h"

namespace tandem::cli {

std::vector<HardwareProfile> load_profiles(const std::string& text, std::string_view option) {
  const std::vector<std::string> names = eval::split_list(text, option);
  std::vector<HardwareProfile> profiles;
  const auto there = [&](const std::string& name) {
    return std::any_of(profiles.begin(), profiles.end(), [&](const HardwareProfile& p) { return p.name == name; });
  };
  std::size_t all = names.size();  // where the shipped ones go
  for (const std::string& name : names) {
    if (name == "all") {
      all = profiles.size();
      continue;
    }
    HardwareProfile profile = load_profile(name);
    if (there(profile.name))
      throw_input_error("{}: two profiles are named '{}': rename one of the files.", option, profile.name);
    profiles.push_back(std::move(profile));
  }
  if (all == names.size()) return profiles;
  std::vector<HardwareProfile> shipped;
  for (const std::string& name : profile_names())
    if (!there(name)) shipped.push_back(load_profile(name));
  profiles.insert(profiles.begin() + static_cast<std::ptrdiff_t>(all), std::make_move_iterator(shipped.begin()),
                  std::make_move_iterator(shipped.end()));
  return profiles;
}

}  // namespace tandem::cli
