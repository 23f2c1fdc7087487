#include "engine/trace/perfetto.h"

#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "engine/common/error.h"
#include "engine/device/sim_device.h"
#include "tests/engine/device/test_profile.h"

namespace tandem {
namespace {

Trace small_trace() {
  auto sim = make_sim_device(round_profile());
  Op kernel;
  kernel.name = "odd \"name\" \\ \n";
  kernel.layer = 2;
  kernel.cost = {.hbm = 1'234'567, .flops = 99};
  const Event a = sim->submit(1, kernel);
  Op host;
  host.name = "partial";
  host.cause = Cause::host_attention;
  host.cost.dram = 1000;
  host.after = {a};
  sim->end_step(Device::kSetupStep, sim->submit(4, host));
  sim->end_step(0, sim->submit(1, kernel));
  return sim->drain();
}

class Perfetto : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::path(::testing::TempDir()) /
              ("tandem_perfetto_" + std::string(::testing::UnitTest::GetInstance()->current_test_info()->name()));
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::filesystem::path folder_;
};

TEST_F(Perfetto, IsValidJsonWithEveryRecordAndWindow) {
  const Trace trace = small_trace();
  write_perfetto(trace, folder_ / "trace.json");
  std::ifstream file(folder_ / "trace.json");
  const nlohmann::json json = nlohmann::json::parse(file);
  std::map<std::string, int> phases;
  std::size_t slices = 0, windows = 0;
  std::vector<int> starts, finishes;
  std::set<int> lanes, named;
  for (const auto& event : json.at("traceEvents")) {
    const std::string phase = event.at("ph");
    ++phases[phase];
    if (phase == "X") {
      if (event.at("tid") == 0) {
        ++windows;
        continue;
      }
      const TraceRecord& record = trace.records.at(slices++);
      EXPECT_EQ(event.at("name"), record.name);
      EXPECT_EQ(event.at("tid"), record.lane + 1);
      lanes.insert(record.lane + 1);
      EXPECT_EQ(std::llround(event.at("ts").get<double>() * 1000), record.start);
      EXPECT_EQ(std::llround(event.at("dur").get<double>() * 1000), record.end - record.start);
      EXPECT_EQ(event.at("args").at("cause"), to_string(record.cause));
      EXPECT_EQ(event.at("args").contains("layer"), record.layer != Op::kNoLayer);
      EXPECT_EQ(event.at("args").value("hbm_bytes", std::uint64_t{0}), record.cost.hbm);
    }
    if (phase == "M" && event.value("tid", 0) != 0) named.insert(event.at("tid").get<int>());
    if (phase == "s") starts.push_back(event.at("id"));
    if (phase == "f") finishes.push_back(event.at("id"));
  }
  EXPECT_EQ(slices, trace.records.size());
  EXPECT_EQ(windows, 2u);
  EXPECT_EQ(starts, finishes);
  EXPECT_GE(starts.size(), 4u);  // launch -> kernel, kernel -> partial, partial -> wait, ...
  EXPECT_LT(lanes.size(), trace.lanes.size());
  EXPECT_EQ(named, lanes);  // a lane where nothing ran has no row
}

TEST_F(Perfetto, AnUnwritablePathIsASentence) {
  const Trace trace = small_trace();
  for (const std::filesystem::path& path :
       {folder_ / "no folder" / "trace.json", folder_, std::filesystem::path("/dev/full")}) {
    try {
      write_perfetto(trace, path);
      FAIL() << path;
    } catch (const RunError& error) {
      EXPECT_THAT(error.what(), ::testing::HasSubstr(path.string()));
    }
  }
}

TEST_F(Perfetto, AnEmptyTraceIsValidToo) {
  write_perfetto(Trace{}, folder_ / "empty.json");
  std::ifstream file(folder_ / "empty.json");
  EXPECT_EQ(nlohmann::json::parse(file).at("traceEvents").size(), 2u);
}

}  // namespace
}  // namespace tandem
