#include "cli/machines.h"

#include <algorithm>
#include <filesystem>
#include <fmt/ranges.h>
#include <iterator>
#include <utility>

#include "cli/input.h"
#include "cli/output.h"
#include "engine/common/error.h"
#include "engine/common/paths.h"
#include "engine/common/read_file.h"
#include "eval/run/option_values.h"

namespace tandem::cli {
namespace {

constexpr std::size_t kShortestPart = 3;  // letters that may stand for a profile's name

/// The only shipped profile with `part` in its name, in small or capital letters. A profile of that name
/// counts alone. Empty where none or several have it.
std::string profile_with(std::string part) {
  std::transform(part.begin(), part.end(), part.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
  std::string found;
  const std::vector<std::string> names = profile_names();
  if (std::ranges::find(names, part) != names.end()) return part;
  if (part.size() < kShortestPart || part == "all") return found;
  for (const std::string& name : names) {
    if (name.find(part) == std::string::npos) continue;
    if (!found.empty()) return "";
    found = name;
  }
  return found;
}

}  // namespace

std::string full_profile_names(const std::string& text) {
  std::vector<std::string> names = split_at_commas(text);
  for (std::string& name : names) {
    std::string whole = profile_with(name);
    if (whole.empty() || whole == name) continue;
    say(fmt::format("'{}' is the hardware profile {}.", name, whole));
    name = std::move(whole);
  }
  return fmt::format("{}", fmt::join(names, ","));
}

std::vector<HardwareProfile> load_profiles(const std::string& text, std::string_view option) {
  const std::vector<std::string> names = eval::split_list(text, option);
  std::vector<HardwareProfile> profiles;
  const auto there = [&](const std::string& name) {
    return std::any_of(profiles.begin(), profiles.end(), [&](const HardwareProfile& p) { return p.name == name; });
  };
  for (const std::string& name : names) {
    if (name == "all") continue;
    HardwareProfile profile = load_profile(name);
    if (there(profile.name))
      throw_input_error("{}: two profiles are named '{}': rename one of the files.", option, profile.name);
    profiles.push_back(std::move(profile));
  }
  auto place = std::find(names.begin(), names.end(), "all") - names.begin();
  if (place == std::ssize(names)) return profiles;
  for (const std::string& name : profile_names())
    if (!there(name)) profiles.insert(profiles.begin() + place++, load_profile(name));
  return profiles;
}

double parse_memory_gb(const std::string& text, std::string_view option) {
  const bool digits = text.find_first_not_of("0123456789.") == std::string::npos;
  const double gb = double(eval::parse_size(digits ? text + "GB" : text, option)) * 1e-9;
  if (gb < 0.1) throw_input_error("{} is {}: give 0.1 GB or more, for example 64 or 64GB.", option, text);
  if (gb > 1e6) throw_input_error("{} is {:.3g} GB, more than any machine has: give GB, for example 64.", option, gb);
  return gb;
}

void set_host_memory(std::vector<HardwareProfile>& machines, const std::string& text) {
  if (text.empty()) return;
  for (HardwareProfile& machine : machines) {
    machine.host.memory_gb = parse_memory_gb(text, "--host-memory");
    machine.title += fmt::format(", with {:.4g} GB of host memory", machine.host.memory_gb);
  }
}

void add_precision(Command command, eval::Precision& precision) {
  command.option("--weight-bits", precision.weight_bits, "Bits of a weight: 16 (bf16), 8 or 4; as bytes alone");
  command.option("--kv-bits", precision.kv_bits, "Bits of a number of the KV cache: 16 (bf16), 8 or 4; as bytes alone");
}

std::vector<std::uint32_t> parse_batches(const std::string& text, std::uint64_t most,
                                         std::optional<std::uint32_t> max) {
  std::vector<std::uint32_t> batches;
  for (const std::string& item : eval::split_list(text, "--batch")) {
    if (max && item != "max" && item.find_first_of("0123456789") == std::string::npos)
      throw_input_error("--batch: '{}' is not a whole number from 1 to {}, nor max.", item, most);
    const std::uint32_t batch =
        max && item == "max" ? *max : static_cast<std::uint32_t>(eval::parse_count(item, "--batch", 1, most));
    if (std::find(batches.begin(), batches.end(), batch) != batches.end())
      throw_input_error("--batch: '{}' is given twice.", item);
    batches.push_back(batch);
  }
  return batches;
}

Workload read_workload(const std::string& argument, const char* others) {
  const std::filesystem::path file =
      argument == "published" ? data_path("hardware/workloads/published.json") : std::filesystem::path(argument);
  if (!path_exists(file))
    throw_input_error(
        "--workload: '{}' cannot be read; give {}published or a file, such as target.json of a run of "
        "`tandem compare --as`. Only published ships.",
        file.string(), others);
  return parse_workload(read_file(file, kMostOfAFile, fmt::format("--workload: '{}'", file.string())), file.string());
}

}  // namespace tandem::cli
