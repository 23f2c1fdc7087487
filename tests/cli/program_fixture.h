// The fixture of the program's tests: a folder of its own, and what every refused command line has in common.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "tests/cli/program.h"
#include "tests/engine/model/model_folder.h"

namespace tandem::testing {

/// Files and run folders of a test, side by side in a folder that is removed after it.
class ProgramTest : public ::testing::Test {
 protected:
  std::string folder(const char* name) const { return (root_.path() / name).string(); }
  std::string bytes(const std::string& run, const char* file) const { return read_bytes(root_.path() / run / file); }

  TemporaryFolder root_;
};

/// Exit code 2, one sentence on stderr that holds all of `says`, and nothing on stdout.
inline void expect_refused(const std::string& arguments, const std::vector<std::string>& says) {
  const cli::Outcome outcome = cli::run(arguments, cli::kOnlyErrors);
  EXPECT_EQ(outcome.code, 2) << arguments << "\n" << outcome.text;
  EXPECT_THAT(outcome.text, ::testing::StartsWith("tandem: "));
  EXPECT_EQ(outcome.text.find('\n'), outcome.text.size() - 1) << arguments << "\n" << outcome.text;
  for (const std::string& part : says) EXPECT_THAT(outcome.text, ::testing::HasSubstr(part)) << arguments;
  EXPECT_EQ(cli::run(arguments, cli::kOnlyOutput).text, "") << arguments;
}

/// Command lines that are refused: instantiated beside each command's tests (program_test.cc has the test).
class RefusedUsage : public ::testing::TestWithParam<cli::BadUsage> {};

}  // namespace tandem::testing
