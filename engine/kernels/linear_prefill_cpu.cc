// Matrix product of many rows with 64 weight rows: a slice of the weights is converted to float and packed transposed,
// 32 KiB that stay in the first-level cache while all rows pass.
#include "engine/kernels/kernels_cpu.h"
#include "engine/kernels/matrix_cpu.h"
#include "engine/kernels/vec.h"

namespace tandem::TANDEM_ISA_NAMESPACE {

// Each output is summed over `in` from left to right, slice after slice, so its bits do not depend on n.
void linear_prefill_block(const float* x, const void* w, DType type, uint32_t in, uint32_t out, uint32_t first,
                          uint32_t columns, const float* bias, float* y, uint32_t n, float* scratch) {
  float* packed = scratch;                                        // [kPrefillDepth][kPrefillColumns]
  float* row = packed + size_t{kPrefillDepth} * kPrefillColumns;  // [kPrefillDepth]
  const bool whole = columns == kPrefillColumns;
  float* sums = whole ? y + first : row + kPrefillDepth;  // [n][kPrefillColumns] where y has no room for whole vectors
  const size_t stride = whole ? out : kPrefillColumns;
  for (size_t i = 0; i < size_t{kPrefillDepth} * kPrefillColumns; ++i) packed[i] = 0.0f;
  for (uint32_t from = 0; from == 0 || from < in; from += kPrefillDepth) {
    const uint32_t depth = in - from < kPrefillDepth ? in - from : kPrefillDepth;
    for (uint32_t c = 0; c < columns; ++c) {
      widen(w, type, size_t{first + c} * in + from, depth, row);
      for (uint32_t k = 0; k < depth; ++k) packed[size_t{kPrefillColumns} * k + c] = row[k];
    }
    multiply(x + from, in, packed, kPrefillColumns, sums, stride, n, kPrefillColumns, depth, from > 0);
  }
  if (whole && !bias) return;
  for (uint32_t r = 0; r < n; ++r)
    for (uint32_t c = 0; c < columns; ++c)
      y[size_t{out} * r + first + c] = sums[stride * r + c] + (bias ? bias[first + c] : 0.0f);
}

}  // namespace tandem::TANDEM_ISA_NAMESPACE
