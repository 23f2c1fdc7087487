// The curve of a link whose times are known: what the simulation computes from it must be these times.
#include <gtest/gtest.h>

#include "engine/common/error.h"
#include "engine/device/cost_model.h"
#include "tests/hardware/calibration/machine.h"

namespace tandem::hardware {
namespace {

const std::vector<std::size_t> kSizes = {256, 4096, 65536, 1 << 20};

/// Nanoseconds per piece that the simulation has for `bytes` of it over this curve.
double simulated(const std::vector<LinkPoint>& curve, std::uint64_t bytes) {
  HardwareProfile profile = load_profile("h200");
  profile.link.h2d_curve = curve;
  return static_cast<double>(CostModel(profile).link_time(CostModel::Way::h2d, bytes * 1000, 1000)) / kUnit / 1000;
}

TEST(LinkCurve, HasWhatOneMorePieceCosts) {
  ProbedMachine machine;
  const LinkOf link;
  machine.add_link("zero_copy", "h2d", link, kSizes, {1, 64, 512});
  const LinkCurve found = link_curve(machine.read(), "h2d", "zero_copy");
  const auto& curve = found.points;
  ASSERT_EQ(curve.size(), kSizes.size());
  EXPECT_NEAR(found.once_us, link.once * 1e6, 1e-6);
  // At the sizes that were measured and between them, without what a transfer costs once.
  for (const std::uint64_t bytes : {256, 1000, 4096, 30000, 65536, 1 << 20}) {
    const double expected = (link.piece + double(bytes) * link.byte) * 1e9;
    EXPECT_NEAR(simulated(curve, bytes), expected, 0.001 * expected) << bytes;
  }
  EXPECT_TRUE(link_curve(machine.read(), "d2h", "zero_copy").points.empty());
}

TEST(LinkCurve, EachWayHasItsOwn) {
  ProbedMachine machine;
  const LinkOf kernel{5e-6, 10e-9, 1 / 40e9}, engine{8e-6, 500e-9, 1 / 55e9};
  machine.add_link("zero_copy", "h2d", kernel, kSizes, {8, 64});
  machine.add_link("dma_batch", "h2d", engine, kSizes, {8, 64});
  machine.add_link("dma_batch", "h2d", {1e-9, 1e-12, 1e-12}, kSizes, {8, 64}, "device_read");
  machine.add_link("dma_batch", "d2h", {1e-9, 1e-12, 1e-12}, kSizes, {8, 64});
  for (const auto& [method, link] : {std::pair{"zero_copy", kernel}, std::pair{"dma_batch", engine}}) {
    const LinkCurve found = link_curve(machine.read(), "h2d", method);
    ASSERT_EQ(found.points.size(), kSizes.size());
    EXPECT_NEAR(256 / found.points[0].gbps, (link.piece + 256 * link.byte) * 1e9, 1e-6) << method;
    EXPECT_NEAR((1 << 20) / found.points[3].gbps, (link.piece + (1 << 20) * link.byte) * 1e9, 1e-3) << method;
    EXPECT_NEAR(found.once_us, link.once * 1e6, 1e-6) << method;
  }
}

TEST(LinkCurve, OtherNumbersOfBlocksDoNotReplaceTheFirst) {
  ProbedMachine machine;
  machine.add_link("zero_copy", "h2d", {}, {65536}, {64, 512});
  const auto curve = link_curve(machine.read(), "h2d", "zero_copy").points;
  machine.add_link("zero_copy", "h2d", {5e-6, 20e-9, 1 / 10e9}, {65536}, {512});
  EXPECT_EQ(link_curve(machine.read(), "h2d", "zero_copy").points.at(0).gbps, curve.at(0).gbps);
}

TEST(LinkCurve, ALongerPieceMayBeFaster) {  // a driver that takes another way from some size on
  ProbedMachine machine;
  machine.add_link("zero_copy", "h2d", {0, 400e-9, 1 / 50e9}, {4096}, {1, 512});
  machine.add_link("zero_copy", "h2d", {0, 20e-9, 1 / 50e9}, {8192, 16384}, {1, 512});
  const auto curve = link_curve(machine.read(), "h2d", "zero_copy").points;
  ASSERT_EQ(curve.size(), 3u);
  EXPECT_NEAR(4096 / curve[0].gbps, (400e-9 + 4096 / 50e9) * 1e9, 1e-6);
  EXPECT_NEAR(8192 / curve[1].gbps, (20e-9 + 8192 / 50e9) * 1e9, 1e-6);
}

/// Pieces of 4 KB, so many of them in so many seconds.
void add_pieces(ProbedMachine& machine, int pieces, double seconds) {
  machine.add("link", "link", "GB/s", pieces * 4096 / seconds * 1e-9,
              {{"method", "zero_copy"},
               {"direction", "h2d"},
               {"piece_bytes", 4096},
               {"beside", "nothing"},
               {"pieces", pieces}});
}

TEST(LinkCurve, APieceIsNoFasterThanTheBestTransfer) {
  for (const double shorter : {90.0e-6, 89.999e-6, 100e-6}) {  // noise: as long, nearly, longer
    ProbedMachine machine;
    add_pieces(machine, 64, shorter);
    add_pieces(machine, 512, 90e-6);
    const double best = 512 * 4096 / 90e-6 * 1e-9;
    EXPECT_NEAR(link_curve(machine.read(), "h2d", "zero_copy").points.at(0).gbps, best, 0.021 * best) << shorter;
  }
}

TEST(LinkCurve, APieceTakesNoMoreThanItsShareOfAll) {
  ProbedMachine machine;
  add_pieces(machine, 64, 1e-6);  // noise: too short
  add_pieces(machine, 512, 90e-6);
  EXPECT_NEAR(link_curve(machine.read(), "h2d", "zero_copy").points.at(0).gbps, 512 * 4096 / 90e-6 * 1e-9, 1e-9);
}

// Extrapolated over 8,000 pieces, a piece's 25 % less beyond 512 would make it 10 times as much.
TEST(LinkCurve, ATransferTakesNoMoreOnceThanTheSmallestTakes) {
  ProbedMachine machine;
  const double smallest = 5.4e-6, at_512 = 5e-6 + 512 * 0.4e-6;
  add_pieces(machine, 1, smallest);
  add_pieces(machine, 512, at_512);
  add_pieces(machine, 8192, at_512 + (8192 - 512) * 0.3e-6);
  EXPECT_NEAR(link_curve(machine.read(), "h2d", "zero_copy").once_us, smallest * 1e6, 1e-6);
}

TEST(LinkCurve, RefusesFiguresWithoutSizeAndNumber) {
  for (const auto& [name, value] : std::vector<std::pair<std::string, double>>{
           {"piece_bytes", 0.5}, {"piece_bytes", 1e19}, {"piece_bytes", 256.5}, {"pieces", 0}}) {
    ProbedMachine machine;
    const bool bytes = name == "piece_bytes";
    machine.add("link", "link", "GB/s", 10,
                {{"method", "zero_copy"},
                 {"direction", "h2d"},
                 {"beside", "nothing"},
                 {"piece_bytes", bytes ? value : 4096.0},
                 {"pieces", bytes ? 8.0 : value}});
    EXPECT_THROW(link_curve(machine.read(), "h2d", "zero_copy"), InputError) << name << value;
  }
}

}  // namespace
}  // namespace tandem::hardware
