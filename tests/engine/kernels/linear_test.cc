#include "engine/kernels/linear.h"

#include <bit>
#include <limits>
#include <thread>
#include <utility>

#include "tests/engine/kernels/kernel_test.h"

namespace tandem {
namespace {

constexpr DType kTypes[] = {DType::f32, DType::f16, DType::bf16};

TEST(Convert, EveryF16AndBf16SurvivesARoundTrip) {
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    const auto half = static_cast<std::uint16_t>(bits);
    const float f16 = f16_to_float(half), bf16 = bf16_to_float(half);
    if (std::isnan(f16)) {
      EXPECT_TRUE(std::isnan(f16_to_float(float_to_f16(f16))));
    } else {
      ASSERT_EQ(float_to_f16(f16), half);
      const int exponent = static_cast<int>(bits >> 10 & 31), mantissa = static_cast<int>(bits & 1023);
      const double magnitude = exponent == 31  ? INFINITY
                               : exponent == 0 ? std::ldexp(mantissa, -24)
                                               : std::ldexp(1024 + mantissa, exponent - 25);
      ASSERT_EQ(f16, bits & 0x8000 ? -magnitude : magnitude);
    }
    if (std::isnan(bf16))
      EXPECT_TRUE(std::isnan(bf16_to_float(float_to_bf16(bf16))));
    else
      ASSERT_EQ(float_to_bf16(bf16), half);
  }
}

TEST(Convert, RoundsToNearestTiesToEven) {
  for (std::uint32_t bits = 0; bits < 0x7bff; ++bits) {  // neighbours below the largest finite f16
    const float low = f16_to_float(static_cast<std::uint16_t>(bits)),
                high = f16_to_float(static_cast<std::uint16_t>(bits + 1));
    const float middle = low + (high - low) / 2;  // exact
    ASSERT_EQ(float_to_f16(middle), bits + (bits & 1));
    ASSERT_EQ(float_to_f16(std::nextafter(middle, low)), bits);
    ASSERT_EQ(float_to_f16(std::nextafter(middle, high)), bits + 1);
  }
  EXPECT_EQ(float_to_f16(65519.996f), 0x7bff);
  EXPECT_EQ(float_to_f16(65520.0f), 0x7c00);
  for (std::uint32_t bits = 0; bits < 0x7f7f; bits += 3) {
    const std::uint32_t middle = bits << 16 | 0x8000u;
    ASSERT_EQ(float_to_bf16(std::bit_cast<float>(middle)), bits + (bits & 1));
    ASSERT_EQ(float_to_bf16(std::bit_cast<float>(middle - 1)), bits);
    ASSERT_EQ(float_to_bf16(std::bit_cast<float>(middle + 1)), bits + 1);
  }
}

/// The oracle: float64 accumulation in index order.
void linear_reference(const float* x, const MatrixView& w, const float* bias, float* y, std::uint32_t n) {
  for (std::uint32_t i = 0; i < n; ++i) {
    for (std::uint32_t o = 0; o < w.rows; ++o) {
      double total = 0;
      for (std::uint32_t j = 0; j < w.cols; ++j)
        total +=
            double{x[std::size_t{w.cols} * i + j]} * double{load_element(w.data, w.type, std::size_t{w.cols} * o + j)};
      y[std::size_t{w.rows} * i + o] = static_cast<float>(total + (bias ? double{bias[o]} : 0.0));
    }
  }
}

class LinearTest : public IsaTest {};
TANDEM_EACH_ISA(LinearTest);

TEST_P(LinearTest, WidensEveryF16AndBf16Exactly) {
  std::vector<std::uint16_t> bits(65536);
  for (std::size_t i = 0; i < bits.size(); ++i) bits[i] = static_cast<std::uint16_t>(i);
  for (const DType type : {DType::f16, DType::bf16}) {
    std::vector<float> wide(bits.size() - 3);
    to_f32(bits.data(), type, 3, wide.size(), wide.data());  // an odd start and a tail
    for (std::size_t i = 0; i < wide.size(); ++i) {
      const float expected = load_element(bits.data(), type, i + 3);
      if (std::isnan(expected))
        ASSERT_TRUE(std::isnan(wide[i])) << i;
      else
        ASSERT_EQ(std::bit_cast<std::uint32_t>(wide[i]), std::bit_cast<std::uint32_t>(expected)) << i;
    }
  }
}

TEST_P(LinearTest, AgreesWithFloat64) {
  Random random(1);
  ThreadPool pool(2);
  for (int round = 0; round < 40; ++round) {
    const std::uint32_t in = 1 + random.below(300), out = 1 + random.below(150), n = 1 + random.below(20);
    const Stored w(random.normals(std::size_t{in} * out), kTypes[round % 3], out, in, round % 2);
    const auto x = random.normals(std::size_t{n} * in), bias = random.normals(out);
    const float* b = round % 5 == 0 ? nullptr : bias.data();
    std::vector<float> expected(std::size_t{n} * out), fast(expected.size()), prefill(expected.size());
    linear_reference(x.data(), w.view, b, expected.data(), n);
    linear(pool, x.data(), w.view, b, fast.data(), n);
    linear_prefill(pool, x.data(), w.view, b, prefill.data(), n);
    expect_near(fast, expected, 1e-4);
    expect_near(prefill, expected, 1e-4);
  }
}

std::vector<float> rounded(std::vector<float> values) {
  for (float& value : values) value = bf16_to_float(float_to_bf16(value));
  return values;
}

// Shapes beyond a slice of `in`, a part of the rows and a panel of columns.
TEST_P(LinearTest, LargeShapesAgreeWithFloat64) {
  Random random(6);
  ThreadPool pool(2);
  const struct {
    std::uint32_t in, out, n;
  } shapes[] = {{2500, 70, 7}, {1024, 129, 8}, {1025, 9, 13}, {40, 65, 1100},
                {33, 3, 517},  {2049, 64, 12}, {5130, 67, 37}};
  for (const auto& [in, out, n] : shapes)
    for (const DType type : kTypes) {
      const Stored w(random.normals(std::size_t{in} * out), type, out, in, 1);
      const auto x = random.normals(std::size_t{n} * in), bias = random.normals(out);
      std::vector<float> expected(std::size_t{n} * out), y(expected.size());
      linear_reference(x.data(), w.view, bias.data(), expected.data(), n);
      linear(pool, x.data(), w.view, bias.data(), y.data(), n);
      expect_near(y, expected, 3e-4);
      linear_prefill(pool, x.data(), w.view, bias.data(), y.data(), n);
      expect_near(y, expected, 3e-4);
      linear_reference(rounded(x).data(), w.view, bias.data(), expected.data(), n);
      linear_prefill_bf16(pool, x.data(), w.view, bias.data(), y.data(), n);
      expect_near(y, expected, 3e-4);
    }
}

TEST_P(LinearTest, RoundedPrefillIsTheProductOfRoundedRows) {
  Random random(7);
  ThreadPool pool(2);
  for (int round = 0; round < 60; ++round) {
    const std::uint32_t in = 1 + random.below(300), out = 1 + random.below(150), n = 1 + random.below(40);
    const Stored w(random.normals(std::size_t{in} * out), round % 2 ? DType::bf16 : kTypes[round / 2 % 3], out, in,
                   round % 4 / 2);
    const auto x = random.normals(std::size_t{n} * in), bias = random.normals(out);
    const float* b = round % 5 == 0 ? nullptr : bias.data();
    std::vector<float> expected(std::size_t{n} * out), y(expected.size());
    linear_reference(rounded(x).data(), w.view, b, expected.data(), n);
    linear_prefill_bf16(pool, x.data(), w.view, b, y.data(), n);
    expect_near(y, expected, 1e-4);
  }
}

// One weight of 1 and 2^12 values of x that lie on, just below and just above the middle between two bf16.
TEST_P(LinearTest, RoundedPrefillRoundsToNearestTiesToEven) {
  std::vector<float> x;
  for (std::uint32_t bits = 0x0080; bits < 0x7f00; bits += 23)
    for (const std::uint32_t low : {0x7fffu, 0x8000u, 0x8001u, 0u})
      for (const std::uint32_t sign : {0u, 0x8000u}) x.push_back(std::bit_cast<float>((bits | sign) << 16 | low));
  ThreadPool pool(1);
  const Stored one({1}, DType::bf16, 1, 1);
  std::vector<float> y(x.size());
  linear_prefill_bf16(pool, x.data(), one.view, nullptr, y.data(), static_cast<std::uint32_t>(x.size()));
  const auto expected = rounded(x);
  for (std::size_t i = 0; i < x.size(); ++i) ASSERT_EQ(y[i], expected[i]) << x[i];
  const std::vector<float> special = {INFINITY, -INFINITY, NAN, std::numeric_limits<float>::max()};
  y.resize(special.size());
  linear_prefill_bf16(pool, special.data(), one.view, nullptr, y.data(), 4);
  EXPECT_EQ(y[0], INFINITY);
  EXPECT_EQ(y[1], -INFINITY);
  EXPECT_TRUE(std::isnan(y[2]));
  EXPECT_EQ(y[3], INFINITY);
}

TEST_P(LinearTest, ReferenceAgreesWithAHandComputedProduct) {
  const Stored w({1, 2, 3, -1, 0.5f, 0}, DType::bf16, 2, 3);
  const std::vector<float> x = {1, 10, 100}, bias = {0.25f, -0.25f};
  std::vector<float> y(2);
  linear_reference(x.data(), w.view, bias.data(), y.data(), 1);
  EXPECT_EQ(y, (std::vector<float>{321.25f, 3.75f}));
}

TEST_P(LinearTest, ARowDependsOnItselfAlone) {
  Random random(2);
  for (const auto& [type, columns] : {std::pair{DType::f32, 221u},
                                      {DType::f16, 207u},
                                      {DType::bf16, 200u},
                                      {DType::bf16, 1100u},
                                      {DType::f32, 1029u}}) {
    const std::uint32_t in = columns, out = 333, most = 21;
    const Stored w(random.normals(std::size_t{in} * out), type, out, in);
    const auto x = random.normals(std::size_t{most} * in), bias = random.normals(out);
    std::vector<std::vector<float>> alone(most, std::vector<float>(out));
    ThreadPool one(1);
    for (std::uint32_t r = 0; r < most; ++r)
      linear(one, x.data() + std::size_t{r} * in, w.view, bias.data(), alone[r].data(), 1);
    for (const unsigned threads : {1u, 2u, 3u, 7u}) {
      ThreadPool pool(threads);
      for (const std::uint32_t n : {2u, 3u, 4u, 5u, 6u, 7u, 8u, 9u, 16u, 21u}) {
        std::vector<std::uint32_t> rows(n);  // any rows in any order
        std::vector<float> batch, y(std::size_t{n} * out);
        for (auto& row : rows) {
          row = random.below(most);
          batch.insert(batch.end(), x.begin() + std::ptrdiff_t{row} * in, x.begin() + std::ptrdiff_t{row + 1} * in);
        }
        linear(pool, batch.data(), w.view, bias.data(), y.data(), n);
        for (std::uint32_t i = 0; i < n; ++i)
          ASSERT_TRUE(same_bits({y.begin() + std::ptrdiff_t{i} * out, y.begin() + std::ptrdiff_t{i + 1} * out},
                                alone[rows[i]]));
      }
    }
  }
}

TEST_P(LinearTest, PrefillDoesNotDependOnThreads) {
  Random random(3);
  const std::uint32_t in = 96, out = 2100, n = 33;
  const auto values = random.normals(std::size_t{in} * out);
  const Stored w(values, DType::f16, out, in), bf16(values, DType::bf16, out, in);
  const auto x = random.normals(std::size_t{n} * in);
  std::vector<float> first;
  for (const unsigned threads : {1u, 2u, 3u, 7u}) {
    ThreadPool pool(threads);
    for (int round = 0; round < 3; ++round) {
      std::vector<float> y(2 * std::size_t{n} * out);
      linear_prefill(pool, x.data(), w.view, nullptr, y.data(), n);
      linear_prefill_bf16(pool, x.data(), bf16.view, nullptr, y.data() + std::size_t{n} * out, n);
      if (first.empty()) first = y;
      ASSERT_TRUE(same_bits(y, first)) << threads << " threads";
    }
  }
}

TEST_P(LinearTest, APrefillRowDependsOnItselfAlone) {
  Random random(5);
  const std::uint32_t in = 1100, out = 70, n = 1050;
  const Stored w(random.normals(std::size_t{in} * out), DType::bf16, out, in);
  const auto x = random.normals(std::size_t{n} * in);
  ThreadPool pool(2);
  for (const auto product : {linear_prefill, linear_prefill_bf16}) {
    std::vector<float> all(std::size_t{n} * out), part(all.size());
    product(pool, x.data(), w.view, nullptr, all.data(), n);
    for (std::uint32_t first = 0; first < n;) {
      const std::uint32_t rows = std::min(1 + random.below(190), n - first);
      product(pool, x.data() + std::size_t{first} * in, w.view, nullptr, part.data() + std::size_t{first} * out, rows);
      first += rows;
    }
    EXPECT_TRUE(same_bits(part, all));
  }
}

// Scratch memory must not be shared between callers: a BLAS library failed this test.
TEST(LinearPrefill, ServesSeveralCallersAtOnce) {
  Random random(4);
  const std::uint32_t in = 64, out = 256, n = 16;
  const Stored w(random.normals(std::size_t{in} * out), DType::bf16, out, in);
  const auto x = random.normals(std::size_t{n} * in);
  ThreadPool pool(2);
  for (const auto product : {linear, linear_prefill, linear_prefill_bf16}) {
    std::vector<float> expected(std::size_t{n} * out);
    product(pool, x.data(), w.view, nullptr, expected.data(), n);
    std::vector<int> wrong(4, 0);
    {
      std::vector<std::jthread> callers;
      for (int& mine : wrong)
        callers.emplace_back([&] {
          for (int round = 0; round < 50; ++round) {
            std::vector<float> y(expected.size());
            product(pool, x.data(), w.view, nullptr, y.data(), n);
            mine += !same_bits(y, expected);
          }
        });
    }
    EXPECT_EQ(wrong, std::vector<int>(4, 0));
  }
}

TEST_P(LinearTest, EmptyShapes) {
  ThreadPool pool(2);
  const Stored w({}, DType::f32, 3, 0);
  std::vector<float> y(6, 9.0f);
  const std::vector<float> bias = {1, 2, 3};
  linear(pool, nullptr, w.view, bias.data(), y.data(), 2);
  EXPECT_EQ(y, (std::vector<float>{1, 2, 3, 1, 2, 3}));
  std::fill(y.begin(), y.end(), 9.0f);
  linear_prefill(pool, y.data(), w.view, bias.data(), y.data(), 2);
  EXPECT_EQ(y, (std::vector<float>{1, 2, 3, 1, 2, 3}));
  std::fill(y.begin(), y.end(), 9.0f);
  const Stored bf16({}, DType::bf16, 3, 0);
  linear_prefill_bf16(pool, y.data(), bf16.view, bias.data(), y.data(), 2);
  EXPECT_EQ(y, (std::vector<float>{1, 2, 3, 1, 2, 3}));
  linear_prefill_bf16(pool, nullptr, bf16.view, nullptr, nullptr, 0);
  linear(pool, nullptr, w.view, nullptr, nullptr, 0);
  linear_prefill(pool, nullptr, w.view, nullptr, nullptr, 0);
}

}  // namespace
}  // namespace tandem
