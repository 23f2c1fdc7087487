// Eigenvectors of a small symmetric matrix.
#pragma once

#include <cstdint>

namespace tandem {

/// Cyclic Jacobi rotations in float64 until nothing off the diagonal matters (1e-12 of the norm). `a` is destroyed.
/// vectors[i]: the unit eigenvector of the i-th largest eigenvalue; values[i]: that eigenvalue.
void symmetric_eigen(double* a /*[n][n]*/, std::uint32_t n, double* vectors /*[n][n]*/, double* values /*[n]*/);

}  // namespace tandem
