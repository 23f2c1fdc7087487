// The probe's GPU sections, run as the program runs them, on an emulated GPU: that every figure comes, that what each
// section verifies holds, what a driver without working waits and writes makes of it, and that `calibrate` takes the
// report. No time here is a GPU's.
#include <algorithm>
#include <cstdlib>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <sys/wait.h>

#include "engine/device/profile.h"
#include "hardware/calibration/calibration.h"
#include "tests/files.h"

namespace tandem {
namespace {

using nlohmann::json;
using ::testing::AnyOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::IsSupersetOf;
using ::testing::Not;

class ProbeOnEmulator : public ::testing::Test {
 protected:
  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  /// Exit code; the report is report(). So much time that no figure is left out for the lack of it.
  int run(const std::string& arguments, const std::string& environment = "") const {
    const std::string command = environment + " '" + TANDEM_PROBE_ON_EMULATOR + "' --quick --seconds 3000 --out '" +
                                path("probe.json") + "' " + arguments + " 2> '" + path("err") + "'";
    const int status = std::system(command.c_str());
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  std::string errors() const { return testing::read_bytes(path("err")); }
  json report() const { return json::parse(testing::read_bytes(path("probe.json"))); }
  /// That the section has these figures, and left out `too_large` ones for lack of memory. Where the machine was too
  /// busy for some, which the probe says of each, the others are there.
  void expect_figures(const std::string& name, const std::map<std::string, int>& expected, int too_large = 0) const {
    const json section = report()["sections"][name];
    EXPECT_NE(section["status"], "failed") << section["error"];
    EXPECT_THAT(section["checks"], Not(IsEmpty()));
    int busy = 0;
    for (const json& label : section["skipped"]) {
      const std::string text = label;
      if (text.find("larger than the memory allowed by --memory") != std::string::npos) {
        --too_large;
      } else {
        EXPECT_THAT(text,
                    AnyOf(HasSubstr("its time would be the host's"), HasSubstr("ended before the copy beside it")));
        ++busy;
      }
    }
    EXPECT_EQ(too_large, 0) << section["skipped"];
    std::map<std::string, int> count;
    for (const json& figure : section["figures"]) {
      EXPECT_GE(figure["repeats"].get<int>(), 7) << figure;
      EXPECT_LE(figure["p10"].get<double>(), figure["value"].get<double>()) << figure;
      EXPECT_LE(figure["value"].get<double>(), figure["p90"].get<double>()) << figure;
      ++count[figure["name"]];
    }
    EXPECT_LE(busy, 5) << section["skipped"];
    if (busy == 0) {
      EXPECT_EQ(count, expected) << name;
    }
  }
  const testing::TemporaryFolder folder_;
};

TEST_F(ProbeOnEmulator, EveryFigureComesAndTheReportMakesAProfile) {
  ASSERT_EQ(run("--memory 64M --sections dram,bandwidth,launch,calls,link,traffic,handoff"), 0) << errors();
  EXPECT_EQ(report()["machine"]["gpu"]["name"], "emulated");
  expect_figures("bandwidth", {{"device_copy", 6}, {"device_read", 3}, {"device_write", 3}});
  expect_figures("launch", {{"graph_node", 1}, {"launch_back_to_back", 4}, {"launch_host", 4}, {"launch_sync", 4}});
  expect_figures("calls", {{"call_device", 21}, {"call_host", 21}, {"step_end", 2}, {"stream_hop", 1}});
  expect_figures("link", {{"link", 92}, {"link_submit", 4}}, 20);
  expect_figures("traffic", {{"link_both_ways", 1}, {"small_copy", 6}});
  expect_figures("handoff", {{"cpu_to_gpu_to_cpu_store", 4}, {"gpu_to_cpu_after_store", 4}, {"round_trip", 8}});

  const auto made =
      hardware::calibrate(hardware::read_probe(path("probe.json")), {}, load_profile("h100"), {"mine", "", 0});
  std::vector<std::string> measured;
  for (const hardware::CalibratedField& field : made.fields) {
    if (field.from == "measured") measured.push_back(field.field);
  }
  EXPECT_THAT(measured,
              IsSupersetOf({"device.memory_gb", "device.hbm_gbps", "device.launch_ns", "device.op_floor_ns",
                            "link.h2d_curve", "link.d2h_curve", "link.h2d_gather_curve", "handoff.device_to_host_ns",
                            "control.operation_ns"}));  // the other hand-offs are differences, which may be below 0
}

TEST_F(ProbeOnEmulator, ProductsAreVerifiedAndNoneIsFasterThanTheDevice) {
  ASSERT_EQ(run("--memory 128M --sections gemm"), 0) << errors();
  expect_figures("gemm", {{"gemm", 6}, {"gemm_bytes", 4}}, 6);
  for (const json& figure : report()["sections"]["gemm"]["figures"]) {
    if (figure["unit"] == "TFLOP/s") {
      EXPECT_LE(figure["p90"].get<double>(), 100) << figure;
    }
  }
}

TEST_F(ProbeOnEmulator, ADriverWithoutValueOperationsCostsTheirFiguresAlone) {
  ASSERT_EQ(run("--memory 16M --sections calls,handoff", "TANDEM_EMULATED_LACK=operations"), 0) << errors();
  for (const char* section : {"calls", "handoff"}) {
    const json there = report()["sections"][section];
    EXPECT_EQ(there["status"], "partial");
    ASSERT_EQ(there["skipped"].size(), 1u) << there["skipped"];
    EXPECT_THAT(there["checks"], Not(IsEmpty()));
  }
}

TEST_F(ProbeOnEmulator, WritesThatDoNothingCostTheSectionBehindThem) {
  ASSERT_EQ(run("--memory 16M --sections calls,handoff", "TANDEM_EMULATED_LACK=writes"), 3) << errors();
  const json sections = report()["sections"];
  EXPECT_EQ(sections["calls"]["status"], "partial");
  EXPECT_THAT(sections["calls"]["skipped"], Each(HasSubstr("the word was not written")));
  EXPECT_EQ(sections["handoff"]["status"], "failed");
  EXPECT_THAT(sections["handoff"]["error"], HasSubstr("did not reach the CPU within 2 s"));
  EXPECT_EQ(sections["handoff"]["figures"].size(), 10u);  // of the other ways, which come first
}

TEST_F(ProbeOnEmulator, BehindADeviceThatWaitsForEverNoSectionRuns) {
  ASSERT_EQ(run("--memory 16M --sections launch,calls,handoff", "TANDEM_EMULATED_LACK=waits"), 3) << errors();
  const json sections = report()["sections"];
  EXPECT_EQ(sections["launch"]["status"], "ok");
  EXPECT_EQ(sections["calls"]["status"], "failed");
  EXPECT_THAT(sections["calls"]["error"], HasSubstr("The device did not finish while making calls"));
  EXPECT_GE(sections["calls"]["figures"].size(), 30u);  // of what came before
  EXPECT_EQ(sections["handoff"]["status"], "failed");
  EXPECT_THAT(sections["handoff"]["error"], HasSubstr("Not run: the device stopped answering"));
}

}  // namespace
}  // namespace tandem
