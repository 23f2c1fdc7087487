// What a GPU's kernels are set beside, on the emulated device and with a product that only looks at its matrices.
#include "eval/kernels/gpu_limits.h"

#include <cstring>
#include <gtest/gtest.h>
#include <vector>

#include "engine/kernels/convert.h"

namespace tandem {
namespace {

/// The matrices of every product so far.
std::vector<std::vector<float>>& seen() {
  static std::vector<std::vector<float>> all;
  return all;
}

}  // namespace

// In the place of cuBLASLt.
struct LinearCuda::State {};
LinearCuda::LinearCuda() = default;
LinearCuda::~LinearCuda() = default;
void LinearCuda::operator()(const void* x, const MatrixView& w, const float*, void* y, DType y_type, std::uint32_t n,
                            CudaStream) {
  std::vector<float>& values = seen().emplace_back();
  for (std::size_t i = 0; i < std::size_t{n} * w.cols; ++i) values.push_back(load_element(x, w.type, i));
  for (std::size_t i = 0; i < std::size_t{w.rows} * w.cols; ++i) values.push_back(load_element(w.data, w.type, i));
  std::memset(y, 0, std::size_t{n} * w.rows * size_of(y_type));
}
void LinearCuda::add(const void*, const MatrixView&, float*, std::uint32_t, CudaStream) {
  ADD_FAILURE() << "nothing is added to";
}

namespace eval {
namespace {

KernelCase bound_by(Bound bound, Link link = Link::none) {
  KernelCase one;
  one.bound = bound;
  one.link = link;
  return one;
}

// A product of other numbers, such as zeros, takes another time: what was measured in between must not matter.
TEST(GpuLimits, EveryProductIsOfTheSameRandomNumbers) {
  seen().clear();
  ThreadPool pool(1);
  constexpr std::uint32_t kSize = 32;
  GpuLimits limits(pool, {1 << 15, 1 << 14, kSize});
  const KernelCase product = bound_by(Bound::bf16);
  EXPECT_GT(limits.of(product), 0);
  EXPECT_GT(limits.of(product), 0);
  EXPECT_GT(limits.of(bound_by(Bound::bytes)), 0);
  EXPECT_GT(limits.of(product), 0);
  for (const Link link : {Link::to_device, Link::to_host}) {
    EXPECT_GT(limits.of(bound_by(Bound::bytes, link)), 0);
    EXPECT_GT(limits.of(product), 0);
  }
  ASSERT_EQ(seen().size(), 6u) << "one warms up";
  const std::vector<float>& first = seen()[0];
  ASSERT_EQ(first.size(), std::size_t{2} * kSize * kSize);
  double squares = 0;
  for (const float value : first) squares += double{value} * double{value};
  EXPECT_NEAR(squares / static_cast<double>(first.size()), 1, 0.2);
  for (std::size_t i = 1; i < seen().size(); ++i) EXPECT_TRUE(seen()[i] == first) << "product " << i;
}

TEST(GpuLimits, RatesThatAreNotMeasuredAreZero) {
  ThreadPool pool(1);
  GpuLimits limits(pool, {1 << 12, 1 << 12, 8});
  EXPECT_EQ(limits.of(bound_by(Bound::f32)), 0);
  EXPECT_EQ(limits.of(bound_by(Bound::f64)), 0);
}

}  // namespace
}  // namespace eval
}  // namespace tandem
