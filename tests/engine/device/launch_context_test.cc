#include "engine/device/launch_context.h"

#include <gtest/gtest.h>
#include <numeric>

#include "engine/device/cuda_device.h"
#include "tests/engine/kernels/cuda_emulator/streams.h"

namespace tandem {
namespace {

using Arrays = std::vector<std::vector<std::uint32_t>>;

struct Uploaded {
  Arrays arrays;  // as many values of each as were to be there
  std::vector<const std::uint32_t*> begins;
  std::uint64_t copies = 0;
};

Uploaded upload(const Arrays& arrays) {
  Uploaded uploaded;
  const auto device = make_cuda_device({.host_worker_threads = 1});
  Op op;
  op.name = "upload";
  op.launch = [&](LaunchContext& ctx) {
    const std::vector<std::span<const std::uint32_t>> values(arrays.begin(), arrays.end());
    const std::uint64_t before = cuda_emulator::calls().copies;
    uploaded.begins = ctx.upload_each(values);
    uploaded.copies = cuda_emulator::calls().copies - before;
    ctx.upload(std::vector<std::uint32_t>(100, 7));  // behind them, not over them
    for (std::size_t i = 0; i < uploaded.begins.size(); ++i) {
      std::vector<std::uint32_t>& read = uploaded.arrays.emplace_back(arrays.at(i).size());
      if (!read.empty()) cuda_copy(read.data(), uploaded.begins[i], read.size() * sizeof(std::uint32_t), ctx.stream());
    }
    cuda_wait(ctx.stream());
  };
  device->host_wait(device->submit(device->lane(LaneKind::device_compute), std::move(op)));
  return uploaded;
}

TEST(LaunchContext, ArraysAreUploadedByOneCopyEmptyOnesAmongThem) {
  Arrays arrays(7);
  std::uint32_t next = 0;
  for (const std::size_t i : {1u, 2u, 5u}) {  // empty: the first, two between others, and the last
    arrays[i].resize(3 + 40 * i);
    std::iota(arrays[i].begin(), arrays[i].end(), next);
    next += 1000;
  }
  const Uploaded uploaded = upload(arrays);
  EXPECT_EQ(uploaded.arrays, arrays);
  EXPECT_EQ(uploaded.copies, 1u);
  // An empty one begins where the next one does.
  EXPECT_EQ(uploaded.begins[0], uploaded.begins[1]);
  EXPECT_EQ(uploaded.begins[3], uploaded.begins[5]);
  EXPECT_EQ(uploaded.begins[4], uploaded.begins[5]);
  EXPECT_EQ(uploaded.begins[6], uploaded.begins[5] + arrays[5].size());
}

TEST(LaunchContext, ArraysThatAreAllEmptyHaveAPlace) {
  const Uploaded uploaded = upload(Arrays(3));
  ASSERT_EQ(uploaded.begins.size(), 3u);
  for (const std::uint32_t* begin : uploaded.begins) EXPECT_NE(begin, nullptr);
  EXPECT_TRUE(upload({}).begins.empty());
}

}  // namespace
}  // namespace tandem
