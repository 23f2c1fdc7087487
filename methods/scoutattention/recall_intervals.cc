#include "methods/scoutattention/recall_intervals.h"

#include <algorithm>
#include <filesystem>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "engine/common/error.h"
#include "engine/common/json.h"
#include "engine/common/read_file.h"

namespace tandem {
namespace {

constexpr std::uint32_t kMostSteps = 1'000'000;

RecallIntervals read_intervals(const std::string& file) {
  std::error_code refused;
  if (!std::filesystem::is_regular_file(file, refused)) {
    throw_input_error(
        "Option 'recall' of method 'scoutattention' is '{}', which is neither a number of steps, nor numbers with '-' "
        "between them, nor a file that can be read. `tandem profile scout-recall --out FILE` writes such a file.",
        file);
  }
  RecallIntervals intervals;
  intervals.steps.clear();
  const nlohmann::json json = parse_json(read_file(file), file);
  if (!json.is_object() || !json.contains("intervals") || !json.at("intervals").is_array())
    throw_input_error("{} has no list 'intervals': `tandem profile scout-recall --out FILE` writes such a file.", file);
  for (const nlohmann::json& value : json.at("intervals")) {
    if (!value.is_number_unsigned() || value.get<std::uint64_t>() > kMostSteps) {
      throw_input_error("{}: intervals[{}] is {}; it must be a whole number of steps from 0 (never) to {}.", file,
                        intervals.steps.size(), json_excerpt(value), kMostSteps);
    }
    intervals.steps.push_back(value.get<std::uint32_t>());
  }
  if (const auto weights = json.find("weights_hash"); weights != json.end() && weights->is_string())
    intervals.weights_hash = weights->get<std::string>();
  if (intervals.steps.empty()) throw_input_error("{}: 'intervals' is empty; it has a number for each layer.", file);
  return intervals;
}

}  // namespace

std::string RecallIntervals::text() const {
  return fmt::format("{}", fmt::join(steps, "-"));
}

RecallIntervals parse_recall_intervals(const std::string& text) {
  const auto is_plain = [](char c) { return (c >= '0' && c <= '9') || c == '-'; };
  if (text.empty() || !std::all_of(text.begin(), text.end(), is_plain)) return read_intervals(text);
  RecallIntervals intervals;
  intervals.steps.clear();
  std::size_t at = 0;
  while (at <= text.size()) {
    const std::size_t end = std::min(text.find('-', at), text.size());
    const std::string number = text.substr(at, end - at);
    if (number.empty() || number.size() > 7 || std::stoul(number) > kMostSteps) {
      throw_input_error(
          "Option 'recall' of method 'scoutattention' is '{}': give a number of steps from 0 (never) to {}, or one for "
          "each layer with '-' between them.",
          text, kMostSteps);
    }
    intervals.steps.push_back(static_cast<std::uint32_t>(std::stoul(number)));
    at = end + 1;
  }
  return intervals;
}

}  // namespace tandem
