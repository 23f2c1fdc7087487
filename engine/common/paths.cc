#include "engine/common/paths.h"

#include <cstdlib>
#include <string>
#include <vector>

#include "engine/common/error.h"

namespace tandem {

std::filesystem::path source_folder() {
  return TANDEM_SOURCE_DIR;
}

std::filesystem::path data_path(std::string_view relative) {
  namespace fs = std::filesystem;
  std::vector<fs::path> roots;
  if (const char* home = std::getenv("TANDEM_HOME"); home != nullptr && *home != '\0') roots.emplace_back(home);
  std::error_code ignored;
  const fs::path program = fs::read_symlink("/proc/self/exe", ignored);
  if (!program.empty()) roots.push_back(program.parent_path() / ".." / "share" / "tandem");
  roots.push_back(source_folder());
  std::vector<std::string> tried;
  for (const fs::path& root : roots) {
    const fs::path candidate = (root / relative).lexically_normal();
    if (fs::exists(candidate, ignored)) return candidate;
    tried.push_back(candidate.string());
  }
  throw_input_error("The shipped file '{}' was not found: tried {}. Set TANDEM_HOME to the folder that holds it.",
                    relative, join_names(tried));
}

}  // namespace tandem
