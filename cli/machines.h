// Parses machines, batches and workloads that predictions are made for.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/device/profile.h"
#include "engine/runtime/workload.h"

namespace tandem::cli {

/// `text`, profiles with commas, with the whole name of each shipped profile: "4090" becomes "rtx-4090", and stderr
/// says so, if no other profile has that in its name. Everything else stays.
std::string full_profile_names(const std::string& text);

/// Names of shipped profiles or JSON files, with commas; "all" stands for those of the shipped ones that are not
/// named. InputError for two of one name.
std::vector<HardwareProfile> load_profiles(const std::string& text, std::string_view option);

/// "1,16,max" of --batch, each from 1 to `most` and none twice. `max`: what stands for that word, where it is known.
/// InputError.
std::vector<std::uint32_t> parse_batches(const std::string& text, std::uint64_t most,
                                         std::optional<std::uint32_t> max = {});

/// --workload, what heads choose where no tensor is computed: "published", or a file as summary's target.json and
/// `tandem compare --as` have it under "workload". InputError; `others` names what else the command takes.
Workload read_workload(const std::string& argument, const char* others);

}  // namespace tandem::cli
