// Works of two streams that touch the same memory are found whatever their threads did first, and none that marks,
// counts or the host put in order.
#include "tests/engine/kernels/cuda_emulator/stream_order.h"

#include <atomic>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string>
#include <thread>

#include "engine/device/cuda/runtime.h"
#include "engine/kernels/cuda/launch.cuh"
#include "tests/engine/kernels/cuda_emulator/emulator.h"

namespace tandem {
namespace {

using cuda_emulator::Error;
using ::testing::AllOf;
using ::testing::HasSubstr;

class StreamOrderTest : public ::testing::Test {
 protected:
  static constexpr std::size_t kBytes = 256;
  OwnedStream a_, b_;
  CudaMemory shared_{kBytes}, first_{kBytes}, second_{kBytes};

  void write(CudaStream stream) { cuda_copy(shared_.as(), first_.as(), kBytes, stream); }
  void read(CudaStream stream) { cuda_copy(second_.as(), shared_.as(), kBytes, stream); }
  void hold(CudaStream later, CudaStream earlier) {
    CudaMark mark;
    mark.record(earlier);
    mark.hold(later);
  }
  /// What one of the streams found; empty: nothing.
  std::string found() const {
    std::string what;
    for (const CudaStream stream : {CudaStream(a_), CudaStream(b_)}) {
      try {
        cuda_wait(stream);
      } catch (const Error& error) {
        what = error.what();
      }
    }
    return what;
  }
};

TEST_F(StreamOrderTest, AReadOfWhatAnotherStreamWrites) {
  write(a_);
  read(b_);
  EXPECT_THAT(found(), AllOf(HasSubstr("and nothing orders that with a work of stream"), HasSubstr("256 bytes")));
}

TEST_F(StreamOrderTest, AWriteOverWhatAnotherStreamReads) {
  read(a_);
  write(b_);
  EXPECT_NE(found(), "");
}

TEST_F(StreamOrderTest, TwoWrites) {
  write(a_);
  write(b_);
  EXPECT_NE(found(), "");
}

TEST_F(StreamOrderTest, TwoReadsAndOtherBytesAreNothing) {
  read(a_);
  cuda_copy(first_.as(), shared_.as(), kBytes, b_);
  cuda_copy(first_.as(), first_.as<char>() + kBytes / 2, 16, b_);
  cuda_copy(second_.as<char>() + 16, second_.as(), 16, a_);
  EXPECT_EQ(found(), "");
}

TEST_F(StreamOrderTest, APartOfWhatWasWrittenAsAWhole) {
  write(a_);
  cuda_copy(second_.as(), shared_.as<char>() + 64, 4, b_);
  EXPECT_NE(found(), "");  // by whichever came second
}

TEST_F(StreamOrderTest, AWholeOverAPartThatWasRead) {
  cuda_copy(second_.as(), shared_.as<char>() + 252, 4, a_);
  write(b_);
  EXPECT_NE(found(), "");
}

TEST_F(StreamOrderTest, PartsOfAWholeThatIsInOrderAreApart) {
  write(a_);
  cuda_wait(a_);
  cuda_copy(shared_.as(), first_.as(), 4, a_);
  cuda_copy(shared_.as<char>() + 4, first_.as(), 2, b_);
  cuda_copy(shared_.as<char>() + 128, first_.as(), 64, b_);
  EXPECT_EQ(found(), "");
  cuda_copy(shared_.as<char>() + 128, first_.as(), 64, b_);
  cuda_copy(shared_.as<char>() + 188, first_.as(), 4, a_);
  EXPECT_NE(found(), "");
}

TEST_F(StreamOrderTest, AMarkOrdersWhatWasBeforeIt) {
  write(a_);
  hold(b_, a_);
  read(b_);
  EXPECT_EQ(found(), "");

  hold(b_, a_);
  write(a_);  // behind the mark
  read(b_);
  EXPECT_NE(found(), "");
}

TEST_F(StreamOrderTest, MarksOrderThroughAThirdStream) {
  OwnedStream between;
  write(a_);
  hold(between, a_);
  hold(b_, between);
  read(b_);
  EXPECT_EQ(found(), "");
}

TEST_F(StreamOrderTest, WhatTheHostWaitedForIsBeforeWhatItAsksForNext) {
  write(a_);
  cuda_wait(a_);
  read(b_);
  EXPECT_EQ(found(), "");

  CudaMark mark;
  write(b_);
  mark.record(b_);
  std::thread([&] { mark.wait(); }).join();
  read(a_);
  EXPECT_EQ(found(), "");
}

TEST_F(StreamOrderTest, WhatTheHostAskedForBeforeItWaitedIsNot) {
  PinnedMemory count(sizeof(std::uint32_t));
  *count.as<std::uint32_t>() = 0;
  cuda_await_count(b_, count.as<std::uint32_t>(), 1);  // so that it runs last
  read(b_);
  write(a_);
  OwnedStream another;
  cuda_write_count(another, count.as<std::uint32_t>(), 1);
  EXPECT_NE(found(), "");
}

TEST_F(StreamOrderTest, CountsThatTheHostRaises) {
  PinnedMemory count(sizeof(std::uint32_t));
  *count.as<std::uint32_t>() = 0;
  write(a_);
  cuda_await_count(b_, count.as<std::uint32_t>(), 1);
  read(b_);
  cuda_wait(a_);
  cuda_raise_count(count.as<std::uint32_t>());
  EXPECT_EQ(found(), "");
}

TEST_F(StreamOrderTest, CountsThatAStreamWrites) {
  PinnedMemory count(sizeof(std::uint32_t));
  *count.as<std::uint32_t>() = 0;
  write(a_);
  cuda_write_count(a_, count.as<std::uint32_t>(), 1);
  while (!cuda_count_reached(count.as<std::uint32_t>(), 1)) std::this_thread::yield();
  read(b_);
  EXPECT_EQ(found(), "");
}

TEST_F(StreamOrderTest, ACountThatWasRaisedTwiceOrdersWhatTheFirstTimeDid) {
  PinnedMemory counts(2 * sizeof(std::uint32_t));
  auto* const count = counts.as<std::uint32_t>();
  count[0] = count[1] = 0;
  cuda_write_count(a_, count, 1);
  write(a_);
  cuda_write_count(a_, count, 2);
  cuda_write_count(a_, count + 1, 1);
  OwnedStream late;  // so that b_ looks when the count is there twice
  cuda_await_count(late, count + 1, 1);
  PinnedMemory gate(sizeof(std::uint32_t));
  *gate.as<std::uint32_t>() = 0;
  cuda_write_count(late, gate.as<std::uint32_t>(), 1);
  while (std::atomic_ref<std::uint32_t>(*gate.as<std::uint32_t>()).load() == 0) std::this_thread::yield();
  cuda_await_count(b_, count, 1);
  read(b_);
  EXPECT_NE(found(), "");
}

TEST_F(StreamOrderTest, ACountThatWasRaisedTwiceOrdersWhatBothTimesDid) {
  PinnedMemory count(sizeof(std::uint32_t));
  *count.as<std::uint32_t>() = 0;
  write(a_);
  cuda_write_count(a_, count.as<std::uint32_t>(), 1);
  cuda_copy(first_.as(), second_.as(), kBytes, a_);
  cuda_write_count(a_, count.as<std::uint32_t>(), 2);
  cuda_await_count(b_, count.as<std::uint32_t>(), 2);
  read(b_);
  EXPECT_EQ(found(), "");
}

TEST_F(StreamOrderTest, ToEndAStreamIsNotToWaitForIt) {
  {
    OwnedStream other;
    write(other);
  }
  read(b_);
  EXPECT_NE(found(), "");
}

TEST_F(StreamOrderTest, PiecesOfABatchAreApart) {
  void* const there = shared_.as();
  const std::size_t half[] = {kBytes / 2, kBytes / 2};
  void* const to[] = {first_.as(), second_.as()};
  const void* const from[] = {there, there};
  cuda_copy_pieces(to, from, half, CopyWay::within_device, a_);
  void* const onto[] = {there, shared_.as<char>() + 8};
  const void* const others[] = {first_.as(), second_.as()};
  EXPECT_THROW(cuda_copy_pieces(onto, others, half, CopyWay::within_device, a_), Error);
  const void* const read_too[] = {first_.as(), there};
  void* const written[] = {there, second_.as()};
  EXPECT_THROW(cuda_copy_pieces(written, read_too, half, CopyWay::within_device, a_), Error);
  EXPECT_EQ(found(), "");
}

TEST_F(StreamOrderTest, WhatLiesInMemoryThatWasGivenBackIsForgotten) {
  for (int i = 0; i < 3; ++i) {
    CudaMemory other(kBytes);
    cuda_copy(other.as(), first_.as(), kBytes, i % 2 == 0 ? a_ : b_);
  }
  EXPECT_EQ(found(), "");
}

#ifdef TANDEM_RACES
__global__ void add_kernel(const float* x, float* y) {
  y[threadIdx.x] = x[threadIdx.x] + 1;
}

TEST_F(StreamOrderTest, KernelsTouchWhatTheirThreadsDo) {
  gpu::Launcher on_a(a_), on_b(b_);
  on_a(add_kernel, 1, 16, 0, first_.as<float>(), shared_.as<float>());
  on_b(add_kernel, 1, 16, 0, first_.as<float>(), shared_.as<float>() + 16);
  EXPECT_EQ(found(), "");
  on_b(add_kernel, 1, 16, 0, shared_.as<float>() + 15, second_.as<float>());
  EXPECT_EQ(found(), "") << "the host has waited";
  on_a(add_kernel, 1, 16, 0, first_.as<float>(), shared_.as<float>());
  on_b(add_kernel, 1, 16, 0, shared_.as<float>() + 15, second_.as<float>());
  EXPECT_THAT(found(), AllOf(HasSubstr("A kernel (addr2line -ife "), HasSubstr("test_cuda_emulator")));
}
#endif

}  // namespace
}  // namespace tandem
