#include "engine/kernels/linear.h"

#include <algorithm>

#include "engine/kernels/kernel_table.h"
#include "engine/kernels/scratch.h"

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

// Scratch of the calling thread: for x, and for what a task needs.
struct Rows;
struct Panel;

// Calls block(column, row, row_step) for all blocks of kPrefillColumns weight rows and row_step rows of x, a multiple
// of the kernels' 6. The weights are packed again for each part of the rows, so the parts are as large as the
// second-level cache allows (`most`), of even size, and smaller only where threads would have no task.
template <class Block>
void for_each_block(ThreadPool& pool, std::uint32_t n, std::uint32_t most, std::uint32_t out, const Block& block) {
  constexpr std::uint32_t kLeast = 126;
  const std::size_t column_blocks = (out + kPrefillColumns - 1) / kPrefillColumns;
  const std::size_t parts = std::max<std::size_t>((n + most - 1) / most, 4 * pool.size() / column_blocks);
  const auto even = static_cast<std::uint32_t>((n + parts - 1) / parts);
  const std::uint32_t row_step = (std::max(even, std::min(n, kLeast)) + 5) / 6 * 6;
  pool.parallel_for(column_blocks * ((n + row_step - 1) / row_step), [&](std::size_t task) {
    block(static_cast<std::uint32_t>(task % column_blocks) * kPrefillColumns,
          static_cast<std::uint32_t>(task / column_blocks) * row_step, row_step);
  });
}

constexpr std::uint32_t kPrefillRows = 516;   // 258 KiB of a slice of x; 512 are one part
constexpr std::uint32_t kRoundedRows = 1032;  // of x at a time: 28 MiB of scratch for rows of 14336

// y of at most kRoundedRows rows.
void prefill_rounded(ThreadPool& pool, const float* x, const MatrixView& w, const float* bias, float* y,
                     std::uint32_t n) {
  const KernelTable& table = kernels();
  auto* rounded = reinterpret_cast<std::uint16_t*>(aligned_scratch<Rows>((linear_bf16_padded(w.cols) * n + 1) / 2));
  constexpr std::uint32_t kRowsPerTask = 64;
  pool.parallel_for((n + kRowsPerTask - 1) / kRowsPerTask, [&](std::size_t task) {
    const auto first = static_cast<std::uint32_t>(task) * kRowsPerTask;
    table.linear_bf16_round(x, w.cols, first, std::min(first + kRowsPerTask, n), n, rounded);
  });
  for_each_block(pool, n, kRoundedRows, w.rows, [&](std::uint32_t column, std::uint32_t row, std::uint32_t row_step) {
    table.linear_bf16_block(
        {.x = rounded,
         .all_rows = n,
         .row = row,
         .rows = std::min(row_step, n - row),
         .w = w.data,
         .in = w.cols,
         .out = w.rows,
         .column = column,
         .columns = std::min(kPrefillColumns, w.rows - column),
         .bias = bias,
         .y = y,
         .scratch = aligned_scratch<Panel>(linear_bf16_scratch_floats(table.linear_bf16_depth, row_step))});
  });
}

}  // namespace

void linear(ThreadPool& pool, const float* x, const MatrixView& w, const float* bias, float* y, std::uint32_t n) {
  if (n == 0 || w.rows == 0) return;
  const KernelTable& table = kernels();
  float* packed = aligned_scratch<Rows>(linear_padded(w.cols) * n);
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
  if (n == 0 || w.rows == 0) return;
  const KernelTable& table = kernels();
  const std::uint32_t in = w.cols, out = w.rows;
  for_each_block(pool, n, kPrefillRows, out, [&](std::uint32_t column, std::uint32_t row, std::uint32_t row_step) {
    const std::uint32_t rows = std::min(row_step, n - row);
    float* scratch = aligned_scratch<Panel>(linear_prefill_scratch_floats(row_step));
    table.linear_prefill_block(x + std::size_t{in} * row, w.data, w.type, in, out, column,
                               std::min(kPrefillColumns, out - column), bias, y + std::size_t{out} * row, rows,
                               scratch);
  });
}

void linear_prefill_bf16(ThreadPool& pool, const float* x, const MatrixView& w, const float* bias, float* y,
                         std::uint32_t n) {
  const KernelTable& table = kernels();
  if (w.rows == 0) return;
  const bool pairs = w.type == DType::bf16 && table.linear_bf16_block;
  for (std::uint32_t row = 0; row < n; row += kRoundedRows) {
    const std::uint32_t rows = std::min(kRoundedRows, n - row);
    const float* from = x + std::size_t{w.cols} * row;
    float* to = y + std::size_t{w.rows} * row;
    if (pairs) {
      prefill_rounded(pool, from, w, bias, to, rows);
    } else {
      const std::size_t count = std::size_t{w.cols} * rows;
      float* rounded = aligned_scratch<Rows>(count);
      table.round_to_bf16(from, count, rounded);
      linear_prefill(pool, rounded, w, bias, to, rows);
    }
  }
}

}  // namespace tandem
