#include "engine/mechanisms/partial_key_index/kernels/eigen.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "engine/kernels/blas.h"

namespace tandem {
namespace {

/// The sign of the largest element. Of elements equally large but for rounding the first decides.
double sign_of(const double* x, std::uint32_t n) {
  double most = 0;
  for (std::uint32_t i = 0; i < n; ++i) most = std::max(most, std::abs(x[i]));
  const double* const first = std::find_if(x, x + n, [&](double v) { return std::abs(v) >= most * (1 - 1e-6); });
  return *first < 0 ? -1 : 1;
}

}  // namespace

void symmetric_eigen(double* a, std::uint32_t n, double* vectors, double* values) {
  const std::size_t elements = std::size_t{n} * n;
  if (!std::all_of(a, a + elements, [](double x) { return std::isfinite(x); })) {
    std::fill_n(vectors, elements, std::numeric_limits<double>::quiet_NaN());
    std::fill_n(values, n, std::numeric_limits<double>::quiet_NaN());
    return;
  }
  std::vector<double> rising(n);
  blas_symmetric_eigen(a, n, rising.data());
  std::vector<std::uint32_t> order(n);
  std::iota(order.begin(), order.end(), 0u);
  std::stable_sort(order.begin(), order.end(), [&](std::uint32_t x, std::uint32_t y) { return rising[x] > rising[y]; });
  for (std::uint32_t i = 0; i < n; ++i) {
    values[i] = rising[order[i]];
    const double* const from = a + std::size_t{order[i]} * n;
    const double sign = sign_of(from, n);
    std::transform(from, from + n, vectors + std::size_t{i} * n, [sign](double x) { return sign * x; });
  }
}

}  // namespace tandem
