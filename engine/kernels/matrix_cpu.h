// A register-blocked product of small dense matrices that lie in the caches. Included by *_cpu.cc alone.
#pragma once

#include "engine/kernels/vec.h"

namespace tandem::TANDEM_ISA_NAMESPACE {
namespace {

constexpr int kBlockRows = 6;  // kBlockRows x kBlockVectors accumulators
constexpr int kBlockVectors = kRegisters == 32 ? 4 : 2;

// c[kR][kV vectors] = (or += where add) a[kR][depth] b[depth][kV vectors]
template <int kR, int kV>
TANDEM_INLINE void block(const float* a, size_t a_stride, const float* b, size_t b_stride, float* c, size_t c_stride,
                         uint32_t depth, bool add) {
  vf total[kR][kV] = {};
  if (add)
    for (int r = 0; r < kR; ++r)
      for (int i = 0; i < kV; ++i) total[r][i] = load(c + r * c_stride + i * kWidth);
  for (uint32_t k = 0; k < depth; ++k) {
    vf column[kV];
    for (int i = 0; i < kV; ++i) column[i] = load(b + k * b_stride + i * kWidth);
    for (int r = 0; r < kR; ++r) {
      const vf value = splat(a[r * a_stride + k]);
      for (int i = 0; i < kV; ++i) total[r][i] = fma(value, column[i], total[r][i]);
    }
  }
  for (int r = 0; r < kR; ++r)
    for (int i = 0; i < kV; ++i) store(c + r * c_stride + i * kWidth, total[r][i]);
}

template <int kV>
void column_panel(const float* a, size_t a_stride, const float* b, size_t b_stride, float* c, size_t c_stride,
                  uint32_t rows, uint32_t depth, bool add) {
  uint32_t r = 0;
  for (; r + kBlockRows <= rows; r += kBlockRows)
    block<kBlockRows, kV>(a + r * a_stride, a_stride, b, b_stride, c + r * c_stride, c_stride, depth, add);
  for (; r + 2 <= rows; r += 2)
    block<2, kV>(a + r * a_stride, a_stride, b, b_stride, c + r * c_stride, c_stride, depth, add);
  for (; r < rows; ++r) block<1, kV>(a + r * a_stride, a_stride, b, b_stride, c + r * c_stride, c_stride, depth, add);
}

// c[rows][columns] (+)= a[rows][depth] b[depth][columns]; columns is a multiple of kWidth.
[[maybe_unused]] void multiply(const float* a, size_t a_stride, const float* b, size_t b_stride, float* c,
                               size_t c_stride, uint32_t rows, uint32_t columns, uint32_t depth, bool add) {
  uint32_t j = 0;
  for (; j + kBlockVectors * kWidth <= columns; j += kBlockVectors * kWidth)
    column_panel<kBlockVectors>(a, a_stride, b + j, b_stride, c + j, c_stride, rows, depth, add);
  for (; j < columns; j += kWidth) column_panel<1>(a, a_stride, b + j, b_stride, c + j, c_stride, rows, depth, add);
}

}  // namespace
}  // namespace tandem::TANDEM_ISA_NAMESPACE
