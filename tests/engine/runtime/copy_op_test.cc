// Operations that copy: what their pieces cost, where they arrive, and what runs where only shapes are simulated.
#include "engine/runtime/copy_op.h"

#include <gtest/gtest.h>
#include <numeric>

#include "engine/device/sim_device.h"
#include "tests/engine/device/test_profile.h"

namespace tandem {
namespace {

class CopyOp : public ::testing::Test {
 protected:
  void make(SimOptions options) {
    device_ = make_sim_device(round_profile(), options);
    from_ = device_->allocate_host(64, "from");
    to_ = device_->allocate_device(64, "to");
    back_ = device_->allocate_host(64, "back");
    const auto numbers = device_->host_write<char>(from_);
    std::iota(numbers.begin(), numbers.end(), char{1});
    std::ranges::fill(device_->host_write<char>(back_), char{0});
  }
  /// The first bytes at `to_`, brought to the host.
  std::span<const char> arrived(Event copied) {
    Op op("back");
    op.after = {copied};
    op.has_cost_only_part = true;
    copy_rows(op, 64, {{back_, to_, 64}});
    device_->host_wait(device_->submit(device_->lane(LaneKind::d2h), std::move(op)));
    return device_->host_read<char>(back_);
  }
  Op three_pieces() const {
    Op op("three pieces", Cause::recall, 2);
    op.access = {from_.reads(), to_.writes()};
    set_copies(op, [from = from_, to = to_](Copier& copier) {
      if (copier.computes()) {
        Copier::Between pages = copier.between(to, from);
        pages.add(8, 16, 4);
        pages.add(0, 20, 4);  // behind the one before on the host, which is what the link sees
        pages.add(4, 40, 4);
      }
      copier.short_runs(to, from).add_rows(std::vector<std::uint32_t>{6, 8}, 2);
    });
    return op;
  }
  std::unique_ptr<Device> device_;
  HostBuffer from_, back_;
  DeviceBuffer to_;
};

TEST_F(CopyOp, CountsBytesAndPiecesByWhatIsAdjacentOnTheHost) {
  make({});
  const Op op = three_pieces();
  EXPECT_EQ(op.kind, Kind::copy);
  EXPECT_EQ(op.layer, 2u);
  EXPECT_EQ(op.cost, (Cost{.h2d = 16, .pieces = 4, .short_bytes = 4, .short_pieces = 2}));
}

TEST_F(CopyOp, CountsReadsAndWritesOfOneMemory) {
  make({});
  Op op("within");
  set_copies(op, [this](Copier& copier) { copier.between(to_, to_).add(0, 32, 8); });
  EXPECT_EQ(op.cost, Cost{.hbm = 16});
  set_copies(op, [this](Copier& copier) { copier.between(back_, from_).add(0, 32, 8); });
  EXPECT_EQ(op.cost.dram, 16u);
}

TEST_F(CopyOp, CopiesItsPieces) {
  make({});
  const auto bytes = arrived(device_->submit(device_->lane(LaneKind::h2d), three_pieces()));
  EXPECT_EQ(bytes[8], 17);
  EXPECT_EQ(bytes[0], 21);
  EXPECT_EQ(bytes[4], 41);
  EXPECT_EQ(bytes[12], 13);
  EXPECT_EQ(bytes[16], 17);
}

TEST_F(CopyOp, CopiesWhereOnlyShapesAreSimulatedWhatItsCostOnlyPartAsksFor) {
  make({.shapes_only = true});
  for (const bool marked : {false, true}) {
    Op op = three_pieces();
    op.has_cost_only_part = marked;
    const auto bytes = arrived(device_->submit(device_->lane(LaneKind::h2d), std::move(op)));
    EXPECT_EQ(bytes[8], 0);
    EXPECT_EQ(bytes[12], marked ? 13 : 0);
  }
}

}  // namespace
}  // namespace tandem
