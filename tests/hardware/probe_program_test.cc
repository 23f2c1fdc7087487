// The program as users run it: exit codes, the JSON of its CPU sections, and what it says where there is no GPU.
#include <cstdlib>
#include <filesystem>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <sys/wait.h>

#include "hardware/probe/probe.h"
#include "tests/files.h"

namespace tandem::probe {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

class ProbeProgram : public ::testing::Test {
 protected:
  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  std::string text(const std::string& name) const { return tandem::testing::read_bytes(folder_ / name); }
  /// Exit code; standard output and error go to "out" and "err". CUDA_VISIBLE_DEVICES hides a GPU where there is one.
  int run(const std::string& arguments) const {
    const std::string command = std::string("CUDA_VISIBLE_DEVICES= '") + TANDEM_PROBE_PROGRAM + "' " + arguments +
                                " > '" + path("out") + "' 2> '" + path("err") + "'";
    const int status = std::system(command.c_str());
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  const tandem::testing::TemporaryFolder folder_;
};

TEST_F(ProbeProgram, QuickCpuSectionsGiveFigures) {
  ASSERT_EQ(run("--quick --sections dram,cpu_attention --memory 16M --seconds 2 --label 'test machine' --out " +
                path("p.json")),
            0)
      << text("err");
  EXPECT_TRUE(text("out").empty());
  const json report = json::parse(text("p.json"));
  EXPECT_EQ(report["schema_version"], 1);
  EXPECT_EQ(report["machine"]["name"], "test machine");
  EXPECT_GE(report["machine"]["cpu"]["threads_used"].get<int>(), 1);
  ASSERT_EQ(report["sections"].size(), 2u);
  for (const auto& [name, section] : report["sections"].items()) {
    // A loaded or instrumented machine may run out of time, which is said and is no failure.
    EXPECT_TRUE(section["status"] == "ok" || section["status"] == "partial") << name << section;
    EXPECT_FALSE(section["checks"].empty()) << name;
    EXPECT_FALSE(section["figures"].empty() && section["skipped"].empty()) << name;
    for (const json& figure : section["figures"]) {
      EXPECT_GE(figure["repeats"].get<int>(), kMinRepeats);
      EXPECT_GT(figure["value"].get<double>(), 0);
      EXPECT_LE(figure["p10"].get<double>(), figure["value"].get<double>());
      EXPECT_LE(figure["value"].get<double>(), figure["p90"].get<double>());
      EXPECT_EQ(figure["unit"], "GB/s");
      EXPECT_GE(figure["conditions"]["threads"].get<int>(), 1);
    }
  }
  EXPECT_FALSE(std::filesystem::exists(path("p.json.partial")));
}

TEST_F(ProbeProgram, GpuSectionsWithoutAGpuAreAbsentWithAReason) {
  ASSERT_EQ(run("--sections bandwidth,gemm,launch,link,handoff"), 0) << text("err");
  const json report = json::parse(text("out"));
  EXPECT_TRUE(report["machine"]["gpu"].is_null());
  EXPECT_FALSE(report["machine"]["gpu_absent_because"].get<std::string>().empty());
  ASSERT_EQ(report["sections"].size(), 5u);
  for (const auto& [name, section] : report["sections"].items()) {
    EXPECT_EQ(section["status"], "absent") << name;
    EXPECT_EQ(section["error"], report["machine"]["gpu_absent_because"]) << name;
  }
}

TEST_F(ProbeProgram, BadUsageExitsWithTwoAndASentence) {
  for (const char* arguments : {"--sections nothing", "--seconds x", "--memory 1", "--fast", "--out"}) {
    EXPECT_EQ(run(arguments), 2) << arguments;
    EXPECT_TRUE(text("out").empty()) << arguments;
    EXPECT_THAT(text("err"), ::testing::MatchesRegex("tandem-probe: .*\\.\n")) << arguments;
  }
}

TEST_F(ProbeProgram, UnwritableOutputExitsWithThree) {
  EXPECT_EQ(run("--sections gemm --out " + path("no/such/folder.json")), 3);
  EXPECT_THAT(text("err"), HasSubstr("could not be written"));
}

TEST_F(ProbeProgram, AFileThatIsThereIsReplacedOnlyWhereAskedTo) {
  const std::string command = "--sections gemm --out " + path("p.json");
  ASSERT_EQ(run(command), 0) << text("err");
  const std::string before = text("p.json");
  EXPECT_EQ(run(command + " --label other"), 2);
  EXPECT_THAT(text("err"), HasSubstr("--force replaces it"));
  EXPECT_EQ(text("p.json"), before);
  EXPECT_EQ(run(command + " --label other --force"), 0) << text("err");
  EXPECT_THAT(text("p.json"), HasSubstr("other"));
  EXPECT_EQ(run("--sections gemm --force --out /dev/null"), 2);
  EXPECT_THAT(text("err"), HasSubstr("is no regular file"));
}

TEST_F(ProbeProgram, HelpGoesToStandardOutput) {
  EXPECT_EQ(run("--help"), 0);
  EXPECT_THAT(text("out"), HasSubstr("--quick"));
  EXPECT_TRUE(text("err").empty());
}

}  // namespace
}  // namespace tandem::probe
