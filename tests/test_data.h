// Data sets and models that are not part of the project: tests that use them skip, saying so, where they are absent.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>

#include "engine/common/paths.h"

namespace tandem::testing {

/// `name` inside the folder that the environment variable TANDEM_TEST_DATA names (default: ../shared/data beside the
/// checkout); an empty path where it does not exist. To be used as
///   const auto file = test_data("ruler/official.jsonl");
///   if (file.empty()) GTEST_SKIP() << missing_test_data("ruler/official.jsonl");
inline std::filesystem::path test_data(const std::string& name) {
  const char* folder = std::getenv("TANDEM_TEST_DATA");
  const std::filesystem::path root =
      folder != nullptr ? std::filesystem::path(folder) : source_folder().parent_path() / "shared" / "data";
  std::error_code refused;
  return std::filesystem::exists(root / name, refused) ? root / name : std::filesystem::path();
}

inline std::string missing_test_data(const std::string& name) {
  return name + " is not here; set TANDEM_TEST_DATA to the folder that holds it";
}

}  // namespace tandem::testing
