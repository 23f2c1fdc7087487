#include "engine/kernels/linear.h"

#include <algorithm>
#include <memory>
#include <vector>

#include "engine/kernels/convert.h"
#include "engine/kernels/kernel_table.h"

namespace tandem {
namespace {

constexpr std::size_t kTaskBytes = std::size_t{1} << 20;  // of weights: four long streams, which stay in L2 for n > 8
constexpr std::size_t kAlone = std::size_t{1}
                               << 16;  // multiply-adds below which waking threads costs more than it gains

// Weight rows per task: as many as kTaskBytes holds, yet several tasks for each thread.
std::uint32_t rows_per_task(const MatrixView& w, unsigned threads) {
  const std::size_t fitting = kTaskBytes / std::max<std::size_t>(1, w.bytes() / w.rows);
  const std::size_t balanced = w.rows / (4 * threads);
  return static_cast<std::uint32_t>(std::max<std::size_t>(8, std::min(fitting, balanced)));
}

// `floats` floats at a 64-byte boundary, the thread's own until it asks again.
float* aligned_scratch(std::size_t floats) {
  static thread_local std::vector<float> memory;
  if (memory.size() < floats + 16) memory.resize(floats + 16);
  void* start = memory.data();
  std::size_t space = memory.size() * sizeof(float);
  return static_cast<float*>(std::align(64, floats * sizeof(float), start, space));
}

constexpr std::uint32_t kPrefillRows = 504;  // 84 blocks of 6; 252 KiB of a slice of x

}  // namespace

void linear(ThreadPool& pool, const float* x, const MatrixView& w, const float* bias, float* y, std::uint32_t n) {
  if (n == 0 || w.rows == 0) return;
  const KernelTable& table = kernels();
  float* packed = aligned_scratch(linear_padded(w.cols) * n);
  table.linear_pack(x, w.cols, n, packed);
  const auto rows = [&](std::uint32_t first, std::uint32_t last) {
    table.linear_rows({packed, w.data, w.type, w.cols, w.rows, first, last, bias, y, n});
  };
  if (std::size_t{w.rows} * w.cols * n < kAlone) return rows(0, w.rows);
  const std::uint32_t step = rows_per_task(w, pool.size());
  pool.parallel_for((w.rows + step - 1) / step, [&](std::size_t task) {
    const std::uint32_t first = static_cast<std::uint32_t>(task) * step;
    rows(first, std::min(first + step, w.rows));
  });
}

void linear_prefill(ThreadPool& pool, const float* x, const MatrixView& w, const float* bias, float* y,
                    std::uint32_t n) {
  if (n == 0) return;
  const KernelTable& table = kernels();
  const std::uint32_t in = w.cols, out = w.rows;
  const std::size_t column_blocks = (out + kPrefillColumns - 1) / kPrefillColumns;
  const std::size_t row_blocks = (n + kPrefillRows - 1) / kPrefillRows;
  pool.parallel_for(column_blocks * row_blocks, [&](std::size_t task) {
    const std::uint32_t column = static_cast<std::uint32_t>(task % column_blocks) * kPrefillColumns;
    const std::uint32_t row = static_cast<std::uint32_t>(task / column_blocks) * kPrefillRows;
    const std::uint32_t rows = std::min(kPrefillRows, n - row);
    static thread_local std::vector<float> scratch;
    scratch.resize(linear_prefill_scratch_floats(kPrefillRows));
    table.linear_prefill_block(x + std::size_t{in} * row, w.data, w.type, in, out, column,
                               std::min(kPrefillColumns, out - column), bias, y + std::size_t{out} * row, rows,
                               scratch.data());
  });
}

void linear_reference(const float* x, const MatrixView& w, const float* bias, float* y, std::uint32_t n) {
  for (std::uint32_t i = 0; i < n; ++i) {
    for (std::uint32_t o = 0; o < w.rows; ++o) {
      double total = 0;
      for (std::uint32_t j = 0; j < w.cols; ++j)
        total +=
            double{x[std::size_t{w.cols} * i + j]} * double{load_element(w.data, w.type, std::size_t{w.cols} * o + j)};
      y[std::size_t{w.rows} * i + o] = static_cast<float>(total + (bias ? double{bias[o]} : 0.0));
    }
  }
}

}  // namespace tandem
