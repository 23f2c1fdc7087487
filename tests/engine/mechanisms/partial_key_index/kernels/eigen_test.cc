#include <cmath>
#include <gtest/gtest.h>
#include <limits>
#include <random>
#include <vector>

#include "engine/mechanisms/partial_key_index/kernels/skewed.h"

namespace tandem {
namespace {

void expect_decomposition(const std::vector<double>& matrix, std::uint32_t n) {
  std::vector<double> a = matrix, vectors(n * n), values(n);
  symmetric_eigen(a.data(), n, vectors.data(), values.data());
  double scale = 0;
  for (const double x : matrix) scale = std::max(scale, std::abs(x));
  for (std::uint32_t i = 0; i < n; ++i) {
    if (i > 0) {
      EXPECT_GE(values[i - 1], values[i]);
    }
    for (std::uint32_t j = 0; j < n; ++j) {
      double dot = 0, image = 0;
      for (std::uint32_t k = 0; k < n; ++k) {
        dot += vectors[i * n + k] * vectors[j * n + k];
        image += matrix[j * n + k] * vectors[i * n + k];
      }
      EXPECT_NEAR(dot, i == j ? 1 : 0, 1e-11);
      EXPECT_NEAR(image, values[i] * vectors[i * n + j], 1e-10 * scale * n);
    }
  }
}

TEST(Eigen, VectorsAreOrthonormalAndKeepTheirDirection) {
  std::mt19937 random(3);
  std::normal_distribution<double> normal;
  for (const std::uint32_t n : {1u, 2u, 5u, 16u, 64u, 128u}) {
    std::vector<double> x(n * n), gram(n * n);
    for (double& value : x) value = normal(random);
    for (std::uint32_t i = 0; i < n; ++i) {
      for (std::uint32_t j = 0; j < n; ++j) {
        for (std::uint32_t k = 0; k < n; ++k) gram[i * n + j] += x[k * n + i] * x[k * n + j];
      }
    }
    expect_decomposition(gram, n);
  }
  expect_decomposition({0, 0, 0, 0}, 2);                 // no direction at all
  expect_decomposition({2, 0, 0, 0, 2, 0, 0, 0, 2}, 3);  // all the same
  expect_decomposition({1, 1, 1, 1}, 2);                 // rank 1
}

TEST(Eigen, ATwoByTwoMatrixByHand) {
  std::vector<double> a = {2, 1, 1, 2}, vectors(4), values(2);
  symmetric_eigen(a.data(), 2, vectors.data(), values.data());
  EXPECT_NEAR(values[0], 3, 1e-12);
  EXPECT_NEAR(values[1], 1, 1e-12);
  EXPECT_NEAR(vectors[0], std::sqrt(0.5), 1e-12);
  EXPECT_NEAR(vectors[1], std::sqrt(0.5), 1e-12);
  EXPECT_NEAR(vectors[2], std::sqrt(0.5), 1e-12);  // of two equal elements the first is positive
  EXPECT_NEAR(vectors[3], -std::sqrt(0.5), 1e-12);
}

TEST(Eigen, TheLargestElementIsPositiveAndEqualValuesKeepTheirOrder) {
  std::vector<double> a = {5, -4, 0, -4, 5, 0, 0, 0, 1}, vectors(9), values(3);
  symmetric_eigen(a.data(), 3, vectors.data(), values.data());
  EXPECT_NEAR(vectors[0], std::sqrt(0.5), 1e-12);
  EXPECT_NEAR(vectors[1], -std::sqrt(0.5), 1e-12);
  a.assign(9, 0);
  symmetric_eigen(a.data(), 3, vectors.data(), values.data());
  EXPECT_EQ(vectors, (std::vector<double>{1, 0, 0, 0, 1, 0, 0, 0, 1}));
}

TEST(Eigen, NumbersThatAreNotFiniteGiveNone) {
  for (const double bad : {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    std::vector<double> a = {1, bad, bad, 1}, vectors(4), values(2);
    symmetric_eigen(a.data(), 2, vectors.data(), values.data());
    for (const double x : vectors) EXPECT_TRUE(std::isnan(x));
    for (const double x : values) EXPECT_TRUE(std::isnan(x));
  }
}

}  // namespace
}  // namespace tandem
