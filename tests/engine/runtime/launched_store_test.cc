// The KV store of a device that launches kernels, which are not held to single pages.
#include <gtest/gtest.h>
#include <random>

#include "engine/device/cuda_device.h"
#include "engine/kv/kv_store.h"

namespace tandem::testing {
namespace {

constexpr KvShape kShape{2, 2, 16};

Device& device_that_launches() {
  static const std::unique_ptr<Device> device = make_cuda_device({.host_worker_threads = 1});
  return *device;
}

struct Store {
  KvStore kv{device_that_launches(), kShape, {kShape.slot_bytes() * 256, kShape.slot_bytes() * 256}};
  std::vector<Event> after;
};

TEST(LaunchedStore, OneSlotStandsForAllThatAreTouched) {
  Store s;
  const SequenceId a = s.kv.create();
  for (int page = 0; page < 20; ++page) s.kv.grow(a, kPageTokens, s.after);  // in turns with layer 0
  for (const std::uint32_t layer : {1u, 0u, 1u}) {
    const std::uint32_t next = s.kv.slot(a, layer, 2, Tier::host) == KvStore::kNoSlot ? 2 : 4;
    s.kv.add_host_blocks(a, layer, {next, next + 1}, s.after);
  }
  ASSERT_NE(s.kv.slot(a, 1, 4, Tier::host), s.kv.slot(a, 1, 2, Tier::host) + 1);
  for (const bool write : {false, true}) {
    std::vector<Access> touched;
    s.kv.append_access(a, 1, {0, 20}, Tier::device, {0, 2}, write, touched);
    ASSERT_EQ(touched.size(), 1u);
    EXPECT_EQ(touched[0].extent.buffer, s.kv.device_buffer().id());
    EXPECT_EQ(touched[0].write, write);
    s.kv.append_access(a, 1, {0, 20}, Tier::host, {0, 2}, write, touched);
    ASSERT_EQ(touched.size(), 2u);
    EXPECT_EQ(touched[1].extent.buffer, s.kv.host_buffer().id());
    EXPECT_EQ(touched[1].write, write);
  }
}

/// What is waited for is never less than what any of the blocks was filled by, and no more than one event of a lane.
TEST(LaunchedStore, AReaderWaitsForTheLatestOfEachLane) {
  std::mt19937 random(2);
  for (int round = 0; round < 30; ++round) {
    Store s;
    constexpr std::uint32_t kBlocks = 20;
    std::vector<SequenceId> sequences = {s.kv.create()};
    s.kv.grow(sequences[0], kBlocks * kPageTokens, s.after);
    std::vector<Event> filled[2][kShape.layers];  // by sequence and layer
    std::uint64_t number = 0;
    for (int i = 0; i < 30; ++i) {
      const std::size_t which = random() % sequences.size(), layer = random() % kShape.layers;
      const auto begin = static_cast<std::uint32_t>(random() % kBlocks);
      const Event event{static_cast<LaneId>(random() % 3), ++number};
      s.kv.set_filled(sequences[which], static_cast<std::uint32_t>(layer), {begin, kBlocks}, Tier::device, event);
      filled[which][layer].push_back(event);
      if (i == 15) {
        sequences.push_back(s.kv.fork(sequences[0]));
        for (std::uint32_t l = 0; l < kShape.layers; ++l) filled[1][l] = filled[0][l];
      }
    }
    for (std::size_t which = 0; which < 2; ++which) {
      for (std::uint32_t layer = 0; layer < kShape.layers; ++layer) {
        std::vector<Event> after, expected;
        for (const Event& event : filled[which][layer]) wait_for(expected, event);
        s.kv.append_filled(sequences[which], layer, {0, kBlocks}, Tier::device, after);
        EXPECT_EQ(after, expected);
        s.kv.append_filled(sequences[which], layer, {0, kBlocks}, Tier::host, after);
        EXPECT_EQ(after, expected);
      }
    }
    s.kv.all_done();
    std::vector<Event> after;
    for (const SequenceId id : sequences) s.kv.append_filled(id, 0, {0, kBlocks}, Tier::device, after);
    EXPECT_TRUE(after.empty());
  }
}

}  // namespace
}  // namespace tandem::testing
