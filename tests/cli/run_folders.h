// Run folders of the program's tests, side by side in one that is gone with the test.
#pragma once

#include <gtest/gtest.h>
#include <string>

#include "tests/engine/model/model_folder.h"

namespace tandem::testing {

class RunFolders : public ::testing::Test {
 protected:
  std::string folder(const char* name) const { return (root_.path() / name).string(); }
  std::string bytes(const char* run, const char* file) const { return read_bytes(root_.path() / run / file); }

  TemporaryFolder root_;
};

}  // namespace tandem::testing
