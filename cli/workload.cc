#include "cli/workload.h"

#include <filesystem>
#include <fmt/core.h>

#include "cli/input.h"
#include "engine/common/error.h"
#include "engine/common/paths.h"

namespace tandem::cli {

Workload read_workload(const std::string& argument, const char* others) {
  constexpr std::size_t kMost = std::size_t{64} << 20;
  const std::filesystem::path file =
      argument == "published" ? data_path("hardware/workloads/published.json") : std::filesystem::path(argument);
  std::error_code refused;
  if (!std::filesystem::exists(file, refused) || std::filesystem::is_directory(file, refused))
    throw_input_error("--workload: '{}' cannot be read; give {}published or a file.", file.string(), others);
  return parse_workload(read_text(file.string(), fmt::format("--workload: '{}'", file.string()), kMost), file.string());
}

}  // namespace tandem::cli
