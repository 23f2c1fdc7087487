#include "engine/common/version.h"

#include <fmt/core.h>

namespace tandem {

// The TANDEM_BUILD_ definitions are set for this file alone, in cmake/Version.cmake.
std::string_view version() {
  return TANDEM_BUILD_VERSION;
}

std::string build_description() {
  constexpr std::string_view sanitizers = TANDEM_BUILD_SANITIZERS;
  return fmt::format("{} {}, {}{}{}", TANDEM_BUILD_COMPILER, TANDEM_BUILD_COMPILER_VERSION, TANDEM_BUILD_TYPE,
                     sanitizers.empty() ? "" : ", sanitizers ", sanitizers);
}

bool built_with_cuda() {
  return TANDEM_BUILD_CUDA != 0;
}

}  // namespace tandem
