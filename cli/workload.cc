#include "cli/workload.h"

#include <filesystem>
#include <fmt/core.h>

#include "engine/common/error.h"
#include "engine/common/paths.h"
#include "engine/common/read_file.h"

namespace tandem::cli {

Workload read_workload(const std::string& argument, const char* others) {
  const std::filesystem::path file =
      argument == "published" ? data_path("hardware/workloads/published.json") : std::filesystem::path(argument);
  if (!path_exists(file))
    throw_input_error("--workload: '{}' cannot be read; give {}published or a file.", file.string(), others);
  return parse_workload(read_file(file, kMostOfAFile, fmt::format("--workload: '{}'", file.string())), file.string());
}

}  // namespace tandem::cli
