// Lists of pieces on an emulated GPU, in as many kernels as are declared.
#include "engine/runtime/listed_fetch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/device/cuda_device.h"
#include "tests/engine/kernels/cuda_emulator/streams.h"
#include "tests/engine/kernels/uneven_lists.h"

namespace tandem {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

/// Kernels that it took.
std::uint64_t gather(const std::vector<Pieces>& lists) {
  const auto device = make_cuda_device({.host_worker_threads = 1});
  const std::uint64_t before = cuda_emulator::calls().kernels;
  Op op;
  op.name = "gather";
  op.launch = [&](LaunchContext& ctx) { gather_lists(ctx, lists); };
  device->host_wait(device->submit(device->lane(LaneKind::recall), std::move(op)));
  return cuda_emulator::calls().kernels - before;
}

TEST(GatherLists, AreCutWhereAKernelTakesNoMore) {
  for (const std::uint32_t n : {20u, 300u, 301u}) {  // more than go with a launch, more than a kernel takes
    const UnevenLists uneven(n);
    std::vector<std::size_t> bytes;
    for (const Pieces& list : uneven.lists) bytes.push_back(list.bytes * list.count);
    EXPECT_EQ(gathers_of(bytes), n == 20 ? 1u : 2u);
    EXPECT_EQ(gather(uneven.lists), gathers_of(bytes));
    EXPECT_EQ(uneven.target.values(), uneven.expected) << n;
  }
}

TEST(GatherLists, WithoutPiecesAreNoKernel) {
  std::vector<Pieces> lists(3);
  for (Pieces& list : lists) list.bytes = 16;
  EXPECT_EQ(gather(lists), 0u);
  EXPECT_EQ(gathers_of(3, 0), 0u);
  EXPECT_EQ(gather({}), 0u);
  EXPECT_EQ(gathers_of(0, 16), 0u);
}

TEST(GatherLists, OfOtherPiecesAreRefused) {
  std::vector<Pieces> lists(300);
  for (Pieces& list : lists) list.bytes = 32;
  lists.back().bytes = 16;
  EXPECT_THAT([&] { gather(lists); }, ThrowsMessage<LogicError>(HasSubstr("pieces of 32 and of 16 bytes")));
}

TEST(GatherLists, ArePlannedByTheirNumberAndBytes) {
  constexpr std::size_t kGiB = std::size_t{1} << 30;
  EXPECT_EQ(gathers_of(kMostLists, 16), 1u);
  EXPECT_EQ(gathers_of(kMostLists + 1, 16), 2u);
  EXPECT_EQ(gathers_of(2 * kMostLists, 16), 2u);
  EXPECT_EQ(gathers_of(16, kGiB), 1u);
  EXPECT_EQ(gathers_of(17, kGiB), 2u);
  // What is more than that goes without any other list that has bytes.
  const std::vector<std::size_t> bytes = {0, 20 * kGiB, 0, 9 * kGiB, 0, 8 * kGiB, 1};
  const std::vector<Gather> plan = plan_gathers(bytes);
  ASSERT_EQ(plan.size(), 3u);
  const std::size_t first[] = {0, 2, 5}, lists[] = {2, 3, 2}, all[] = {20 * kGiB, 9 * kGiB, 8 * kGiB + 1};
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(plan[i].first, first[i]) << i;
    EXPECT_EQ(plan[i].lists, lists[i]) << i;
    EXPECT_EQ(plan[i].bytes, all[i]) << i;
  }
}

}  // namespace
}  // namespace tandem
