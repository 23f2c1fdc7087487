#include "cli/machines.h"

#include <algorithm>
#include <utility>

#include "cli/parse.h"
#include "engine/common/error.h"

namespace tandem::cli {

std::vector<HardwareProfile> load_profiles(const std::string& text, std::string_view option) {
  std::vector<std::string> names = split_list(text, option);
  if (const auto all = std::find(names.begin(), names.end(), "all"); all != names.end()) {
    const auto at = names.erase(all);
    std::vector<std::string> others = profile_names();
    std::erase_if(others, [&](const auto& name) { return std::find(names.begin(), names.end(), name) != names.end(); });
    names.insert(at, others.begin(), others.end());
  }
  std::vector<HardwareProfile> profiles;
  for (const std::string& name : names) {
    HardwareProfile profile = load_profile(name);
    for (const HardwareProfile& other : profiles)
      if (other.name == profile.name)
        throw_input_error("{}: two profiles are named '{}': rename one of the files.", option, other.name);
    profiles.push_back(std::move(profile));
  }
  return profiles;
}

}  // namespace tandem::cli
