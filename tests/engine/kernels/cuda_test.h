// What tests of CUDA kernels share. They are linked twice: with the emulation of tests/engine/kernels/cuda_emulator,
// which runs them on every machine, and in a build with CUDA with its twins, which say why they are skipped where
// there is no GPU.
#pragma once

#include <cstdlib>
#include <gtest/gtest.h>
#include <string>
#include <type_traits>
#include <vector>

#include "engine/device/cuda/runtime.h"
#include "tests/engine/kernels/kernel_test.h"

namespace tandem {

/// Memory of a real GPU begins as NaN too, unless the environment says otherwise (compute-sanitizer's initcheck looks
/// for reads of what was never written, and poison is a write).
inline const int kPoisonedMemory = setenv("TANDEM_POISON", "1", 0);

class CudaTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!cuda_missing().empty()) GTEST_SKIP() << cuda_missing();
  }
};

/// Runs each case once per stored type.
class CudaTypeTest : public ::testing::TestWithParam<DType> {
 protected:
  void SetUp() override {
    if (!cuda_missing().empty()) GTEST_SKIP() << cuda_missing();
  }
  static DType type() { return GetParam(); }
};
inline std::string type_name(const ::testing::TestParamInfo<DType>& info) {
  return to_string(info.param);
}
#define TANDEM_EACH_TYPE(suite) \
  INSTANTIATE_TEST_SUITE_P(Type, suite, ::testing::Values(DType::f32, DType::f16, DType::bf16), type_name)

/// An array in device memory.
template <class T>
class OnDevice {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  OnDevice() = default;
  explicit OnDevice(std::size_t count) : count_(count), memory_(count * sizeof(T)) {}
  explicit OnDevice(const std::vector<T>& values) : OnDevice(values.size()) { set(values); }
  T* data() const { return memory_.template as<T>(); }
  void set(const std::vector<T>& values) {
    cuda_copy(data(), values.data(), values.size() * sizeof(T), {});
    cuda_wait({});
  }
  /// What is there after everything in the default stream is done.
  std::vector<T> values() const { return first(count_); }
  /// The same of the first ones alone, where nobody has written the others.
  std::vector<T> first(std::size_t count) const {
    std::vector<T> out(count);
    cuda_copy(out.data(), data(), count * sizeof(T), {});
    cuda_wait({});
    return out;
  }

 private:
  std::size_t count_ = 0;
  CudaMemory memory_;
};

}  // namespace tandem
