// The emulator finds races of every kind whatever order it ran the threads in, and none where the program orders them.
#include "tests/engine/kernels/cuda_emulator/races.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <numeric>
#include <optional>
#include <tuple>
#include <vector>

#include "engine/kernels/cuda/launch.cuh"
#include "engine/kernels/cuda/mma.cuh"
#include "tests/engine/kernels/cuda_emulator/emulator.h"

namespace tandem {
namespace {

using cuda_emulator::Error;
using cuda_emulator::Races;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

// ---- the rule, without a kernel

constexpr unsigned char kShared[256] = {};
constexpr int kOutside[64] = {};

class RaceRule : public ::testing::Test {
 protected:
  std::optional<Races> launch_;
  Races& races_ = launch_.emplace(Races::Bytes());
  void SetUp() override { begin_launch(); }
  void begin_launch(bool judges = true) {
    launch_.emplace(Races::Bytes(), judges);
    races_.begin_block(0, 96, kShared);
  }
  void does(unsigned thread, Races::Kind kind, const void* at = kOutside, std::size_t bytes = 4) {
    races_.resume(thread);
    races_.access(at, bytes, kind, nullptr);
  }
};

TEST_F(RaceRule, ReadsAndAtomicsDoNotRace) {
  for (const unsigned thread : {0u, 1u, 40u}) does(thread, Races::Kind::read);
  for (const unsigned thread : {0u, 1u, 40u}) does(thread, Races::Kind::atomic, kOutside + 1);
  races_.begin_block(1, 96, kShared);
  does(3, Races::Kind::read);
  does(3, Races::Kind::atomic, kOutside + 1);
  EXPECT_FALSE(races_.found());
}

// A launch that is not judged still tells stream_order.h all bytes that it touched.
TEST_F(RaceRule, ALaunchThatIsNotJudgedTouchesTheSameBytes) {
  using Kind = Races::Kind;
  std::vector<std::tuple<const void*, std::size_t, bool>> touched[2];
  for (const bool judges : {false, true}) {
    begin_launch(judges);
    does(0, Kind::read, kOutside, 16);
    does(0, Kind::write, kOutside + 2, 4);
    does(40, Kind::read, kOutside + 8, 4);
    does(0, Kind::atomic, kOutside + 20, 8);
    does(0, Kind::constant_read, kOutside + 30, 4);
    does(0, Kind::write, kShared, 8);
    for (const auto& one : races_.touched()) touched[judges ? 1 : 0].emplace_back(one.at, one.bytes, one.write);
  }
  EXPECT_THAT(touched[0], ::testing::SizeIs(::testing::Ge(5u)));
  EXPECT_EQ(touched[0], touched[1]);
  begin_launch(false);
  does(0, Kind::write);
  does(40, Kind::write);
  EXPECT_FALSE(races_.found());
}

TEST_F(RaceRule, AThreadIsInOrderWithItself) {
  for (const auto kind : {Races::Kind::write, Races::Kind::read, Races::Kind::atomic, Races::Kind::write})
    does(5, kind);
  EXPECT_FALSE(races_.found());
}

TEST_F(RaceRule, EveryPairWithAWriteRaces) {
  using Kind = Races::Kind;
  const std::pair<Kind, Kind> pairs[] = {
      {Kind::write, Kind::read},  {Kind::read, Kind::write},  {Kind::write, Kind::write}, {Kind::write, Kind::atomic},
      {Kind::atomic, Kind::read}, {Kind::read, Kind::atomic}, {Kind::atomic, Kind::write}};
  for (const auto& [first, second] : pairs) {
    for (const unsigned other : {1u, 40u}) {
      begin_launch();
      does(0, first);
      does(other, second);
      ASSERT_TRUE(races_.found());
      EXPECT_EQ(races_.race().other, "thread 0");
      EXPECT_EQ(races_.race().other_kind, first);

      begin_launch();  // a barrier of the block orders any two threads
      does(0, first);
      races_.block_barrier();
      does(other, second);
      EXPECT_FALSE(races_.found());

      begin_launch();  // and does nothing for another block
      does(0, first);
      races_.block_barrier();
      races_.begin_block(1, 96, kShared);
      does(0, second);
      ASSERT_TRUE(races_.found());
      EXPECT_EQ(races_.race().other, "block 0");
    }
  }
}

TEST_F(RaceRule, ABarrierOfAWarpOrdersItsLanesOnly) {
  does(0, Races::Kind::write);
  races_.warp_barrier(0, 0xffffffffu);
  does(31, Races::Kind::read);
  EXPECT_FALSE(races_.found());
  does(32, Races::Kind::read);
  EXPECT_TRUE(races_.found());
}

TEST_F(RaceRule, ABarrierOfLanesOrdersThoseAndWhatTheyHadSeen) {
  does(0, Races::Kind::write);
  races_.warp_barrier(0, 0b0011);
  races_.warp_barrier(0, 0b0110);
  does(2, Races::Kind::read);  // through lane 1
  EXPECT_FALSE(races_.found());
  does(3, Races::Kind::read);
  EXPECT_TRUE(races_.found());
}

TEST_F(RaceRule, WhatWasDoneAfterTheBarrierIsNotOrderedByIt) {
  races_.warp_barrier(0, 0xffffffffu);
  does(0, Races::Kind::write);
  does(1, Races::Kind::read);
  EXPECT_TRUE(races_.found());
}

TEST_F(RaceRule, AWriteIsToBeBehindEveryReader) {
  does(1, Races::Kind::read);
  does(40, Races::Kind::read);
  does(40, Races::Kind::write);
  ASSERT_TRUE(races_.found());
  EXPECT_EQ(races_.race().other, "threads of several warps");
}

TEST_F(RaceRule, BytesBesideAreOthers) {
  const auto* const bytes = reinterpret_cast<const unsigned char*>(kOutside);
  does(0, Races::Kind::write, bytes, 16);
  races_.block_barrier();
  does(1, Races::Kind::write, bytes, 2);
  does(2, Races::Kind::write, bytes + 2, 1);
  does(3, Races::Kind::write, bytes + 3, 1);
  does(4, Races::Kind::read, bytes + 4, 4);
  EXPECT_FALSE(races_.found());
  does(5, Races::Kind::read, bytes, 4);
  EXPECT_TRUE(races_.found());
}

TEST_F(RaceRule, ARangeOverSeveralPagesIsLookedAtWhole) {
  std::vector<unsigned char> bytes(2000);
  does(0, Races::Kind::write, bytes.data() + 1700, 1);
  does(40, Races::Kind::read, bytes.data(), 1701);
  EXPECT_TRUE(races_.found());
}

TEST_F(RaceRule, SharedMemoryIsANewOneInEveryBlock) {
  does(0, Races::Kind::write, kShared);
  races_.begin_block(1, 96, kShared);
  does(40, Races::Kind::read, kShared);
  EXPECT_FALSE(races_.found());
}

TEST_F(RaceRule, WhatIsReadPastTheCachesIsWrittenByNobody) {
  does(0, Races::Kind::write, kOutside);
  races_.block_barrier();
  does(0, Races::Kind::read, kOutside);
  EXPECT_FALSE(races_.found());
  does(0, Races::Kind::constant_read, kOutside);
  EXPECT_TRUE(races_.found());

  begin_launch();
  does(0, Races::Kind::atomic, kOutside);
  races_.block_barrier();
  does(0, Races::Kind::constant_read, kOutside);
  ASSERT_TRUE(races_.found());
  EXPECT_EQ(races_.race().other_kind, Races::Kind::atomic);

  begin_launch();
  does(0, Races::Kind::constant_read, kOutside);
  races_.block_barrier();
  does(0, Races::Kind::write, kOutside);
  EXPECT_TRUE(races_.found());
}

// ---- kernels: that the compiler's calls arrive, with what they should say

#ifdef TANDEM_RACES

enum class Between { nothing, warp_barrier, shuffle, block_barrier };
template <Between between>
__global__ void neighbour_kernel(int* out) {
  TANDEM_SHARED(int, row, 64);
  row[threadIdx.x] = static_cast<int>(threadIdx.x);
  if (between == Between::warp_barrier) __syncwarp();
  if (between == Between::shuffle) static_cast<void>(__shfl_sync(0xffffffffu, 1, 0));
  if (between == Between::block_barrier) __syncthreads();
  out[threadIdx.x] = row[threadIdx.x ^ 1];
}
/// The barrier that is missing is the one before the row is written again.
__global__ void overwritten_kernel(int* out) {
  TANDEM_SHARED(int, row, 64);
  for (int i = 0; i < 2; ++i) {
    row[threadIdx.x] = i;
    __syncthreads();
    out[threadIdx.x] += row[63 - threadIdx.x];
  }
}
__global__ void uncounted_kernel(unsigned* counts, bool atomically) {
  if (atomically)
    atomicAdd(counts, 1u);
  else
    *counts += 1;
}
__global__ void blocks_overlap_kernel(float* out, unsigned stride) {
  out[blockIdx.x * stride + threadIdx.x] = 1;
}
__global__ void vector_kernel(float* out) {
  gpu::store_vector(out + 4 * (threadIdx.x / 2), make_float4(1, 2, 3, 4));
}
__global__ void stream_kernel(float* x) {
  const uint4 bits = gpu::load_stream(x);
  x[0] = __uint_as_float(bits.x) + 1;
}
/// Copies are issued into the stage that the other warp may still be reading.
template <bool with_barrier>
__global__ void stages_kernel(const float* x, float* out) {
  TANDEM_SHARED(float4, stage, 64);
  float sum = 0;
  for (unsigned i = 0; i < 2; ++i) {
    gpu::async_copy_16(&stage[threadIdx.x], x + 4 * (64 * i + threadIdx.x));
    gpu::async_commit();
    gpu::async_wait<0>();
    __syncthreads();
    sum += stage[63 - threadIdx.x].x;
    if (with_barrier) __syncthreads();
  }
  out[threadIdx.x] = sum;
}
/// What a copy reads is written before it was waited for.
__global__ void source_kernel(float* x, float* out) {
  TANDEM_SHARED(float4, stage, 64);
  gpu::async_copy_16(&stage[threadIdx.x], x + 4 * threadIdx.x);
  gpu::async_commit();
  __syncthreads();
  x[4 * (63 - threadIdx.x)] = 1;
  __syncthreads();
  gpu::async_wait<0>();
  out[threadIdx.x] = stage[threadIdx.x].x;
}
template <bool with_barrier>
__global__ void matrix_kernel(std::uint32_t* out) {
  TANDEM_SHARED(uint4, rows, 32);
  rows[threadIdx.x] = make_uint4(threadIdx.x, 0, 0, 0);
  if (with_barrier) __syncwarp();
  std::uint32_t fragment[4];
  gpu::load_matrices_4(fragment, &rows[threadIdx.x]);
  out[threadIdx.x] = fragment[0];
}

class KernelRaces : public ::testing::TestWithParam<unsigned> {
 protected:
  gpu::Launcher launch_{GetParam()};  // its seed
  alignas(16) float x_[512] = {};
  alignas(16) float out_[256] = {};
  int counts_[64] = {};
  unsigned count_ = 0;
  std::uint32_t words_[32] = {};
};
INSTANTIATE_TEST_SUITE_P(Orders, KernelRaces, ::testing::Range(0u, 5u));

#define EXPECT_RACE(statement, text) EXPECT_THAT([&] { statement; }, ThrowsMessage<Error>(HasSubstr(text)))

TEST_P(KernelRaces, NeighboursNeedABarrierAndAShuffleIsNone) {
  launch_(neighbour_kernel<Between::warp_barrier>, 1, 64, 0, counts_);
  launch_(neighbour_kernel<Between::block_barrier>, 1, 64, 0, counts_);
  EXPECT_RACE(launch_(neighbour_kernel<Between::nothing>, 1, 64, 0, counts_), "4 bytes of 'row' from byte");
  EXPECT_RACE(launch_(neighbour_kernel<Between::shuffle>, 1, 64, 0, counts_), "nothing orders that with thread");
}

TEST_P(KernelRaces, ABufferIsNotWrittenWhileItIsRead) {
  EXPECT_RACE(launch_(overwritten_kernel, 1, 64, 0, counts_), "'row'");
}

TEST_P(KernelRaces, WhatShouldBeAtomic) {
  launch_(uncounted_kernel, 3, 64, 0, &count_, true);
  EXPECT_EQ(count_, 192u);
  EXPECT_RACE(launch_(uncounted_kernel, 1, 64, 0, &count_, false), "memory outside the block");
  EXPECT_RACE(launch_(uncounted_kernel, 2, 1, 0, &count_, false), "with block");
}

TEST_P(KernelRaces, BlocksThatWriteTheSame) {
  launch_(blocks_overlap_kernel, 3, 64, 0, out_, 64u);
  EXPECT_RACE(launch_(blocks_overlap_kernel, 3, 64, 0, out_, 63u), "4 bytes of memory outside the block are written");
}

TEST_P(KernelRaces, VectorsAndReadsPastTheCaches) {
  EXPECT_RACE(launch_(vector_kernel, 1, 32, 0, out_), "16 bytes of memory outside the block are written");
  EXPECT_RACE(launch_(stream_kernel, 1, 1, 0, x_), "read past the coherent caches");
}

TEST_P(KernelRaces, AsyncCopiesIntoAStageThatIsRead) {
  launch_(stages_kernel<true>, 1, 64, 0, x_, out_);
  EXPECT_RACE(launch_(stages_kernel<false>, 1, 64, 0, x_, out_), "'stage'");
  EXPECT_RACE(launch_(source_kernel, 1, 64, 0, x_, out_), "was changed before the copy was waited for");
}

TEST_P(KernelRaces, MatricesOfRowsThatOthersWrote) {
  launch_(matrix_kernel<true>, 1, 32, 0, words_);
  EXPECT_RACE(launch_(matrix_kernel<false>, 1, 32, 0, words_), "16 bytes of 'rows'");
}

#endif

}  // namespace
}  // namespace tandem
