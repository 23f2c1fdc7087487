// tandem calibrate as a user meets it: from a probe's file to a profile that other commands take.
#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/common/paths.h"
#include "tests/cli/program.h"
#include "tests/engine/model/model_folder.h"

namespace tandem::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string probe_file() {
  return (source_folder() / "results" / "probe-cpu-zen5-2core.json").string();
}

TEST(CalibrateProgram, AProbeBecomesAProfileThatOthersTake) {
  const TemporaryFolder folder;
  const std::string out = (folder.path() / "mine.json").string();
  const std::string command = "calibrate --base h200 --probe " + probe_file() + " --out " + out;
  const cli::Outcome made = cli::run(command);
  ASSERT_EQ(made.code, 0) << made.text;
  EXPECT_THAT(made.text, AllOf(HasSubstr("host.dram_gbps"), HasSubstr("73.75"), HasSubstr("measured"),
                               HasSubstr("was built without CUDA"), HasSubstr("--hw " + out)));
  const cli::Outcome shown = cli::run("info --hw " + out, cli::kOnlyOutput);
  ASSERT_EQ(shown.code, 0) << shown.text;
  EXPECT_THAT(shown.text, AllOf(HasSubstr("\"dram_gbps\": 73.75"), HasSubstr("measured: dram_read, 2 threads"),
                                HasSubstr("assumed: not measured, as h200 has it")));
  const cli::Outcome again = cli::run(command);
  EXPECT_EQ(again.code, 2);
  EXPECT_THAT(again.text, HasSubstr("--force replaces it"));
}

TEST(CalibrateProgram, RefusesWhatItCannotUse) {
  const TemporaryFolder folder;
  const std::string out = (folder.path() / "mine.json").string();
  const auto refused = [&](const std::string& options) {
    const cli::Outcome outcome = cli::run("calibrate " + options);
    EXPECT_EQ(outcome.code, 2) << options;
    EXPECT_FALSE(std::filesystem::exists(out)) << options;
    return outcome.text;
  };
  EXPECT_THAT(refused("--base h200 --probe " + probe_file() + " --out mine"), HasSubstr("is a .json file"));
  EXPECT_THAT(refused("--base h201 --probe " + probe_file() + " --out " + out), HasSubstr("'h201'"));
  EXPECT_THAT(refused("--base h200 --probe none.json --out " + out), HasSubstr("none.json cannot be read"));
  EXPECT_THAT(refused("--base h200 --probe " + probe_file() + " --kernels " + probe_file() + " --out " + out),
              HasSubstr("'measured_on' is missing"));
  EXPECT_THAT(refused("--base h200 --out " + out), HasSubstr("--probe"));
  const std::string copy = (folder.path() / "probe.json").string();
  std::filesystem::copy_file(probe_file(), copy);
  EXPECT_THAT(refused("--force --base h200 --probe " + copy + " --out " + copy),
              HasSubstr("is what this command reads"));
  EXPECT_EQ(read_bytes(copy), read_bytes(probe_file()));
  EXPECT_THAT(refused("--base h200 --probe " + copy + " --out " + folder.path().string() + "/a,b.json"),
              HasSubstr("a profile's has none"));
}

}  // namespace
}  // namespace tandem::testing
