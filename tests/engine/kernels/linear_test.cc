#include "engine/kernels/linear.h"

#include <bit>
#include <thread>

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

TEST_P(LinearTest, ReferenceAgreesWithAHandComputedProduct) {
  const Stored w({1, 2, 3, -1, 0.5f, 0}, DType::bf16, 2, 3);
  const std::vector<float> x = {1, 10, 100}, bias = {0.25f, -0.25f};
  std::vector<float> y(2);
  linear_reference(x.data(), w.view, bias.data(), y.data(), 1);
  EXPECT_EQ(y, (std::vector<float>{321.25f, 3.75f}));
}

TEST_P(LinearTest, ARowDependsOnItselfAlone) {
  Random random(2);
  for (const DType type : kTypes) {
    const std::uint32_t in = 200 + random.below(50), out = 333, most = 21;
    const Stored w(random.normals(std::size_t{in} * out), type, out, in);
    const auto x = random.normals(std::size_t{most} * in), bias = random.normals(out);
    std::vector<std::vector<float>> alone(most, std::vector<float>(out));
    ThreadPool one(1);
    for (std::uint32_t r = 0; r < most; ++r)
      linear(one, x.data() + std::size_t{r} * in, w.view, bias.data(), alone[r].data(), 1);
    for (const unsigned threads : {1u, 2u, 3u, 7u}) {
      ThreadPool pool(threads);
      for (const std::uint32_t n : {2u, 3u, 4u, 5u, 7u, 8u, 9u, 16u, 21u}) {
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
  const Stored w(random.normals(std::size_t{in} * out), DType::f16, out, in);
  const auto x = random.normals(std::size_t{n} * in);
  std::vector<float> first;
  for (const unsigned threads : {1u, 2u, 3u, 7u}) {
    ThreadPool pool(threads);
    for (int round = 0; round < 3; ++round) {
      std::vector<float> y(std::size_t{n} * out);
      linear_prefill(pool, x.data(), w.view, nullptr, y.data(), n);
      if (first.empty()) first = y;
      ASSERT_TRUE(same_bits(y, first)) << threads << " threads";
    }
  }
}

TEST_P(LinearTest, APrefillRowDependsOnItselfAlone) {
  Random random(5);
  const std::uint32_t in = 300, out = 70, n = 530;
  const Stored w(random.normals(std::size_t{in} * out), DType::bf16, out, in);
  const auto x = random.normals(std::size_t{n} * in);
  ThreadPool pool(2);
  std::vector<float> all(std::size_t{n} * out), part(all.size());
  linear_prefill(pool, x.data(), w.view, nullptr, all.data(), n);
  for (std::uint32_t first = 0; first < n;) {
    const std::uint32_t rows = std::min(1 + random.below(90), n - first);
    linear_prefill(pool, x.data() + std::size_t{first} * in, w.view, nullptr, part.data() + std::size_t{first} * out,
                   rows);
    first += rows;
  }
  EXPECT_TRUE(same_bits(part, all));
}

// Scratch memory must not be shared between callers: a BLAS library failed this test.
TEST(LinearPrefill, ServesSeveralCallersAtOnce) {
  Random random(4);
  const std::uint32_t in = 64, out = 256, n = 16;
  const Stored w(random.normals(std::size_t{in} * out), DType::f32, out, in);
  const auto x = random.normals(std::size_t{n} * in);
  ThreadPool pool(2);
  std::vector<float> expected(std::size_t{n} * out);
  linear_prefill(pool, x.data(), w.view, nullptr, expected.data(), n);
  std::vector<int> wrong(4, 0);
  {
    std::vector<std::jthread> callers;
    for (int& mine : wrong)
      callers.emplace_back([&] {
        for (int round = 0; round < 50; ++round) {
          std::vector<float> y(expected.size());
          linear_prefill(pool, x.data(), w.view, nullptr, y.data(), n);
          mine += !same_bits(y, expected);
        }
      });
  }
  EXPECT_EQ(wrong, std::vector<int>(4, 0));
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
  linear(pool, nullptr, w.view, nullptr, nullptr, 0);
  linear_prefill(pool, nullptr, w.view, nullptr, nullptr, 0);
}

}  // namespace
}  // namespace tandem
