#include "engine/kernels/linear.h"

#include <algorithm>
#include <cblas.h>
#include <vector>

#include "engine/kernels/convert.h"
#include "engine/kernels/kernel_table.h"

namespace tandem {
namespace {

constexpr std::size_t kTaskBytes = std::size_t{1}
                                   << 20;  // of weights: long enough a stream, and it stays in L2 for n > 8
constexpr std::size_t kAlone = std::size_t{1}
                               << 16;  // multiply-adds below which waking threads costs more than it gains

// Weight rows per task: as many as kTaskBytes holds, and several tasks for each thread.
std::uint32_t rows_per_task(const MatrixView& w, std::uint32_t n, unsigned threads) {
  const std::uint32_t most = n == 1 ? 256 : 64;  // the sums of a task stay in L2
  const auto fitting = static_cast<std::uint32_t>(std::min<std::size_t>(most, kTaskBytes / (w.bytes() / w.rows + 1)));
  const std::uint32_t balanced = w.rows / (4 * threads);
  return std::max(8u, std::min(fitting, balanced) / 8 * 8);
}

// `floats` floats at a 64-byte boundary, kept by the thread until it asks again for the same use.
template <int kUse>
float* thread_scratch(std::size_t floats) {
  static thread_local std::vector<float> memory;
  if (memory.size() < floats + 16) memory.resize(floats + 16);
  const auto address = reinterpret_cast<std::uintptr_t>(memory.data());
  return memory.data() + (64 - address % 64) % 64 / sizeof(float);
}

constexpr std::uint32_t kPrefillRows = 504;  // 84 blocks of 6; 252 KiB of a slice of x

}  // namespace

void linear(ThreadPool& pool, const float* x, const MatrixView& w, const float* bias, float* y, std::uint32_t n) {
  if (n == 0 || w.rows == 0) return;
  const KernelTable& table = kernels();
  float* packed = thread_scratch<0>(linear_padded(w.cols) * n);
  table.linear_pack(x, w.cols, n, packed);
  const std::uint32_t step = rows_per_task(w, n, pool.size());
  const auto rows = [&](std::size_t task) {
    const std::uint32_t first = static_cast<std::uint32_t>(task) * step, last = std::min(first + step, w.rows);
    table.linear_rows({packed, w.data, w.type, w.cols, w.rows, first, last, bias, y, n,
                       thread_scratch<1>(linear_scratch_floats(step))});
  };
  const std::size_t tasks = (w.rows + step - 1) / step;
  if (std::size_t{w.rows} * w.cols * n < kAlone)
    for (std::size_t task = 0; task < tasks; ++task) rows(task);
  else
    pool.parallel_for(tasks, rows);
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
