#include "hardware/calibration/calibration.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/common/error.h"
#include "engine/common/paths.h"
#include "tests/hardware/calibration/machine.h"

namespace tandem::hardware {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

/// With every figure that a profile is made from.
struct WholeMachine : ProbedMachine {
  WholeMachine() {
    for (const int threads : {1, 4, 16})
      add("dram", "dram_read", "GB/s", threads == 1 ? 14 : threads == 4 ? 55 : 120, {{"threads", threads}});
    for (const int threads : {1, 16})
      add("cpu_attention", "cpu_attention", "GB/s", threads == 1 ? 9 : 90,
          {{"threads", threads}, {"pattern", "random"}, {"page_tokens", 16}, {"prefetch", true}, {"isa", "avx2"}});
    for (const int mib : {64, 512})
      add("bandwidth", "device_read", "GB/s", mib == 512 ? 1835.136 : 3000,
          {{"bytes", mib << 20}, {"method", "kernel"}});
    for (const int rows : {1, 512, 4096})
      add("gemm", "gemm", "TFLOP/s", rows == 1 ? 900 : rows * 0.06,
          {{"phase", rows == 1 ? "decode" : "prefill"}, {"rows", rows}});
    add("launch", "launch_host", "us", 2.5, {{"what", "kernel"}, {"burst", 500}});
    for (const int nodes : {1, 8, 32})
      add("launch", "launch_host", "us", 4 + 0.1 * nodes, {{"what", "graph"}, {"nodes", nodes}});
    add("launch", "launch_back_to_back", "us", 1.75, {{"what", "kernel"}, {"burst", 500}});
    add("launch", "graph_node", "us", 1.25, {{"from_nodes", 1}, {"to_nodes", 32}});
    for (const int rows : {1, 16, 64})  // 60 and 20 GB of weights a second, of three times as many bytes
      for (const int out : {1024, 3072})
        add("gemm", "gemm_bytes", "GB/s", rows == 16 ? (out == 1024 ? 800 : 1600) : 10,
            {{"phase", "decode"}, {"rows", rows}, {"in", 4096}, {"out", out}});
    for (const bool timing : {false, true})
      add("calls", "call_host", "us", timing ? 0.6 : 0.2, {{"what", "event_record"}, {"timing", timing}});
    add("calls", "stream_hop", "us", 2.3, {{"by", "event"}});
    add_link("dma_loop", "h2d", {5e-6, 2e-6, 1 / 50e9}, {256, 4096, 1 << 20}, {8, 64});
    add_link("dma_batch", "h2d", {5e-6, 500e-9, 1 / 50e9}, {256, 4096, 1 << 20}, {8, 64});
    add_link("dma_batch", "d2h", {5e-6, 500e-9, 1 / 40e9}, {256, 4096, 1 << 20}, {8, 64});
    add_link("zero_copy", "h2d", {9e-6, 20e-9, 1 / 45e9}, {256, 4096, 1 << 20}, {8, 64});
    add("handoff", "round_trip", "us", 1.6, {{"gpu_to_cpu", "running_kernel"}, {"cpu_to_gpu", "running_kernel"}});
    add("handoff", "round_trip", "us", 6, {{"gpu_to_cpu", "none"}, {"cpu_to_gpu", "none"}});
    add("handoff", "gpu_to_cpu_after_store", "us", 20, {{"by", "host_callback"}});
    add("handoff", "gpu_to_cpu_after_store", "us", 1.0, {{"by", "store_kernel"}});
    add("handoff", "gpu_to_cpu_after_store", "us", 1.4, {{"by", "stream_write_value"}});
    add("handoff", "gpu_to_cpu_after_store", "us", 0.1, {{"by", "cudaStreamSynchronize"}});
    add("handoff", "cpu_to_gpu_to_cpu_store", "us", 3.2, {{"by", "stream_wait_value"}});
    add("handoff", "cpu_to_gpu_to_cpu_store", "us", 2.9, {{"by", "wait_kernel"}});
    add("handoff", "cpu_to_gpu_to_cpu_store", "us", 0.2, {{"by", "kernel_launch"}});
  }
};

KernelReport kernels(unsigned threads, std::vector<KernelReport::Row> rows) {
  KernelReport report;
  report.file = "kernels.json";
  report.cuda = threads == 0;
  report.machine = report.cuda ? "Test GPU" : "Test CPU, " + std::to_string(threads) + " threads";
  report.threads = threads;
  report.rows = std::move(rows);
  return report;
}

CalibratedProfile calibrated(const ProbedMachine& machine, const std::vector<KernelReport>& reports = {},
                             const CalibrationOptions& options = {"mine", "", 0}) {
  return calibrate(machine.read(), reports, load_profile("h200"), options);
}

const CalibratedField& field(const CalibratedProfile& result, const std::string& name) {
  for (const CalibratedField& one : result.fields)
    if (one.field == name) return one;
  throw std::logic_error("no field " + name);
}

TEST(Calibration, TheHostsMemoryIsThisMachinesOrNotKnown) {
  WholeMachine machine;
  const HardwareProfile base = load_profile("fluxion-a100");
  ASSERT_GT(base.host.memory_gb, 0);
  const HardwareProfile unknown = calibrate(machine.read(), {}, base, {"mine", "", 0}).profile;
  EXPECT_EQ(unknown.host.memory_gb, 0) << "the base's is another machine's";
  EXPECT_FALSE(unknown.sources.contains("host.memory_gb"));
  machine.report.memory = {{"total_bytes", std::int64_t{128'000'000'000}}};
  const CalibratedProfile calibrated = calibrate(machine.read(), {}, base, {"mine", "", 0});
  EXPECT_EQ(field(calibrated, "host.memory_gb").base, fmt::format("{:.4g}", base.host.memory_gb));
  EXPECT_EQ(field(calibrated, "host.memory_gb").value, "128");
  const HardwareProfile& whole = calibrated.profile;
  EXPECT_EQ(whole.host.memory_gb, 128);
  EXPECT_THAT(whole.sources.at("host.memory_gb"), StartsWith("measured: memory that a process may use"));
  machine.report.memory.emplace_back("cgroup_limit_bytes", std::int64_t{64'000'000'000});
  EXPECT_EQ(calibrate(machine.read(), {}, base, {"mine", "", 0}).profile.host.memory_gb, 64);
  machine.report.memory = {{"cgroup_limit_bytes", std::int64_t{64'000'000'000}}};
  EXPECT_EQ(calibrate(machine.read(), {}, base, {"mine", "", 0}).profile.host.memory_gb, 64);
}

TEST(Calibration, TakesEveryRateThatTheProbeHas) {
  const CalibratedProfile result = calibrated(WholeMachine());
  const HardwareProfile& p = result.profile;
  EXPECT_EQ(p.name, "mine");
  EXPECT_EQ(p.title, "Test GPU, Test CPU 16 threads");
  EXPECT_EQ(p.device.memory_gb, 80);
  EXPECT_EQ(p.device.hbm_gbps, 2039);  // the data sheet's, from bus and clock
  EXPECT_NEAR(p.device.stream_efficiency, 0.9, 1e-4);
  EXPECT_NEAR(p.device.gemm_tflops, 245.8, 1e-9);
  EXPECT_EQ(p.device.launch_ns, 2500);
  EXPECT_EQ(p.device.segment_launch_ns, 0) << "this engine captures no graphs";
  EXPECT_THAT(p.sources.at("device.segment_launch_ns"), HasSubstr("a graph of 32 took 7.2 us"));
  EXPECT_EQ(p.device.op_floor_ns, 1750);
  EXPECT_NEAR(p.device.weights_efficiency, 4.0 / (1 / 800.0 + 3 / 1600.0) / 2039, 1e-4);  // of 16 rows
  EXPECT_NEAR(256 / p.link.h2d_curve.at(0).gbps, 500 + 256 / 50.0, 1) << "copies by one call";
  EXPECT_NEAR(p.link.h2d_curve.at(2).gbps, 48.8, 0.1);
  EXPECT_NEAR(p.link.d2h_curve.at(2).gbps, 39.2, 0.1);
  EXPECT_NEAR(256 / p.link.h2d_gather_curve.at(0).gbps, 20 + 256 / 45.0, 0.1);
  EXPECT_EQ(p.link.transfer_ns, 5000);
  EXPECT_EQ(p.link.piece_ns, 0);
  EXPECT_EQ(p.host.threads, 15u);
  EXPECT_EQ(p.host.dram_gbps, 120);
  EXPECT_EQ(p.host.attention_gbps_per_thread, 9);
  EXPECT_EQ(p.host.attention_efficiency, 0.75);
  EXPECT_EQ(p.host.stream_gbps_per_thread, 14);
  EXPECT_EQ(p.handoff.device_to_host_ns, 2200);  // the stream operation's, and a store
  EXPECT_EQ(p.handoff.host_to_device_ns, 2400);  // the stream operation's, without the store back
  EXPECT_EQ(p.handoff.stream_ns, 2300);
  EXPECT_EQ(p.control.operation_ns, 4500);  // two records with times, and the engine's own
  EXPECT_THAT(p.sources.at("control.operation_ns"), HasSubstr("for an operation of full"));
  EXPECT_THAT(result.warnings, IsEmpty());
  EXPECT_THAT(p.sources.at("host.dram_gbps"),
              AllOf(StartsWith("measured: dram_read, 16 threads, median of 9"), HasSubstr("118.8 to 121.2 GB/s"),
                    HasSubstr("the test's machine, 2026-01-02")));
  // What the engine's kernels must tell, and what nothing measures.
  for (const char* name : {"device.attention_efficiency", "device.select_efficiency", "host.select_gbps_per_thread",
                           "host.gflops_per_thread", "control.submit_ns", "control.policy_ns"}) {
    EXPECT_FALSE(field(result, name).from == "measured") << name;
    EXPECT_THAT(p.sources.at(name), StartsWith("assumed: not measured, as h200 has it (")) << name;
  }
  EXPECT_EQ(p.host.gflops_per_thread, load_profile("h200").host.gflops_per_thread);
}

TEST(Calibration, OfAnEngineWithGraphsLaunchesAreTheirs) {
  const HardwareProfile p = calibrated(WholeMachine(), {}, {"mine", "", 0, true}).profile;
  EXPECT_EQ(p.device.segment_launch_ns, 7200);
  EXPECT_EQ(p.device.op_floor_ns, 1250);
  EXPECT_EQ(p.control.operation_ns, 0);
  EXPECT_EQ(p.handoff.stream_ns, 2300);
}

TEST(Calibration, WaysThatADriverDoesNotOfferAreReplacedAndItSaysSo) {
  WholeMachine machine;
  auto& handoff = machine.at("handoff").figures;
  std::erase_if(handoff, [](const probe::Figure& f) {
    return std::any_of(f.conditions.begin(), f.conditions.end(), [](const auto& c) {
      const auto* text = std::get_if<std::string>(&c.value);
      return text != nullptr && (*text == "stream_write_value" || *text == "stream_wait_value");
    });
  });
  const CalibratedProfile result = calibrated(machine);
  EXPECT_EQ(result.profile.handoff.device_to_host_ns, 1800);  // the store kernel's
  EXPECT_EQ(result.profile.handoff.host_to_device_ns, 2100);
  EXPECT_THAT(result.warnings, ::testing::ElementsAre(HasSubstr("no figure by stream_write_value"),
                                                      HasSubstr("no figure by stream_wait_value")));
}

TEST(Calibration, SaysWhereALoadedDeviceSlowsTheLink) {
  WholeMachine machine;
  machine.add_link("dma_batch", "h2d", {5e-6, 500e-9, 1 / 30e9}, {256, 4096, 1 << 20}, {8, 64}, "device_read");
  EXPECT_THAT(calibrated(machine).warnings,
              ::testing::ElementsAre(AllOf(HasSubstr("While a kernel read device memory"), HasSubstr("1048576"))));
}

TEST(Calibration, TakesSharesAndRatesPerThreadFromTheKernels) {
  const std::vector<KernelReport> reports = {
      kernels(16, {{"score_blocks", 1000, 60e6}, {"score_blocks", 1, 1e6}}), kernels(4, {{"score_blocks", 1000, 40e6}}),
      kernels(1, {{"score_blocks", 1000, 7e6}, {"score_blocks", 9000, 7e6, true}}),
      kernels(0, {{"decode_attention", 100, 140e6},
                  {"decode_attention", 100, 145.46e6},
                  {"score_blocks", 20, 80e6},
                  {"score_blocks", 160, 210e6},
                  {"score_blocks", 1, 20e6}})};
  WholeMachine machine;
  machine.report.cpu.emplace_back("last_level_cache_bytes", std::int64_t{2'000'000});
  machine.report.gpu.emplace_back("l2_bytes", std::int64_t{50'000'000});
  const CalibratedProfile result = calibrated(machine, reports);
  const HardwareProfile& p = result.profile;
  EXPECT_EQ(p.host.select_gbps_per_thread, 7);  // of one thread, without the row that a neighbour disturbed
  EXPECT_EQ(p.host.select_efficiency, 0.5);     // of all threads, 60 of 120 GB/s
  EXPECT_NEAR(p.device.attention_efficiency, 285.46e6 / 200e-6 / 2039e9, 1e-4) << "no row has four caches";
  EXPECT_NEAR(p.device.select_efficiency, 210e6 / 160e-6 / 2039e9, 1e-4) << "one has, so that the others do not count";
  EXPECT_EQ(p.host.attention_efficiency, 0.75) << "the probe's: no report has the CPU's";
  EXPECT_THAT(p.sources.at("host.select_gbps_per_thread"),
              HasSubstr("score_blocks of bench kernels on Test CPU, 1 th"));
  EXPECT_THAT(result.warnings,
              ::testing::ElementsAre(HasSubstr("1 rows were measured beside busy neighbours"),
                                     HasSubstr("what score_blocks read is at most 3.5 times the last-level cache"),
                                     HasSubstr("what decode_attention read is at most 2.9 times the last-level")));
}

// The engine's own kernel where it was measured by one thread and by all, and never beside the probe's loop.
TEST(Calibration, HostAttentionIsTheEnginesKernelWhereThatWasMeasured) {
  const KernelReport all = kernels(16, {{"decode_attention", 1000, 96e6}, {"contiguous_attention", 1000, 108e6}}),
                     one = kernels(1, {{"decode_attention", 1000, 11e6}, {"contiguous_attention", 1000, 13e6}});
  const auto& own = calibrated(WholeMachine(), {all, one}).profile.host;
  EXPECT_EQ(own.attention_gbps_per_thread, 11);
  EXPECT_EQ(own.attention_efficiency, 0.8);
  EXPECT_EQ(own.attention_contiguous_gbps_per_thread, 13);
  EXPECT_EQ(own.attention_contiguous_efficiency, 0.9);
  const auto& half = calibrated(WholeMachine(), {all}).profile.host;
  EXPECT_EQ(half.attention_gbps_per_thread, 9) << "no report of one thread";
  EXPECT_EQ(half.attention_efficiency, 0.75);
  const auto& pages = calibrated(WholeMachine(), {kernels(16, {{"decode_attention", 1000, 96e6}}),
                                                  kernels(1, {{"decode_attention", 1000, 11e6}})})
                          .profile.host;
  EXPECT_EQ(pages.attention_efficiency, 0.8);
  EXPECT_EQ(pages.attention_contiguous_efficiency, 0) << "of the probe's";
}

void add_attention(ProbedMachine& machine, const char* pattern, int threads, double gbps, const char* isa = "avx2") {
  machine.add("cpu_attention", "cpu_attention", "GB/s", gbps,
              {{"threads", threads}, {"pattern", pattern}, {"page_tokens", 16}, {"prefetch", true}, {"isa", isa}});
}

TEST(Calibration, TakesContiguousAttentionBesideThatOfPages) {
  WholeMachine machine;
  for (const int threads : {1, 4, 16}) add_attention(machine, "contiguous", threads, threads == 1 ? 12 : 6.0 * threads);
  add_attention(machine, "contiguous", 16, 119, "avx512");  // not what the machine is known by
  const CalibratedProfile result = calibrated(machine);
  EXPECT_EQ(result.profile.host.attention_contiguous_gbps_per_thread, 12);
  EXPECT_EQ(result.profile.host.attention_contiguous_efficiency, 0.8);  // of as many threads as dram_gbps
  EXPECT_EQ(result.profile.host.attention_efficiency, 0.75);
  EXPECT_EQ(field(result, "host.attention_contiguous_efficiency").from, "measured");
  EXPECT_THAT(result.profile.sources.at("host.attention_contiguous_gbps_per_thread"),
              StartsWith("measured: cpu_attention, 1 thread, contiguous, median of 9"));
  EXPECT_THAT(result.profile.sources.at("host.attention_contiguous_efficiency"),
              StartsWith("measured: cpu_attention, 16 threads, contiguous, over dram_gbps"));
}

// What contiguous memory gains is between two figures of one machine: never one measured and one of the base.
TEST(Calibration, ContiguousAttentionComesFromWhereThatOfPagesComesFrom) {
  HardwareProfile base = load_profile("h200");
  base.host.attention_contiguous_efficiency = 0.9;
  base.host.attention_contiguous_gbps_per_thread = 14;
  base.sources["host.attention_contiguous_efficiency"] = base.sources["host.attention_contiguous_gbps_per_thread"] =
      "assumed: a test";
  const auto host_of = [&](const ProbedMachine& machine) {
    return calibrate(machine.read(), {}, base, {"mine", "", 0}).profile.host;
  };
  WholeMachine pages;  // the probe's time ended before contiguous ones
  EXPECT_EQ(host_of(pages).attention_contiguous_efficiency, 0);
  EXPECT_EQ(host_of(pages).attention_contiguous_gbps_per_thread, 0);
  ProbedMachine neither;
  neither.add("dram", "dram_read", "GB/s", 70, {{"threads", 16}});
  EXPECT_EQ(host_of(neither).attention_contiguous_efficiency, 0.9);
  EXPECT_EQ(host_of(neither).attention_contiguous_gbps_per_thread, 14);
  add_attention(neither, "contiguous", 16, 69);
  EXPECT_EQ(host_of(neither).attention_contiguous_efficiency, 0.9) << "pages were not measured";
  ProbedMachine few;  // of other numbers of threads than the memory's
  few.add("dram", "dram_read", "GB/s", 70, {{"threads", 16}});
  add_attention(few, "random", 16, 35);
  add_attention(few, "contiguous", 4, 40);
  EXPECT_EQ(host_of(few).attention_efficiency, 0.5);
  EXPECT_EQ(host_of(few).attention_contiguous_efficiency, 0);
  EXPECT_EQ(host_of(few).attention_contiguous_gbps_per_thread, 14) << "the base's, as that of pages";
}

// A rate of few threads is no share of what all reach, and one of all is none of one.
TEST(Calibration, OtherNumbersOfThreadsDoNotStandIn) {
  const CalibratedProfile result = calibrated(WholeMachine(), {kernels(4, {{"score_blocks", 1000, 40e6}})});
  EXPECT_EQ(field(result, "host.select_gbps_per_thread").from, "h200");
  EXPECT_EQ(result.profile.host.select_efficiency, 1);
  ProbedMachine partial;  // the cap cut the figures of the most threads off
  partial.add("dram", "dram_read", "GB/s", 55, {{"threads", 4}});
  partial.add("cpu_attention", "cpu_attention", "GB/s", 90,
              {{"threads", 16}, {"pattern", "random"}, {"page_tokens", 16}, {"prefetch", true}, {"isa", "avx2"}});
  partial.add("cpu_attention", "cpu_attention", "GB/s", 90,
              {{"pattern", "random"}, {"page_tokens", 16}, {"prefetch", true}, {"isa", "avx2"}});
  const CalibratedProfile cut = calibrated(partial);
  EXPECT_EQ(field(cut, "host.attention_efficiency").from, "h200");
  EXPECT_THAT(cut.profile.sources.at("host.dram_gbps"), HasSubstr("dram_read, 4 threads"));
}

TEST(Calibration, KernelsOfCachesOrOfAnotherMachineAreNotUsed) {
  WholeMachine machine;
  machine.report.gpu.emplace_back("l2_bytes", std::int64_t{50'000'000});
  KernelReport other = kernels(1, {{"score_blocks", 1000, 7e6}});
  other.machine = "Other CPU, 1 threads";
  const CalibratedProfile result = calibrated(machine, {kernels(0, {{"score_blocks", 1, 40e6}}), other});
  EXPECT_EQ(field(result, "device.select_efficiency").from, "h200");
  EXPECT_EQ(field(result, "host.select_gbps_per_thread").from, "h200");
  EXPECT_THAT(result.warnings, Contains(HasSubstr("what score_blocks read fits the last-level cache")));
  EXPECT_THAT(result.warnings, Contains(HasSubstr("was measured on Other CPU, 1 threads, the probe on Test CPU")));
}

// Two sizes that take as long, which four digits can put in the wrong order: the profile is one that can be read.
TEST(Calibration, RoundingMakesNoLongerPieceFaster) {
  for (int i = 0; i < 40; ++i) {
    WholeMachine machine;
    machine.at("link").figures.clear();
    machine.add_link("dma_batch", "h2d", {0, 400e-9 + i * 1.7e-9, 1 / 50e9}, {4096}, {1, 512});
    machine.add_link("dma_batch", "h2d", {0, 20e-9 + i * 1.7e-9, 1 / 50e9}, {8192}, {1, 512});
    EXPECT_NO_THROW(calibrated(machine)) << i;
  }
}

TEST(Calibration, AShareIsAtMostOneAndSaysWhatItWas) {
  const CalibratedProfile result = calibrated(WholeMachine(), {kernels(0, {{"decode_attention", 100, 408e6}})});
  EXPECT_EQ(result.profile.device.attention_efficiency, 1);
  EXPECT_THAT(result.warnings, Contains(HasSubstr("device.attention_efficiency came to 2 (")));
}

TEST(Calibration, WithoutTheMemorysClockItsReadIsTheMeasure) {
  WholeMachine machine;
  machine.report.gpu = {{"name", "Test GPU"}};
  const CalibratedProfile result = calibrated(machine);
  EXPECT_EQ(result.profile.device.hbm_gbps, 1835);
  EXPECT_EQ(result.profile.device.stream_efficiency, 1);
  EXPECT_EQ(result.profile.device.memory_gb, 141);
  EXPECT_FALSE(field(result, "device.memory_gb").from == "measured");
}

TEST(Calibration, WithoutAGpuTheDeviceIsTheBasesAndItSaysSo) {
  ProbedMachine machine;
  machine.add("dram", "dram_read", "GB/s", 70, {{"threads", 16}});
  machine.report.gpu_error = "There is no driver.";
  const CalibratedProfile result = calibrated(machine, {}, {"mine", "My box", 3});
  EXPECT_EQ(result.profile.title, "My box");
  EXPECT_EQ(result.profile.host.threads, 3u);
  EXPECT_EQ(result.profile.host.dram_gbps, 70);
  EXPECT_EQ(result.profile.device.hbm_gbps, 4800);
  EXPECT_FALSE(field(result, "link.h2d_curve").from == "measured");
  EXPECT_THAT(result.warnings, Contains(AllOf(HasSubstr("those of h200"), HasSubstr("There is no driver."))));
  EXPECT_THAT(calibration_text(result, "h200"), AllOf(HasSubstr("host.dram_gbps"), HasSubstr("There is no driver.")));
}

TEST(Calibration, SaysWhatVariedAndWhatFailed) {
  WholeMachine machine;
  machine.at("dram").figures.clear();
  machine.add("dram", "dram_read", "GB/s", 100, {{"threads", 16}}, 0.5);
  machine.at("gemm").status = probe::Status::failed;
  machine.at("gemm").error = "There is no cuBLAS.";
  machine.at("link").status = probe::Status::partial;
  machine.at("link").skipped = {"a", "b"};
  const CalibratedProfile result = calibrated(machine);
  EXPECT_NEAR(field(result, "host.dram_gbps").spread, 0.5, 1e-9);
  EXPECT_THAT(result.warnings, Contains(AllOf(HasSubstr("host.dram_gbps"), HasSubstr("75 to 125 GB/s"))));
  EXPECT_THAT(result.warnings, Contains(HasSubstr("'gemm' failed: There is no cuBLAS.")));
  EXPECT_THAT(result.warnings, Contains(HasSubstr("'link' left out 2 figures")));
}

TEST(Calibration, AFrameworksTimePerLayerIsNoneOfTheMachines) {
  HardwareProfile base = load_profile("h200");
  base.device.layer_ns = 500;
  base.sources["device.layer_ns"] = "assumed: a test";
  const CalibratedProfile result = calibrate(WholeMachine().read(), {}, base, {"mine", "", 0});
  EXPECT_EQ(result.profile.device.layer_ns, 0);
  EXPECT_FALSE(result.profile.sources.contains("device.layer_ns"));
}

TEST(Calibration, EveryBaseAndTheCommittedProbeMakeAProfile) {
  const ProbeReport report = read_probe(source_folder() / "results" / "probe-cpu-zen5-2core.json");
  for (const std::string& name : profile_names()) {
    const CalibratedProfile result = calibrate(report, {}, load_profile(name), {"mine", "", 0});
    EXPECT_EQ(result.profile.host.dram_gbps, 73.75) << name;
    EXPECT_DOUBLE_EQ(result.profile.host.attention_contiguous_gbps_per_thread, 31.08) << name;
    EXPECT_DOUBLE_EQ(result.profile.host.attention_contiguous_efficiency, 0.4561) << name;
    EXPECT_EQ(result.profile.peer.gbps, load_profile(name).peer.gbps);
    EXPECT_EQ(result.fields.size(), result.profile.sources.size()) << name;
  }
}

TEST(Calibration, MoreThreadsThanTheProbeHadWereNotMeasured) {
  EXPECT_EQ(calibrated(WholeMachine(), {}, {"mine", "", 16}).profile.host.threads, 16u);
  EXPECT_THAT(([] {
                calibrated(WholeMachine(), {}, {"mine", "", 17});
              }),
              ::testing::ThrowsMessage<InputError>(HasSubstr("--threads is 17, but the probe could use 16")));
}

TEST(Calibration, NothingMeasuredIsNoProfile) {
  ProbedMachine machine;
  try {
    calibrate(machine.read(), {}, load_profile("h200"), {"mine", "", 0});
    FAIL() << "accepted";
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(), HasSubstr("it has no figures"));
  }
}

}  // namespace
}  // namespace tandem::hardware
