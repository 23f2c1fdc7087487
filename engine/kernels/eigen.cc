#include "engine/kernels/eigen.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

namespace tandem {
namespace {

/// One rotation in the plane of rows p and q that makes a[p][q] zero.
void rotate(double* a, double* v, std::uint32_t n, std::uint32_t p, std::uint32_t q) {
  const double off = a[p * n + q];
  if (off == 0) return;
  const double theta = (a[q * n + q] - a[p * n + p]) / (2 * off);
  const double t = (theta >= 0 ? 1.0 : -1.0) / (std::abs(theta) + std::sqrt(theta * theta + 1));
  const double c = 1 / std::sqrt(t * t + 1), s = t * c;
  for (std::uint32_t k = 0; k < n; ++k) {
    const double x = a[k * n + p], y = a[k * n + q];
    a[k * n + p] = c * x - s * y;
    a[k * n + q] = s * x + c * y;
  }
  for (std::uint32_t k = 0; k < n; ++k) {
    const double x = a[p * n + k], y = a[q * n + k];
    a[p * n + k] = c * x - s * y;
    a[q * n + k] = s * x + c * y;
    const double vx = v[p * n + k], vy = v[q * n + k];
    v[p * n + k] = c * vx - s * vy;
    v[q * n + k] = s * vx + c * vy;
  }
}

}  // namespace

void symmetric_eigen(double* a, std::uint32_t n, double* vectors, double* values) {
  std::vector<double> v(std::size_t{n} * n);  // rows: eigenvectors as they turn
  for (std::uint32_t i = 0; i < n; ++i) v[i * n + i] = 1;
  const double norm = std::sqrt(std::inner_product(a, a + std::size_t{n} * n, a, 0.0));
  for (int sweep = 0; sweep < 60; ++sweep) {
    double off = 0;
    for (std::uint32_t p = 0; p < n; ++p) {
      for (std::uint32_t q = p + 1; q < n; ++q) off += 2 * a[p * n + q] * a[p * n + q];
    }
    if (std::sqrt(off) <= 1e-12 * norm) break;
    for (std::uint32_t p = 0; p < n; ++p) {
      for (std::uint32_t q = p + 1; q < n; ++q) rotate(a, v.data(), n, p, q);
    }
  }
  std::vector<std::uint32_t> order(n);
  std::iota(order.begin(), order.end(), 0u);
  std::stable_sort(order.begin(), order.end(),
                   [&](std::uint32_t x, std::uint32_t y) { return a[x * n + x] > a[y * n + y]; });
  for (std::uint32_t i = 0; i < n; ++i) {
    values[i] = a[order[i] * n + order[i]];
    std::copy_n(v.data() + std::size_t{order[i]} * n, n, vectors + std::size_t{i} * n);
  }
}

}  // namespace tandem
