// What the CUDA twins refuse and decide on the host, with the emulated device.
#include <algorithm>
#include <cmath>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <numeric>

#include "engine/kernels/gather.h"
#include "engine/kernels/pointwise.h"
#include "engine/kernels/sampling.h"

namespace tandem {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

TEST(GatherCuda, TakesOnlyAWayThatIsPossible) {
  const PinnedMemory host(1024);
  const CudaMemory device(1024), slots(4);
  std::iota(host.as<std::uint8_t>(), host.as<std::uint8_t>() + 1024, std::uint8_t{0});
  const std::uint32_t slot = 3;
  cuda_copy(slots.as<>(), &slot, 4, {});
  Pieces pieces;
  pieces.from = host.as<>();
  pieces.to = device.as<>();
  pieces.from_stride = pieces.to_stride = pieces.bytes = 64;
  pieces.from_slots = slots.as<std::uint32_t>();
  pieces.count = 1;
  pieces.slots_on_host = false;
  gather_cuda(pieces, GatherWay::zero_copy, {});
  EXPECT_EQ(device.as<std::uint8_t>()[5], 3 * 64 + 5);
  EXPECT_THAT([&] { gather_cuda(pieces, GatherWay::dma, {}); }, ThrowsMessage<InputError>(HasSubstr("on the device")));
  pieces.count = 0;
  gather_cuda(pieces, GatherWay::dma, {});  // nothing to do
  pieces.count = 1;
  pieces.bytes = 0;
  gather_cuda(pieces, GatherWay::dma, {});
  pieces.bytes = 60;
  EXPECT_THAT([&] { gather_cuda(pieces, GatherWay::zero_copy, {}); },
              ThrowsMessage<LogicError>(HasSubstr("multiples of 16")));
}

// A GPU takes a wrong hint and is slow.
TEST(CopyPieces, SayWhetherTheyCrossTheLink) {
  const PinnedMemory host(64);
  const CudaMemory a(64), b(64);
  const auto copy = [&](void* to, const void* from, CopyWay way) {
    void* const tos[] = {to};
    const void* const froms[] = {from};
    const std::size_t bytes[] = {64};
    cuda_copy_pieces(tos, froms, bytes, way, {});
  };
  std::fill_n(host.as<char>(), 64, 'x');
  copy(a.as<>(), host.as<>(), CopyWay::over_link);
  copy(b.as<>(), a.as<>(), CopyWay::within_device);
  cuda_wait({});
  EXPECT_EQ(b.as<char>()[63], 'x');
  EXPECT_THAT([&] { copy(host.as<>(), b.as<>(), CopyWay::within_device); },
              ThrowsMessage<LogicError>(HasSubstr("stay within the device, and crosses")));
  EXPECT_THAT([&] { copy(b.as<>(), a.as<>(), CopyWay::over_link); },
              ThrowsMessage<LogicError>(HasSubstr("cross the link, and stays")));
}

// The kernel counts units of 16 bytes in 32 bits; copies count nothing.
TEST(GatherCuda, OnlyZeroCopyHasAMostOfUnits) {
  const CudaMemory device(16);
  Pieces pieces;
  pieces.from = pieces.to = device.as<>();
  pieces.from_stride = pieces.to_stride = pieces.bytes = std::size_t{1} << 20;
  pieces.count = 1u << 15;
  pieces.slots_on_host = false;
  check_pieces(pieces);
  EXPECT_THAT([&] { gather_cuda(pieces, GatherWay::dma, {}); }, ThrowsMessage<InputError>(HasSubstr("on the device")));
  EXPECT_THAT([&] { gather_cuda(pieces, GatherWay::zero_copy, {}); },
              ThrowsMessage<LogicError>(HasSubstr("1 lists of 34359738368 bytes")));
}

TEST(RmsNormCuda, InPlaceAndRefusesAnotherShape) {
  const CudaMemory x(16), weight(8);
  const float row[] = {3, 4}, ones[] = {1, 2};
  cuda_copy(x.as<>(), row, 8, {});
  cuda_copy(weight.as<>(), ones, 8, {});
  const MatrixView norm{weight.as<>(), DType::f32, 1, 2};
  rms_norm_cuda(x.as<float>(), norm, 0, x.as<>(), DType::f32, 1, 2, {});
  EXPECT_NEAR(x.as<float>()[0], 3 / std::sqrt(12.5), 1e-6);
  EXPECT_NEAR(x.as<float>()[1], 8 / std::sqrt(12.5), 1e-6);
  EXPECT_THROW(rms_norm_cuda(x.as<float>(), norm, 0, x.as<>(), DType::f32, 1, 4, {}), LogicError);
}

TEST(EmbedCuda, AnUnknownTokenMakesARowOfNaN) {
  const CudaMemory table(16), tokens(8), out(16);
  const float rows[] = {1, 2, 3, 4};
  const std::int32_t ids[] = {2, -1};
  cuda_copy(table.as<>(), rows, 16, {});
  cuda_copy(tokens.as<>(), ids, 8, {});
  std::fill_n(out.as<float>(), 4, 0.0f);
  embed_cuda({table.as<>(), DType::f32, 2, 2}, tokens.as<std::int32_t>(), out.as<float>(), 2, {});
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(std::isnan(out.as<float>()[i]));
}

TEST(ChooseCuda, ATokenOutsideTheVocabularyHasNoProbability) {
  const std::vector<float> logits = {1, 3, 2, 1, 3, 2, 1, 3, 2};
  const std::vector<std::int32_t> ids = {-1, 3, 1};
  const CudaMemory device(36), tokens(12), chosen(3 * sizeof(TopTwo)), best(12), log_probabilities(24);
  const CudaMemory scratch(choose_scratch_bytes(3, 3));
  cuda_copy(device.as<>(), logits.data(), 36, {});
  cuda_copy(tokens.as<>(), ids.data(), 12, {});
  std::fill_n(log_probabilities.as<double>(), 3, 0.0);
  choose_cuda(device.as<float>(), 3, 3, tokens.as<std::int32_t>(), chosen.as<TopTwo>(), best.as<std::int32_t>(),
              log_probabilities.as<double>(), scratch.as<>(), {});
  EXPECT_TRUE(std::isnan(log_probabilities.as<double>()[0]));
  EXPECT_TRUE(std::isnan(log_probabilities.as<double>()[1]));
  EXPECT_NEAR(log_probabilities.as<double>()[2], -std::log(1 + std::exp(-1.0) + std::exp(-2.0)), 1e-6);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(chosen.as<TopTwo>()[i].best, 1);
    EXPECT_EQ(best.as<std::int32_t>()[i], 1);
  }
  EXPECT_THAT(
      [&] { choose_cuda(device.as<float>(), 1, 3, nullptr, nullptr, nullptr, nullptr, scratch.as<char>() + 4, {}); },
      ThrowsMessage<LogicError>(HasSubstr("aligned to 8 bytes")));
}

TEST(EmulatedMemoryDeathTest, AWriteOutsideEndsTheProgram) {
  EXPECT_DEATH(
      {
        const CudaMemory memory(8);
        memory.as<char>()[8] = 1;
      },
      "outside 8 bytes of emulated device memory");
}

}  // namespace
}  // namespace tandem
