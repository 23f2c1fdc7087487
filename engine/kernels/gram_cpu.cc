// Gram matrices in double precision: tiles of the sums stay in registers while the rows pass.
#include "engine/kernels/kernels_cpu.h"
#include "engine/kernels/vec.h"

namespace tandem::TANDEM_ISA_NAMESPACE {
namespace {

constexpr uint32_t kDoubles = kWidth / 2;                // per vector
constexpr uint32_t kVectors = kGramColumns / kDoubles;   // per tile, across
constexpr uint32_t kTileRows = kGramColumns / kVectors;  // eight vectors of sums in all
typedef double vd __attribute__((vector_size(8 * kDoubles)));
typedef vd vd_unaligned __attribute__((aligned(8), may_alias));

TANDEM_INLINE vd load_doubles(const double* p) {
  return *reinterpret_cast<const vd_unaligned*>(p);
}

}  // namespace

void add_gram(const double* x, uint32_t n, uint32_t dim, double* gram) {
  for (uint32_t i = 0; i < dim; i += kTileRows) {
    for (uint32_t j = 0; j <= i; j += kGramColumns) {
      double* const tile = gram + size_t{i} * dim + j;
      vd sums[kTileRows][kVectors];
      for (uint32_t r = 0; r < kTileRows; ++r)
        for (uint32_t v = 0; v < kVectors; ++v) sums[r][v] = load_doubles(tile + size_t{r} * dim + v * kDoubles);
      for (uint32_t t = 0; t < n; ++t) {
        const double* const row = x + size_t{t} * dim;
        for (uint32_t r = 0; r < kTileRows; ++r)
          for (uint32_t v = 0; v < kVectors; ++v) sums[r][v] += row[i + r] * load_doubles(row + j + v * kDoubles);
      }
      for (uint32_t r = 0; r < kTileRows; ++r)
        for (uint32_t v = 0; v < kVectors; ++v)
          *reinterpret_cast<vd_unaligned*>(tile + size_t{r} * dim + v * kDoubles) = sums[r][v];
    }
  }
}

}  // namespace tandem::TANDEM_ISA_NAMESPACE
