#include "engine/device/cost_model.h"

#include <cmath>
#include <gtest/gtest.h>
#include <random>

#include "tests/engine/device/test_profile.h"

namespace tandem {
namespace {

const LaneInfo kDevice{1, LaneKind::device_compute, "device", 1, true};
const LaneInfo kH2d{2, LaneKind::h2d, "h2d", 1, false};
LaneInfo host(std::uint32_t threads) {
  return {4, LaneKind::host_workers, "host", threads, false};
}
std::uint32_t share(const Phases& phases, Resource resource) {
  return phases.share[static_cast<std::size_t>(resource)];
}

TEST(CostModel, RatesByWork) {
  const CostModel model(round_profile());
  EXPECT_EQ(model.phases({.work = Work::stream, .hbm = 1'000'000}, kDevice).flow, 1000);
  EXPECT_EQ(model.phases({.work = Work::attention, .hbm = 1'000'000}, kDevice).flow, 2000);
  EXPECT_EQ(model.phases({.work = Work::select, .hbm = 1'000'000}, kDevice).flow, 4000);
  EXPECT_EQ(model.phases({.work = Work::gemm, .hbm = 1'000'000, .flops = 5'000'000}, kDevice).flow, 5000);
  EXPECT_EQ(model.phases({.work = Work::fixed, .hbm = 1'000'000, .fixed_ns = 7}, kDevice).flow, 0);
  EXPECT_EQ(model.phases({.work = Work::fixed, .fixed_ns = 7}, kDevice).fixed, 7);
  EXPECT_EQ(model.phases({.work = Work::stream, .hbm = 1, .fixed_ns = 3}, kDevice).flow, 1);  // rounded up
}

TEST(CostModel, ACpuThatPlaysTheDeviceSharesItsThreadsAndOneMemory) {
  HardwareProfile profile = round_profile();
  const Cost cost{.work = Work::stream, .hbm = 1000}, copy{.work = Work::stream, .h2d = 1000};
  const Phases gpu = CostModel(profile).phases(cost, kDevice);
  EXPECT_EQ(share(gpu, Resource::device_threads), 0u);
  EXPECT_EQ(share(gpu, Resource::dram), 0u);
  profile.device.cpu_threads = 2;
  const CostModel model(profile);
  const Phases cpu = model.phases(cost, kDevice);
  EXPECT_EQ(share(cpu, Resource::device_threads), kUnit / 2);
  EXPECT_EQ(share(cpu, Resource::host_threads), 0u);
  EXPECT_EQ(cpu.flow, 10);  // 1,000 bytes per ns on the device, 100 from the memory that both share
  EXPECT_EQ(share(cpu, Resource::dram), kUnit);
  const Phases copied = model.phases(copy, kH2d);
  EXPECT_EQ(share(copied, Resource::device_threads), 0u);
  EXPECT_EQ(share(copied, Resource::host_threads), kUnit / profile.host.threads);
}

TEST(CostModel, HostThreadsUntilDramIsFull) {
  const CostModel model(round_profile());
  EXPECT_EQ(model.phases({.work = Work::attention, .dram = 1000}, host(1)).flow, 50);   // 20 B/ns
  EXPECT_EQ(model.phases({.work = Work::attention, .dram = 1000}, host(10)).flow, 20);  // half of 100 B/ns
  EXPECT_EQ(model.phases({.work = Work::select, .dram = 1000}, host(10)).flow, 20);     // 10 * 5 B/ns
  EXPECT_EQ(model.phases({.work = Work::stream, .dram = 1000}, host(10)).flow, 10);
  EXPECT_EQ(model.phases({.work = Work::stream, .dram = 1, .flops = 1000}, host(2)).flow, 50);
  const Phases half = model.phases({.work = Work::attention, .dram = 1000}, host(10));
  EXPECT_EQ(share(half, Resource::dram), kUnit / 2);
}

TEST(CostModel, AWorkerHasAPartOfTheThreadsAndOfWhatTheyRead) {
  const CostModel model(round_profile());
  // Two of ten threads read 40 B/ns of the 50 that all reach together, of the 100 of memory.
  const Phases two = model.phases({.work = Work::attention, .dram = 1000, .threads = 2}, host(10));
  EXPECT_EQ(two.flow, 25);
  EXPECT_EQ(share(two, Resource::host_reads), kUnit * 4 / 5);
  EXPECT_EQ(share(two, Resource::host_threads), kUnit / 5);
  EXPECT_EQ(share(two, Resource::dram), kUnit * 2 / 5);
  EXPECT_EQ(two.flow, model.phases({.work = Work::attention, .dram = 1000}, host(2)).flow);
  EXPECT_EQ(model.phases({.work = Work::attention, .dram = 1000, .threads = 20}, host(10)).flow, 20);
  // Ten threads that wait for memory half of their time.
  const Phases ten = model.phases({.work = Work::attention, .dram = 1000}, host(10));
  EXPECT_EQ(share(ten, Resource::host_reads), kUnit);
  EXPECT_EQ(share(ten, Resource::host_threads), kUnit / 4);
  const Phases flops = model.phases({.work = Work::stream, .flops = 1000, .threads = 4}, host(10));
  EXPECT_EQ(flops.flow, 25);  // 10 FLOPs per ns each
  EXPECT_EQ(share(flops, Resource::host_threads), kUnit * 2 / 5);
  const Cost lists{.work = Work::select, .threads = 2, .lists = 4, .ranked = 4000};
  EXPECT_EQ(model.phases(lists, host(10)).fixed, 4000 * static_cast<Nanos>(kRankedFlops) / 20);
}

TEST(CostModel, ChoosingComesAfterTheScoresAndEachListIsOneThreads) {
  const CostModel model(round_profile());
  const double flops_per_ns = round_profile().host.gflops_per_thread;
  Cost cost{.work = Work::select, .dram = 1000, .lists = 4, .ranked = 4000};
  const Phases phases = model.phases(cost, host(10));
  EXPECT_EQ(phases.flow, 20);
  EXPECT_EQ(phases.fixed, static_cast<Nanos>(std::ceil(1000.0 * kRankedFlops / flops_per_ns)));
  cost.lists = 1;
  EXPECT_EQ(model.phases(cost, host(10)).fixed, 4 * phases.fixed);
  cost.lists = 40;
  EXPECT_EQ(model.phases(cost, host(2)).fixed, 2 * phases.fixed);
  EXPECT_EQ(model.phases(cost, kDevice).fixed, 0);  // its kernels are in the device's rates
}

TEST(CostModel, SystemsOfEquationsComeBeforeWhatIsReadWithThem) {
  const CostModel model(round_profile());
  const double flops_per_ns = round_profile().host.gflops_per_thread;
  const Cost cost{.work = Work::select, .dram = 1000, .tasks = 5, .solved = 10000};
  const Phases phases = model.phases(cost, host(10));
  EXPECT_EQ(phases.flow, model.phases({.work = Work::select, .dram = 1000, .tasks = 5}, host(10)).flow);
  EXPECT_EQ(phases.fixed, static_cast<Nanos>(std::ceil(10000.0 / 5 * kSolvedFlopsHost / flops_per_ns)));
  // On a device they are arithmetic of its own, beside its memory.
  const double device = 1e3 * round_profile().device.gemm_tflops;  // FLOPs per ns
  const std::uint64_t flops = std::uint64_t{1} << 30;
  EXPECT_EQ(model.phases({.work = Work::attention, .solved = flops}, kDevice).flow,
            static_cast<Nanos>(std::ceil(double(flops) * kSolvedFlopsDevice / device)));
  EXPECT_EQ(model.phases({.work = Work::attention, .solved = 1}, kDevice).fixed, 0);
}

TEST(CostModel, SelectionMayReachAShareOfDram) {
  HardwareProfile profile = round_profile();
  profile.host.select_efficiency = 0.25;
  const CostModel model(profile);
  EXPECT_EQ(model.phases({.work = Work::select, .dram = 1000}, host(10)).flow, 40);  // a quarter of 100 B/ns
  EXPECT_EQ(model.phases({.work = Work::select, .dram = 1000}, host(2)).flow, 100);  // 2 * 5 B/ns are less
  EXPECT_EQ(model.phases({.work = Work::attention, .dram = 1000}, host(10)).flow, 20);
}

TEST(CostModel, AttentionMayReadContiguousMemoryFaster) {
  HardwareProfile profile = round_profile();
  const Cost gathered{.work = Work::attention, .dram = 10'000'007, .tasks = 40};
  Cost packed = gathered, half = gathered;
  packed.contiguous = gathered.dram;
  half.contiguous = gathered.dram / 2;
  const auto alike = [](const Phases& a, const Phases& b) { return a.flow == b.flow && a.share == b.share; };
  const auto flow = [&](const Cost& cost, std::uint32_t threads) {
    return CostModel(profile).phases(cost, host(threads)).flow;
  };
  const CostModel before(profile);
  for (const std::uint32_t threads : {1u, 2u, 10u}) {
    for (const Cost& cost : {packed, half})  // a profile that says nothing of it: to the digit
      EXPECT_TRUE(alike(before.phases(cost, host(threads)), before.phases(gathered, host(threads)))) << threads;
  }
  EXPECT_EQ(flow(gathered, 10), 200'001);  // 50 B/ns
  profile.host.attention_contiguous_efficiency = 0.8;
  EXPECT_EQ(flow(packed, 10), 125'001) << "80 B/ns";
  EXPECT_EQ(flow(half, 10), 162'501) << "one after the other";
  EXPECT_EQ(flow(packed, 1), flow(gathered, 1)) << "one thread reads 20 B/ns, whatever all reach";
  profile.host.attention_contiguous_gbps_per_thread = 25;
  EXPECT_EQ(flow(packed, 1), 400'001);
  EXPECT_EQ(flow(packed, 2), 200'001);
  for (const std::uint32_t threads : {1u, 2u, 10u})
    EXPECT_TRUE(alike(CostModel(profile).phases(gathered, host(threads)), before.phases(gathered, host(threads))));
  const Phases all = CostModel(profile).phases(packed, host(10));
  EXPECT_NEAR(share(all, Resource::dram), 0.8 * kUnit, 16) << "as many bytes in less time";
  EXPECT_NEAR(share(all, Resource::host_threads), 80.0 / 250 * kUnit, 16);
  EXPECT_NEAR(share(all, Resource::host_reads), kUnit, 16);
  packed.work = Work::select;
  EXPECT_TRUE(alike(CostModel(profile).phases(packed, host(10)), before.phases(packed, host(10)))) << "not attention";
}

// A run's beginning is read at the rate of pages, so that a little more than a page is not a different thing.
TEST(CostModel, ContiguousIsWhatIsBehindTheStartOfARun) {
  EXPECT_EQ(behind_start(4096), 0u);
  EXPECT_EQ(behind_start(kRunStart), 0u);
  EXPECT_EQ(behind_start(kRunStart + 256), 256u);
}

TEST(CostModel, LinkBytesOccupyHostMemoryToo) {
  const CostModel model(round_profile());
  const Phases copy = model.phases({.hbm = 1000, .h2d = 1000}, kH2d);
  EXPECT_EQ(copy.flow, 100);
  EXPECT_EQ(share(copy, Resource::h2d), kUnit);
  EXPECT_EQ(share(copy, Resource::dram), kUnit / 10);
  EXPECT_EQ(share(copy, Resource::hbm), kUnit / 100);
  EXPECT_EQ(share(copy, Resource::d2h), 0u);
}

// A latency and a bandwidth, as two points say it: 4,957 ns and 34.8 GB/s.
TEST(CostModel, TimeOfAPieceIsLinearInItsBytesBetweenPoints) {
  HardwareProfile profile = round_profile();
  profile.link.h2d_curve = {{4096, 0.8}, {131072, 15}, {1 << 22, 25}};
  profile.link.piece_ns = 3;
  const CostModel model(profile);
  const auto ns = [&](std::uint64_t bytes, std::uint32_t pieces = 1) {
    return static_cast<double>(model.link_time(CostModel::Way::h2d, bytes, pieces)) / kUnit;
  };
  EXPECT_EQ(ns(0), 0);
  EXPECT_NEAR(ns(4096), 5120, 1e-3);
  EXPECT_NEAR(ns(1024), 1280, 1e-3) << "at the first point's rate";
  EXPECT_NEAR(ns(131072), 131072 / 15.0, 1e-3);
  EXPECT_NEAR(ns(std::uint64_t{1} << 30), (1 << 30) / 25.0, 1e-3) << "at the last point's";
  const double slope = (131072 / 15.0 - 5120) / (131072 - 4096);
  for (const std::uint64_t piece : {5000u, 8192u, 32768u, 100000u}) {
    EXPECT_NEAR(ns(piece), 5120 + slope * static_cast<double>(piece - 4096), 1e-2) << piece;
    EXPECT_NEAR(ns(40 * piece, 40), 40 * ns(piece), 1e-2) << "pieces one after the other";
  }
  EXPECT_NEAR(ns(8192 + 65536, 2), ns(8192) + ns(65536), 1e-2) << "on one line the mean is the sum";
  std::mt19937_64 random(1);
  for (int i = 0; i < 2000; ++i) {
    const std::uint64_t piece = 1 + random() % (1 << 23);
    EXPECT_GE(ns(piece + 1 + random() % 5000), ns(piece)) << "a longer piece is never faster";
  }
  const Phases pieces = model.phases({.h2d = 8192, .pieces = 2}, kH2d);
  EXPECT_EQ(pieces.flow, 10240);  // 8192 B at 0.8 B/ns
  EXPECT_EQ(pieces.fixed, 6);
}

TEST(CostModel, WhatAKernelReadsFromHostMemoryHasACurveOfItsOwn) {
  HardwareProfile profile = round_profile();
  profile.link.h2d_curve = {{4096, 1}};
  profile.link.transfer_ns = 11;
  const Cost copied{.h2d = 8192, .pieces = 2};
  Cost gathered = copied, back{.d2h = 8192, .pieces = 2};
  gathered.gathered = true;
  EXPECT_EQ(CostModel(profile).phases(gathered, kH2d).flow, 8192) << "as copies, where the profile has no other";
  profile.link.h2d_gather_curve = {{4096, 8}};
  const CostModel model(profile);
  EXPECT_EQ(model.phases(copied, kH2d).flow, 8192);
  EXPECT_EQ(model.phases(copied, kH2d).fixed, 11);
  EXPECT_EQ(model.phases(gathered, kH2d).flow, 1024);
  EXPECT_EQ(model.phases(gathered, kH2d).fixed, 0) << "no copy engine";
  EXPECT_EQ(model.phases(back, kH2d).flow, 820) << "10 B/ns";
  EXPECT_EQ(model.phases(back, kH2d).fixed, 11);
  EXPECT_EQ(model.phases({.hbm = 1000}, kDevice).fixed, 0);
}

TEST(CostModel, WeightsMayBeReadAtARateOfTheirOwn) {
  HardwareProfile profile = round_profile();
  const Cost product{.work = Work::weights, .hbm = 1'000'000, .flops = 100};
  EXPECT_EQ(CostModel(profile).phases(product, kDevice).flow, 1000) << "as streaming kernels";
  profile.device.weights_efficiency = 0.8;
  EXPECT_EQ(CostModel(profile).phases(product, kDevice).flow, 1250);
  EXPECT_EQ(CostModel(profile).phases({.hbm = 1'000'000}, kDevice).flow, 1000);
  Cost rows = product;
  rows.flops = 5'000'000;
  EXPECT_EQ(CostModel(profile).phases(rows, kDevice).flow, 5000) << "at the rate of products";
}

TEST(CostModel, ShortPiecesAreNotAveragedWithLongOnes) {
  HardwareProfile profile = round_profile();
  profile.link.d2h_curve = {{4096, 0.8}, {131072, 15}};
  const CostModel model(profile);
  const LaneInfo d2h{3, LaneKind::d2h, "d2h", 1, false};
  const Nanos both =
      model.phases({.d2h = 131072, .pieces = 1}, d2h).flow + model.phases({.d2h = 40 * 128, .pieces = 40}, d2h).flow;
  const Cost cost{.d2h = 131072 + 40 * 128, .pieces = 41, .short_bytes = 40 * 128, .short_pieces = 40};
  EXPECT_NEAR(static_cast<double>(model.phases(cost, d2h).flow), static_cast<double>(both), 1);
  EXPECT_EQ(both, 8739 + 6400);
}

TEST(CostModel, APeerHasItsOwnMemoryAndALinkEachWay) {
  HardwareProfile profile = round_profile();
  profile.peer = {.gbps = 50, .latency_ns = 9};
  const CostModel model(profile);
  const Phases choice =
      model.phases({.work = Work::select, .hbm = 1'000'000}, {7, LaneKind::peer_compute, "", 1, false});
  EXPECT_EQ(choice.flow, 4000);
  EXPECT_EQ(share(choice, Resource::peer_hbm), kUnit);
  EXPECT_EQ(share(choice, Resource::hbm), 0u);
  const Phases there = model.phases({.hbm = 1000, .peer = 1000}, {8, LaneKind::to_peer, "", 1, false});
  EXPECT_EQ(there.flow, 20);
  EXPECT_EQ(there.fixed, 9);
  EXPECT_EQ(share(there, Resource::to_peer), kUnit);
  EXPECT_EQ(share(there, Resource::hbm), kUnit / 20);
  EXPECT_EQ(share(there, Resource::dram), 0u);
  const Phases back = model.phases({.peer = 1000}, {9, LaneKind::from_peer, "", 1, false});
  EXPECT_EQ(share(back, Resource::from_peer), kUnit);
  EXPECT_EQ(share(back, Resource::to_peer), 0u);
}

TEST(CostModel, HugeCostsDoNotOverflow) {
  const CostModel model(round_profile());
  EXPECT_EQ(model.phases({.hbm = 1'000'000'000'000'000ULL}, kDevice).flow, 1'000'000'000'000);
  EXPECT_THROW(model.phases({.hbm = ~std::uint64_t{0}, .d2h = ~std::uint64_t{0} >> 8}, kDevice), std::logic_error);
}

}  // namespace
}  // namespace tandem
