// Page tables on an emulated GPU beside the store's own.
#include "engine/runtime/page_tables.h"

#include <gtest/gtest.h>

#include "engine/common/error.h"
#include "engine/device/cuda_device.h"

namespace tandem {
namespace {

class PageTablesTest : public ::testing::Test {
 protected:
  static constexpr std::uint32_t kLayers = 3;

  /// What a kernel reads of a layer, in an operation of its own.
  std::vector<std::uint32_t> read(SequenceId sequence, std::uint32_t layer) {
    std::vector<std::uint32_t> slots(blocks_for(kv_.tokens(sequence)));
    Op op;
    op.name = "read a table";
    op.launch = [&](LaunchContext& ctx) {
      const std::uint32_t* const table = tables_.slots(ctx, sequence, layer);
      cuda_copy(slots.data(), table, slots.size() * sizeof slots[0], ctx.stream());
    };
    device_->host_wait(device_->submit(device_->lane(LaneKind::device_compute), std::move(op)));
    return slots;
  }
  void expect_the_stores(SequenceId sequence) {
    for (std::uint32_t layer = 0; layer < kLayers; ++layer) {
      const std::vector<std::uint32_t> slots = read(sequence, layer);
      for (std::uint32_t block = 0; block < slots.size(); ++block)
        ASSERT_EQ(slots[block], kv_.slot(sequence, layer, block, Tier::device)) << layer << ", " << block;
    }
  }

  std::unique_ptr<Device> device_ = make_cuda_device({.host_worker_threads = 1});
  KvStore kv_{*device_, {kLayers, 1, 16, DType::bf16}, {std::size_t{8} << 20, std::size_t{1} << 20}};
  PageTables tables_{kv_};
  std::vector<Event> after_;
};

TEST_F(PageTablesTest, GrowWithTheirSequences) {
  const SequenceId a = kv_.create(), b = kv_.create();
  for (const std::uint32_t more : {100u, 1u, 12u, 1u, 900u, 1100u}) {  // within a page, past it, past the room
    kv_.grow(a, more, after_);
    kv_.grow(b, 7, after_);
    expect_the_stores(a);
    expect_the_stores(b);
  }
}

TEST_F(PageTablesTest, FollowWhatGetsOtherSlots) {
  const SequenceId a = kv_.create();
  kv_.grow(a, 100, after_);
  const SequenceId b = kv_.fork(a);
  expect_the_stores(a);
  expect_the_stores(b);
  ASSERT_EQ(kv_.privatise_tail(b, after_).size(), kLayers);  // the shared last page
  expect_the_stores(a);
  expect_the_stores(b);
  kv_.truncate(b, 48);
  const SequenceId c = kv_.create();
  kv_.grow(c, 40, after_);  // takes what b gave back
  kv_.grow(b, 8, after_);
  kv_.grow(b, 60, after_);
  expect_the_stores(b);
  expect_the_stores(c);
}

TEST_F(PageTablesTest, BlocksThatAPlanAttendsAreOnTheDevice) {
  const SequenceId a = kv_.create();
  kv_.grow(a, 300, after_);  // 19 blocks
  tables_.check(a, 1, {0, 19});
  kv_.drop(a, 1, {3, 5}, Tier::device, {});
  kv_.drop(a, 1, {8, 9}, Tier::device, {});
  for (const Range& there : {Range{0, 3}, {5, 8}, {9, 19}, {4, 4}}) tables_.check(a, 1, there);
  for (const Range& gone : {Range{0, 19}, {2, 4}, {4, 6}, {5, 9}, {8, 19}, {9, 20}})
    EXPECT_THROW(tables_.check(a, 1, gone), LogicError) << gone.begin;
  tables_.check(a, 0, {0, 19});
}

}  // namespace
}  // namespace tandem
