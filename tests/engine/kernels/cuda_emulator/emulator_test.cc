// The emulator finds what it is there to find, and computes what the CUDA and PTX manuals say.
#include "tests/engine/kernels/cuda_emulator/emulator.h"

#include <cmath>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <numeric>
#include <vector>

#include "engine/kernels/cuda/launch.cuh"
#include "engine/kernels/cuda/mma.cuh"
#include "tests/engine/kernels/kernel_test.h"

namespace tandem {
namespace {

using cuda_emulator::Error;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

// ---- a kernel as one is written

__global__ void sum_kernel(const float* x, unsigned n, float* sums) {
  TANDEM_SHARED(float, scratch, 32);
  float mine = 0;
  for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) mine += x[i];
  const float all = gpu::block_sum(mine, scratch);
  if (threadIdx.x == 0) sums[blockIdx.x] = all;
}

__global__ void two_sums_kernel(float* sums) {
  TANDEM_SHARED(float, scratch, 32);
  const auto i = static_cast<float>(threadIdx.x);
  const float first = gpu::block_sum(i, scratch), second = gpu::block_sum(2 * i, scratch);  // the scratch is free again
  if (threadIdx.x == 0) *sums = first + second;
}

TEST(CudaEmulator, Reduction) {
  std::vector<float> x(1000), sums(3);
  std::iota(x.begin(), x.end(), 0.0f);
  gpu::Launcher launch;
  launch(sum_kernel, 3, 128, 0, x.data(), 1000u, sums.data());
  EXPECT_EQ(sums[0] + sums[1] + sums[2], 499500.0f);
  launch(sum_kernel, 0, 128, 0, x.data(), 1000u, sums.data());  // an empty grid
  launch(two_sums_kernel, 1, 128, 0, sums.data());
  EXPECT_EQ(sums[0], 3 * 127 * 64);
}

// ---- kernels of two streams

__global__ void answer_kernel(unsigned* mine, unsigned* other) {
  atomicExch(mine, 1u);
  while (atomicAdd(other, 0u) == 0) cuda_emulator::let_others_run();
}

__global__ void count_kernel(float* sum, unsigned times) {
  for (unsigned i = 0; i < times; ++i) atomicAdd(sum, 1.0f);
}

TEST(CudaEmulator, KernelsOfTwoStreamsRunBesideEachOther) {
  const OwnedStream a, b;
  unsigned words[2] = {};
  gpu::Launcher(CudaStream(a))(answer_kernel, 1, 1, 0, &words[0], &words[1]);
  gpu::Launcher(CudaStream(b))(answer_kernel, 1, 1, 0, &words[1], &words[0]);
  cuda_wait(a);
  cuda_wait(b);
  EXPECT_EQ(words[0] + words[1], 2u);
}

TEST(CudaEmulator, AtomicsOfTwoStreamsAddUp) {
  const OwnedStream a, b;
  float sum = 0;
  for (const CudaStream stream : {CudaStream(a), CudaStream(b)}) {
    gpu::Launcher launch(stream);
    launch(count_kernel, 2, 64, 0, &sum, 2000u);
  }
  cuda_wait(a);
  cuda_wait(b);
  EXPECT_EQ(sum, 2 * 2 * 64 * 2000);
}

// ---- missing and divergent barriers

template <bool with_barrier>
__global__ void reverse_kernel(const float* x, float* y) {
  TANDEM_SHARED(float, row, 64);
  row[threadIdx.x] = x[threadIdx.x];
  if (with_barrier) __syncthreads();
  y[threadIdx.x] = row[63 - threadIdx.x];
}

TEST(CudaEmulator, AMissingBarrierReadsNaN) {
  std::vector<float> x(64), y(64);
  std::iota(x.begin(), x.end(), 0.0f);
  for (unsigned seed = 0; seed < 20; ++seed) {
    gpu::Launcher launch(seed);
    launch(reverse_kernel<true>, 1, 64, 0, x.data(), y.data());
    for (std::size_t i = 0; i < 64; ++i) EXPECT_EQ(y[i], x[63 - i]);
#ifdef TANDEM_RACES
    EXPECT_THROW(launch(reverse_kernel<false>, 1, 64, 0, x.data(), y.data()), Error) << "a race before it is a NaN";
    continue;
#endif
    launch(reverse_kernel<false>, 1, 64, 0, x.data(), y.data());
    EXPECT_TRUE(std::any_of(y.begin(), y.end(), [](float value) { return std::isnan(value); }));
  }
}

__global__ void half_barrier_kernel() {
  if (threadIdx.x < 40) __syncthreads();
}
__global__ void two_barriers_kernel() {
  if (threadIdx.x < 40)
    __syncthreads();
  else
    __syncthreads();
}
__global__ void half_warp_kernel(int* out) {
  if (threadIdx.x < 16) out[threadIdx.x] = __shfl_xor_sync(0xffffffffu, 1, 1);
}
__global__ void mixed_operations_kernel(int* out) {
  out[threadIdx.x] = threadIdx.x % 2 ? __any_sync(0xffffffffu, 1) : __all_sync(0xffffffffu, 1);
}

TEST(CudaEmulator, DivergenceIsAnErrorThatSaysWho) {
  gpu::Launcher launch;
  std::vector<int> out(64);
  EXPECT_THAT([&] { launch(half_barrier_kernel, 1, 64, 0); },
              ThrowsMessage<Error>(HasSubstr("threads 40 to 63 has ended")));
  EXPECT_THAT([&] { launch(two_barriers_kernel, 1, 64, 0); }, ThrowsMessage<Error>(HasSubstr("block barrier of line")));
  EXPECT_THROW(launch(half_warp_kernel, 1, 32, 0, out.data()), Error);
  EXPECT_THAT([&] { launch(mixed_operations_kernel, 1, 32, 0, out.data()); },
              ThrowsMessage<Error>(HasSubstr("__all_sync")));
  launch(reverse_kernel<true>, 1, 64, 0, std::vector<float>(64).data(), std::vector<float>(64).data());  // goes on
}

// ---- shared memory

__global__ void write_behind_kernel(unsigned at) {
  TANDEM_SHARED(float, row, 8);
  (&row[0])[at] = 1;
}
__global__ void dynamic_kernel(float* out, unsigned at) {
  TANDEM_DYNAMIC_SHARED(bytes);
  out[0] = gpu::load_vector<float2>(bytes + at).x;
}
__global__ void stale_kernel(float* out) {
  TANDEM_SHARED(float, row, 1);
  out[blockIdx.x] = row[0];
  row[0] = 1;
}

__global__ void both_kinds_kernel(float* out) {
  TANDEM_SHARED(float, row, 5 * 1024);  // 20 KiB
  TANDEM_DYNAMIC_SHARED(bytes);
  gpu::store_vector(bytes, make_float2(1, 2));
  row[0] = 3;
  out[0] = gpu::load_vector<float2>(bytes).y + row[0];
}

TEST(CudaEmulator, StaticAndDynamicSharedMemoryCountTogether) {
  gpu::Launcher launch;
  float out = 0;
  launch(both_kinds_kernel, 1, 1, 28 * 1024, &out);
  EXPECT_EQ(out, 5);
  EXPECT_THAT([&] { launch(both_kinds_kernel, 1, 1, 29 * 1024, &out); },
              ThrowsMessage<Error>(HasSubstr("its launch asked for no more than 49152")));
  launch(both_kinds_kernel, 1, 1, 33 * 1024, &out);  // asked for
}

TEST(CudaEmulator, SharedMemoryIsPoisonedAndGuarded) {
  gpu::Launcher launch;
  float out[2] = {};
  launch(write_behind_kernel, 1, 1, 0, 7u);
  EXPECT_THAT([&] { launch(write_behind_kernel, 1, 1, 0, 8u); }, ThrowsMessage<Error>(HasSubstr("behind 'row'")));
  launch(dynamic_kernel, 1, 1, 16, out, 8u);
  EXPECT_TRUE(std::isnan(out[0])) << "never written";
  EXPECT_THAT([&] { launch(dynamic_kernel, 1, 1, 16, out, 16u); }, ThrowsMessage<Error>(HasSubstr("outside")));
  EXPECT_THAT([&] { launch(dynamic_kernel, 1, 1, 16, out, 4u); }, ThrowsMessage<Error>(HasSubstr("multiple of 8")));
  EXPECT_THAT([&] { launch(dynamic_kernel, 1, 1, 200 * 1024, out, 0u); },
              ThrowsMessage<Error>(HasSubstr("the device has")));
  launch(stale_kernel, 2, 1, 0, out);
  EXPECT_TRUE(std::isnan(out[0]) && std::isnan(out[1])) << "of the block before";
}

// ---- warp operations

__global__ void shuffles_kernel(int* out /*[7][32]*/) {
  const int lane = static_cast<int>(threadIdx.x);
  out[lane] = __shfl_sync(0xffffffffu, lane, 5);
  out[32 + lane] = __shfl_xor_sync(0xffffffffu, lane, 3);
  out[64 + lane] = __shfl_down_sync(0xffffffffu, lane, 1);
  out[96 + lane] = __shfl_up_sync(0xffffffffu, lane, 4, 8);
  out[128 + lane] = static_cast<int>(__ballot_sync(0xffffffffu, lane % 3 == 0));
  const unsigned half = lane < 16 ? 0xffffu : 0xffff0000u;  // two halves, each by itself
  out[160 + lane] = __reduce_add_sync(half, lane);
  out[192 + lane] = __reduce_min_sync(half, lane - 20) * 100 + __reduce_max_sync(half, lane);
}

TEST(CudaEmulator, WarpOperations) {
  std::vector<int> out(7 * 32);
  gpu::Launcher launch;
  launch(shuffles_kernel, 1, 32, 0, out.data());
  for (int lane = 0; lane < 32; ++lane) {
    const auto row = [&](std::size_t i) { return out[32 * i + static_cast<std::size_t>(lane)]; };
    EXPECT_EQ(row(0), 5);
    EXPECT_EQ(row(1), lane ^ 3);
    EXPECT_EQ(row(2), lane == 31 ? 31 : lane + 1);
    EXPECT_EQ(row(3), lane % 8 < 4 ? lane : lane - 4);
    EXPECT_EQ(row(4), static_cast<int>(0x49249249u));
    EXPECT_EQ(row(5), lane < 16 ? 120 : 376);
    EXPECT_EQ(row(6), lane < 16 ? -2000 + 15 : -400 + 31);
  }
}

__global__ void histogram_kernel(const int* x, int n, int* bins) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < n) atomicAdd(&bins[x[i]], 1);
  const int count = __syncthreads_count(i < n);
  if (threadIdx.x == 0) atomicMax(&bins[4], count);
}

TEST(CudaEmulator, AtomicsAndCounts) {
  std::vector<int> x(100), bins(5);
  for (std::size_t i = 0; i < 100; ++i) x[i] = static_cast<int>(i % 4);
  gpu::Launcher launch;
  launch(histogram_kernel, 2, 64, 0, x.data(), 100, bins.data());
  EXPECT_EQ(bins, (std::vector<int>{25, 25, 25, 25, 64}));
}

// ---- cp.async

enum class Wait { none, all_but_one, all };
template <Wait wait>
__global__ void async_kernel(const float* x, float* y) {
  TANDEM_SHARED(float4, rows, 2 * 32);
  for (unsigned stage = 0; stage < 2; ++stage) {
    gpu::async_copy_16(&rows[32 * stage + threadIdx.x], x + 128 * stage + 4 * threadIdx.x, threadIdx.x != 31);
    gpu::async_commit();
  }
  if (wait == Wait::all_but_one) gpu::async_wait<1>();
  if (wait == Wait::all) gpu::async_wait<0>();
  __syncthreads();
  for (unsigned stage = 0; stage < 2; ++stage) y[32 * stage + threadIdx.x] = rows[32 * stage + (threadIdx.x ^ 1)].y;
}

TEST(CudaEmulator, AsyncCopiesArriveWhenWaitedFor) {
  alignas(16) float x[256];
  std::iota(x, x + 256, 1.0f);
  std::vector<float> y(64);
  gpu::Launcher launch;
  launch(async_kernel<Wait::all>, 1, 32, 0, x, y.data());
  for (std::size_t i = 0; i < 64; ++i) EXPECT_EQ(y[i], i % 32 == 30 ? 0 : x[4 * (i ^ 1) + 1]) << "lane 31 copies zeros";
  launch(async_kernel<Wait::all_but_one>, 1, 32, 0, x, y.data());
  EXPECT_EQ(y[0], x[5]);
  EXPECT_TRUE(std::isnan(y[32]));
  launch(async_kernel<Wait::none>, 1, 32, 0, x, y.data());
  EXPECT_TRUE(std::isnan(y[0]) && std::isnan(y[32]));
  EXPECT_THAT([&] { launch(async_kernel<Wait::all>, 1, 32, 0, x + 1, y.data()); },
              ThrowsMessage<Error>(HasSubstr("cp.async reading at an address that is no multiple of 16")));
}

// ---- tensor cores: C [16][8] = A [16][16] B [16][8], A and B row-major in shared memory

template <class Element>
__global__ void product_kernel(const std::uint16_t* a, const std::uint16_t* b, float* c) {
  TANDEM_SHARED(uint4, a_rows, 32);  // [16][16]
  TANDEM_SHARED(uint4, b_rows, 16);  // [16][8]
  const unsigned lane = threadIdx.x, group = lane / 4, pair = 2 * (lane % 4);
  a_rows[lane] = gpu::load_vector<uint4>(a + 8 * lane);
  if (lane < 16) b_rows[lane] = gpu::load_vector<uint4>(b + 8 * lane);
  __syncwarp();
  std::uint32_t a_fragment[4], b_twice[4];
  gpu::load_matrices_4(a_fragment, &a_rows[2 * (lane % 16) + lane / 16]);
  gpu::load_matrices_4_transposed(b_twice, &b_rows[lane % 16]);
  const std::uint32_t b_fragment[2] = {b_twice[0], b_twice[1]};
  float sums[4] = {1, 2, 3, 4};
  gpu::multiply_16x8x16<Element>(sums, a_fragment, b_fragment);
  for (unsigned i = 0; i < 4; ++i) c[8 * (group + 8 * (i / 2)) + pair + i % 2] = sums[i];
}

template <class Element>
void expect_product(DType type) {
  Random random(7);
  const auto a = random.normals(16 * 16), b = random.normals(16 * 8);
  alignas(16) std::uint16_t a_bits[16 * 16], b_bits[16 * 8];
  from_f32(a.data(), type, a.size(), a_bits);
  from_f32(b.data(), type, b.size(), b_bits);
  std::vector<float> c(16 * 8);
  gpu::Launcher launch;
  launch(product_kernel<Element>, 1, 32, 0, a_bits, b_bits, c.data());
  for (std::size_t row = 0; row < 16; ++row) {
    for (std::size_t column = 0; column < 8; ++column) {
      double expected = 1.0 + static_cast<double>(column % 2) + (row >= 8 ? 2 : 0);
      for (std::size_t k = 0; k < 16; ++k)
        expected +=
            double{load_element(a_bits, type, 16 * row + k)} * double{load_element(b_bits, type, 8 * k + column)};
      EXPECT_NEAR(c[8 * row + column], expected, 1e-5);
    }
  }
}

TEST(CudaEmulator, MatrixProduct) {
  expect_product<gpu::Bf16>(DType::bf16);
  expect_product<gpu::F16>(DType::f16);
}

__global__ void plain_and_transposed_kernel(const std::uint16_t* x, std::uint32_t* out) {
  TANDEM_SHARED(uint4, rows, 32);  // four 8x8 matrices
  rows[threadIdx.x] = gpu::load_vector<uint4>(x + 8 * threadIdx.x);
  __syncwarp();
  std::uint32_t plain[4], transposed[4];
  gpu::load_matrices_4(plain, &rows[threadIdx.x]);
  gpu::load_matrices_4_transposed(transposed, &rows[threadIdx.x]);
  for (unsigned m = 0; m < 4; ++m) {
    out[64 * m + threadIdx.x] = plain[m];
    out[64 * m + 32 + threadIdx.x] = transposed[m];
  }
}

TEST(CudaEmulator, LoadMatrices) {
  alignas(16) std::uint16_t x[256];
  std::iota(x, x + 256, std::uint16_t{0});
  std::vector<std::uint32_t> out(256);
  gpu::Launcher launch;
  launch(plain_and_transposed_kernel, 1, 32, 0, x, out.data());
  for (std::uint32_t m = 0; m < 4; ++m) {
    for (std::uint32_t lane = 0; lane < 32; ++lane) {
      const std::uint32_t group = lane / 4, pair = 2 * (lane % 4), plain = 64 * m + 8 * group + pair,
                          low = 64 * m + 8 * pair + group;
      EXPECT_EQ(out[64 * m + lane], plain | (plain + 1) << 16);
      EXPECT_EQ(out[64 * m + 32 + lane], low | (low + 8) << 16);
    }
  }
}

// ---- conversions

__global__ void convert_kernel(const float* x, unsigned n, std::uint32_t* bf16, std::uint32_t* f16, float* back) {
  const unsigned i = threadIdx.x;
  if (2 * i + 1 >= n) return;
  bf16[i] = gpu::Bf16::narrow_pair(x[2 * i], x[2 * i + 1]);
  f16[i] = gpu::F16::narrow_pair(x[2 * i], x[2 * i + 1]);
  back[2 * i] = gpu::Bf16::widen_pair(bf16[i]).x;
  back[2 * i + 1] = gpu::F16::widen_pair(f16[i]).y;
}

TEST(CudaEmulator, Conversions) {
  const std::vector<float> x = {1.0f, -2.5f, 1e-30f, 70000.0f, 0.333333f, 65519.0f};
  std::vector<std::uint32_t> bf16(3), f16(3);
  std::vector<float> back(6);
  gpu::Launcher launch;
  launch(convert_kernel, 1, 4, 0, x.data(), 6u, bf16.data(), f16.data(), back.data());
  for (std::size_t i = 0; i < 6; ++i) {
    EXPECT_EQ(bf16[i / 2] >> (16 * (i % 2)) & 0xffff, float_to_bf16(x[i]));
    EXPECT_EQ(f16[i / 2] >> (16 * (i % 2)) & 0xffff, float_to_f16(x[i]));
    EXPECT_EQ(back[i], i % 2 ? f16_to_float(float_to_f16(x[i])) : bf16_to_float(float_to_bf16(x[i])));
  }
}

TEST(CudaEmulator, RefusesWhatCannotBeLaunched) {
  gpu::Launcher launch;
  EXPECT_THROW(launch(half_barrier_kernel, 1, 1025, 0), Error);
  EXPECT_THROW(launch(half_barrier_kernel, dim3(1, 70000), 32, 0), Error);
}

}  // namespace
}  // namespace tandem
