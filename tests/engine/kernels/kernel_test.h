// What the kernel tests share: one run per instruction set, random data, comparisons.
#pragma once

#include <cmath>
#include <cstring>
#include <gtest/gtest.h>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "engine/kernels/convert.h"
#include "engine/kernels/isa.h"
#include "engine/kernels/tensor.h"

namespace tandem {

inline constexpr float kInfinity = std::numeric_limits<float>::infinity();

/// Runs each case once per instruction set that this CPU supports.
class IsaTest : public ::testing::TestWithParam<Isa> {
 protected:
  void SetUp() override {
    if (!isa_supported(GetParam())) GTEST_SKIP() << "this CPU lacks " << to_string(GetParam());
    scope_ = std::make_unique<ScopedIsa>(GetParam());
  }

 private:
  std::unique_ptr<ScopedIsa> scope_;
};
inline std::string isa_name(const ::testing::TestParamInfo<Isa>& info) {
  return to_string(info.param);
}
#define TANDEM_EACH_ISA(suite) INSTANTIATE_TEST_SUITE_P(Isa, suite, ::testing::ValuesIn(kIsas), isa_name)

/// Runs each case once per instruction set that this CPU supports and stored type.
class IsaAndTypeTest : public ::testing::TestWithParam<std::tuple<Isa, DType>> {
 protected:
  void SetUp() override {
    const Isa isa = std::get<0>(GetParam());
    if (!isa_supported(isa)) GTEST_SKIP() << "this CPU lacks " << to_string(isa);
    scope_ = std::make_unique<ScopedIsa>(isa);
  }
  static DType type() { return std::get<1>(GetParam()); }

 private:
  std::unique_ptr<ScopedIsa> scope_;
};
inline std::string isa_and_type_name(const ::testing::TestParamInfo<std::tuple<Isa, DType>>& info) {
  return std::string(to_string(std::get<0>(info.param))) + "_" + to_string(std::get<1>(info.param));
}
#define TANDEM_EACH_ISA_AND_TYPE(suite)                                                                       \
  INSTANTIATE_TEST_SUITE_P(                                                                                   \
      Isa, suite,                                                                                             \
      ::testing::Combine(::testing::ValuesIn(kIsas), ::testing::Values(DType::f32, DType::f16, DType::bf16)), \
      isa_and_type_name)

class Random {
 public:
  explicit Random(unsigned seed) : engine_(seed) {}
  float normal() { return normal_(engine_); }
  std::uint32_t below(std::uint32_t n) { return static_cast<std::uint32_t>(engine_() % n); }
  std::vector<float> normals(std::size_t n, float scale = 1) {
    std::vector<float> values(n);
    for (float& value : values) value = scale * normal();
    return values;
  }

 private:
  std::mt19937 engine_;
  std::normal_distribution<float> normal_;
};

/// A matrix of a stored type that owns its bytes, which start `offset` elements into an allocation.
struct Stored {
  Stored(const std::vector<float>& values, DType type, std::uint32_t rows, std::uint32_t cols, std::size_t offset = 0)
      : bytes((values.size() + offset) * size_of(type)), view{bytes.data() + offset * size_of(type), type, rows, cols} {
    for (std::size_t i = 0; i < values.size(); ++i) {
      char* at = bytes.data() + (offset + i) * size_of(type);
      const std::uint16_t half = type == DType::f16 ? float_to_f16(values[i]) : float_to_bf16(values[i]);
      if (type == DType::f32)
        std::memcpy(at, &values[i], 4);
      else
        std::memcpy(at, &half, 2);
    }
  }
  std::vector<char> bytes;
  MatrixView view;
};

/// An array of a stored type, and its values as f32, which `set` keeps in step (writing to data() does not).
class StoredArray {
 public:
  StoredArray(const std::vector<float>& values, DType type)
      : type_(type), bytes_(values.size() * size_of(type)), values_(values.size()) {
    from_f32(values.data(), type, values.size(), bytes_.data());
    to_f32(bytes_.data(), type, 0, values.size(), values_.data());
  }
  const std::vector<float>& values() const { return values_; }
  const void* at(std::size_t i) const { return bytes_.data() + i * size_of(type_); }
  void* data(std::size_t i = 0) { return bytes_.data() + i * size_of(type_); }
  void set(std::size_t i, float value) {
    from_f32(&value, type_, 1, bytes_.data() + i * size_of(type_));
    values_[i] = load_element(bytes_.data(), type_, i);
  }

 private:
  DType type_;
  std::vector<char> bytes_;
  std::vector<float> values_;
};

inline bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

inline void expect_near(const std::vector<float>& actual, const std::vector<float>& expected, double tolerance) {
  ASSERT_EQ(actual.size(), expected.size());
  for (std::size_t i = 0; i < actual.size(); ++i)
    ASSERT_NEAR(actual[i], expected[i], tolerance * std::max(1.0, std::fabs(double{expected[i]}))) << "at " << i;
}

}  // namespace tandem
