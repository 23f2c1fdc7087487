// OpenBLAS as we load it: right when many threads call at once, without threads of its own.
#include "engine/kernels/blas.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <gtest/gtest.h>
#include <random>
#include <thread>
#include <vector>

#include "engine/kernels/thread_pool.h"
#include "engine/mechanisms/partial_key_index/kernels/skewed.h"

namespace tandem {
namespace {

std::size_t threads_of_process() {
  const std::filesystem::directory_iterator tasks("/proc/self/task");
  return static_cast<std::size_t>(std::distance(begin(tasks), end(tasks)));
}

std::vector<float> normals(std::size_t n, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(n);
  for (float& value : values) value = normal(random);
  return values;
}

/// Largest difference of y from the product in float64.
double error_of(const std::vector<float>& x, const std::vector<float>& w, const std::vector<float>& y, std::size_t n,
                std::size_t in, std::size_t out) {
  double most = 0;
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t o = 0; o < out; ++o) {
      double sum = 0;
      for (std::size_t d = 0; d < in; ++d) sum += double{x[i * in + d]} * double{w[o * in + d]};
      most = std::max(most, std::abs(sum - double{y[i * out + o]}));
    }
  }
  return most;
}

/// Symmetric, with eigenvalues that lie apart.
std::vector<double> symmetric(std::size_t n, std::uint32_t seed) {
  const auto x = normals(n * n, seed);
  std::vector<double> a(n * n);
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t j = 0; j < n; ++j) a[i * n + j] = double{x[i * n + j]} + double{x[j * n + i]};
  }
  return a;
}

TEST(Blas, StartsNoThreadAndNamesItsKernels) {
  const std::size_t before = threads_of_process();
  EXPECT_NE(blas_kernels().find(' '), std::string::npos) << blas_kernels();
  EXPECT_EQ(threads_of_process(), before);
  // Large enough for a library that may use threads to do so.
  const std::uint32_t n = 300, in = 200, out = 310;
  const auto x = normals(std::size_t{n} * in, 1), w = normals(std::size_t{out} * in, 2);
  std::vector<float> y(std::size_t{n} * out);
  blas_product(x.data(), w.data(), y.data(), n, in, out, out);
  EXPECT_LT(error_of(x, w, y, n, in, out), 1e-4);
  EXPECT_EQ(threads_of_process(), before);
}

// Debian's serial build fails this: up to 4 % of such products are wrong with four callers.
TEST(Blas, ProductsOfManyCallersAreRight) {
  const std::uint32_t n = 16, in = 64, out = 64;
  constexpr std::size_t kCallers = 8;
  std::vector<double> worst(kCallers);
  {
    std::vector<std::jthread> callers;
    callers.reserve(kCallers);
    for (std::size_t c = 0; c < kCallers; ++c)
      callers.emplace_back([&worst, c] {
        const auto seed = static_cast<std::uint32_t>(10 * c);
        const auto x = normals(n * in, seed), w = normals(out * in, seed + 1);
        std::vector<float> y(n * out);
        for (int round = 0; round < 200; ++round) {
          std::fill(y.begin(), y.end(), 9.0f);
          blas_product(x.data(), w.data(), y.data(), n, in, out, out);
          worst[c] = std::max(worst[c], error_of(x, w, y, n, in, out));
        }
      });
  }
  for (const double error : worst) EXPECT_LT(error, 1e-4);
}

TEST(Blas, EigenvectorsHaveTheSameBitsForAnyNumberOfThreads) {
  constexpr std::size_t kMatrices = 24, kSize = 64;
  std::vector<double> first;
  for (const unsigned threads : {1u, 2u, 5u}) {
    ThreadPool pool(threads);
    std::vector<double> vectors(kMatrices * kSize * kSize), values(kMatrices * kSize);
    pool.parallel_for(kMatrices, [&](std::size_t m) {
      std::vector<double> a = symmetric(kSize, static_cast<std::uint32_t>(m));
      symmetric_eigen(a.data(), kSize, vectors.data() + m * kSize * kSize, values.data() + m * kSize);
    });
    if (first.empty()) first = vectors;
    EXPECT_EQ(vectors, first) << threads << " threads";
  }
}

}  // namespace
}  // namespace tandem
