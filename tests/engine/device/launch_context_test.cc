#include "engine/device/launch_context.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <gtest/gtest.h>
#include <numeric>
#include <random>
#include <thread>
#include <utility>
#include <vector>

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

TEST(LaunchArena, RoomsOfAnOperationAreApart) {
  LaunchArena arena(1 << 12);
  CudaMark done[2];
  std::mt19937 random(7);
  for (int operation = 0; operation < 400; ++operation) {
    std::vector<std::pair<std::byte*, std::size_t>> rooms;
    for (auto i = random() % 12; i-- > 0;) {
      const std::size_t bytes = 1 + random() % (random() % 8 == 0 ? 5000 : 700);
      const LaunchArena::Room room = arena.take(bytes);
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(room.device) % 256, 0u);
      std::fill_n(room.device, bytes, std::byte(i));  // guard zones of the emulator see what is outside
      std::fill_n(room.host, bytes, std::byte(i));
      for (const auto& [at, size] : rooms) EXPECT_TRUE(room.device + bytes <= at || at + size <= room.device);
      rooms.emplace_back(room.device, bytes);
    }
    arena.launched(done[operation % 2]);
    if (random() % 40 == 0) arena.all_done();
  }
}

/// A stream that is held up until open() is called.
class Gate {
 public:
  Gate() {
    cuda_emulator::enqueue(stream_, [this] { open_.wait(false); });
  }
  ~Gate() { open(); }
  void open() {
    open_ = true;
    open_.notify_all();
  }
  CudaStream stream() const { return stream_; }

 private:
  std::atomic<bool> open_ = false;
  OwnedStream stream_;
};

// What an older operation may still read is given away only when that operation has been waited for: of three
// operations in a ring for two, the third waits for the first, not for the second.
TEST(LaunchArena, AFullRingWaitsForItsOldestRoom) {
  LaunchArena arena(1024);
  CudaMark first, second;
  Gate gate_of_first, gate_of_second;
  const LaunchArena::Room a = arena.take(512);
  first.record(gate_of_first.stream());
  arena.launched(first);
  const LaunchArena::Room b = arena.take(512);
  second.record(gate_of_second.stream());
  arena.launched(second);
  EXPECT_NE(a.device, b.device);
  std::atomic<bool> opened = false;
  std::thread opener([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    opened = true;
    gate_of_first.open();
  });
  EXPECT_EQ(arena.take(300).device, a.device);
  EXPECT_TRUE(opened);
  opener.join();
}

TEST(LaunchScratch, AnOperationsRoomsAreApartAndTheNextOnesTakeTheirPlace) {
  LaunchScratch scratch;
  std::byte* const small = scratch.take(100);
  std::byte* const large = scratch.take(5000);  // in new memory: the first is still there
  std::fill_n(small, 100, std::byte(1));
  std::fill_n(large, 5000, std::byte(2));
  std::byte* const more = scratch.take(1000);
  EXPECT_TRUE(more >= large + 5000 || more + 1000 <= large);
  EXPECT_EQ(small[99], std::byte(1));
  scratch.next_operation();
  EXPECT_EQ(scratch.take(100), large);
  scratch.all_done();
}

}  // namespace
}  // namespace tandem
