// Parses machines, batches and workloads that predictions are made for.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/command.h"
#include "engine/device/profile.h"
#include "engine/runtime/workload.h"
#include "eval/predict/precision.h"

namespace tandem::cli {

/// `text`, profiles with commas, with the whole name of each shipped profile: "4090" becomes "rtx-4090", and stderr
/// says so, if no other profile has that in its name. Everything else stays.
std::string full_profile_names(const std::string& text);

/// Names of shipped profiles or JSON files, with commas; "all" stands for those of the shipped ones that are not
/// named. InputError for two of one name.
std::vector<HardwareProfile> load_profiles(const std::string& text, std::string_view option);

/// Memory in 10^9 bytes: "64" and "64GB" alike, "64G" of 2^30. InputError.
double parse_memory_gb(const std::string& text, std::string_view option);

inline constexpr const char* kHostMemoryHelp =
    "Host memory of every machine in place of its profile's, in GB: 64, or 64G (2^30)";
/// Gives machines this host memory in place of their profiles'; an empty text none. Titles say so. InputError.
void set_host_memory(std::vector<HardwareProfile>& machines, const std::string& text);

/// --weight-bits and --kv-bits, as `precision` has them.
void add_precision(Command command, eval::Precision& precision);

/// "1,16,max" of --batch, each from 1 to `most` and none twice. `max`: what stands for that word, where it is known.
/// InputError.
std::vector<std::uint32_t> parse_batches(const std::string& text, std::uint64_t most,
                                         std::optional<std::uint32_t> max = {});

/// --workload, what heads choose where no tensor is computed: "published", or a file as summary's target.json and
/// `tandem compare --as` have it under "workload". InputError; `others` names what else the command takes.
Workload read_workload(const std::string& argument, const char* others);

}  // namespace tandem::cli
