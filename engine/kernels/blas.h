// OpenBLAS: LAPACK's eigenvectors, and a product in f32 that benchmarks compare with. It is loaded at first use and
// only here. Linked, it would start a thread per further CPU in every program, and each spins for 20 to 40 ms (0.3.21).
#pragma once

#include <cstdint>
#include <string>

namespace tandem {

/// Version and kernels, such as "0.3.21 Cooperlake": it chooses the kernels by the CPU, or OPENBLAS_CORETYPE names
/// them, and others round differently. Empty where OpenBLAS cannot be loaded.
const std::string& blas_kernels();
/// InputError where it cannot be loaded.
void check_blas();

// Each call runs on the calling thread alone, and several threads may call at once. Throw InputError where OpenBLAS
// cannot be loaded.

/// Replaces `a` by its unit eigenvectors, one per row, by rising eigenvalue (dsyevd). All of `a` must be finite.
void blas_symmetric_eigen(double* a /*[n][n]*/, std::uint32_t n, double* values /*[n]*/);

/// y = x w^T in f32. The bits of a row of y may depend on n.
void blas_product(const float* x /*[n][in]*/, const float* w /*[out][in]*/, float* y /*[n][stride >= out]*/,
                  std::uint32_t n, std::uint32_t in, std::uint32_t out, std::uint32_t stride);

}  // namespace tandem
