#include "engine/kernels/linear.h"

#include <algorithm>
#include <cblas.h>
#include <mutex>
#include <vector>

#include "engine/common/error.h"
#include "engine/kernels/convert.h"
#include "engine/kernels/kernel_table.h"

namespace tandem {
namespace {

constexpr std::uint32_t kRowsPerTask = 32;  // weight rows
constexpr std::size_t kAlone = std::size_t{1}
                               << 16;  // multiply-adds below which waking threads costs more than it gains

// Threads are ours alone, whichever OpenBLAS is loaded and whatever OPENBLAS_NUM_THREADS says.
void one_blas_thread() {
  static std::once_flag once;
  std::call_once(once, [] { openblas_set_num_threads(1); });
}

bool aligned(const MatrixView& w) {
  return reinterpret_cast<std::uintptr_t>(w.data) % alignof(float) == 0;
}

}  // namespace

void linear(ThreadPool& pool, const float* x, const MatrixView& w, const float* bias, float* y, std::uint32_t n) {
  const KernelTable& table = kernels();
  const auto rows = [&](std::uint32_t first, std::uint32_t last) {
    table.linear_rows(x, w.data, w.type, w.cols, w.rows, first, last, bias, y, n);
  };
  if (std::size_t{w.rows} * w.cols * n < kAlone) return rows(0, w.rows);
  pool.parallel_for((w.rows + kRowsPerTask - 1) / kRowsPerTask, [&](std::size_t task) {
    const std::uint32_t first = static_cast<std::uint32_t>(task) * kRowsPerTask;
    rows(first, std::min(first + kRowsPerTask, w.rows));
  });
}

void linear_prefill(ThreadPool& pool, const float* x, const MatrixView& w, const float* bias, float* y,
                    std::uint32_t n) {
  if (n == 0 || w.rows == 0) return;
  one_blas_thread();
  const std::uint32_t in = w.cols, out = w.rows;
  const std::uint32_t block = out >= 2048 ? 256 : 64;  // fixed by the shape, so that threads do not change results
  pool.parallel_for((out + block - 1) / block, [&](std::size_t task) {
    const std::uint32_t first = static_cast<std::uint32_t>(task) * block;
    const std::uint32_t columns = std::min(block, out - first);
    const float* weights;
    static thread_local std::vector<float> scratch;
    if (w.type == DType::f32 && aligned(w)) {
      weights = static_cast<const float*>(w.data) + std::size_t{first} * in;
    } else {
      scratch.resize(std::size_t{columns} * in);
      to_f32(w.data, w.type, std::size_t{first} * in, scratch.size(), scratch.data());
      weights = scratch.data();
    }
    // BLAS wants leading dimensions of at least 1.
    const auto size = [](std::uint32_t value) { return static_cast<blasint>(value); };
    const blasint lead = std::max<blasint>(1, size(in));
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, size(n), size(columns), size(in), 1.0f, x, lead, weights, lead,
                0.0f, y + first, size(out));
    if (!bias) return;
    for (std::uint32_t i = 0; i < n; ++i)
      for (std::uint32_t j = 0; j < columns; ++j) y[std::size_t{out} * i + first + j] += bias[first + j];
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
