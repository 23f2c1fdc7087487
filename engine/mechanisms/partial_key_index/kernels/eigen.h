// Eigenvectors of a small symmetric matrix.
#pragma once

#include <cstdint>

namespace tandem {

/// By LAPACK (blas.h), in float64. vectors[i]: the unit eigenvector of the i-th largest eigenvalue, the larger of its
/// elements positive; values[i]: that eigenvalue. Of a matrix with elements that are not finite all are NaN. `a` is
/// destroyed.
void symmetric_eigen(double* a /*[n][n]*/, std::uint32_t n, double* vectors /*[n][n]*/, double* values /*[n]*/);

}  // namespace tandem
