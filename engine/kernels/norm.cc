#include "engine/kernels/norm.h"

#include <cmath>

#include "engine/common/error.h"
#include "engine/kernels/convert.h"
#include "engine/kernels/kernel_table.h"

namespace tandem {

void rms_norm_strided(const float* x, std::size_t x_stride, const MatrixView& weight, float eps, float* y,
                      std::size_t y_stride, std::uint32_t n, std::uint32_t d) {
  TANDEM_CHECK(weight.rows == 1 && weight.cols == d, "The norm weight is {}x{} for rows of {}.", weight.rows,
               weight.cols, d);
  const KernelTable& table = kernels();
  for (std::uint32_t i = 0; i < n; ++i)
    table.rms_norm_row(x + x_stride * i, weight.data, weight.type, eps, y + y_stride * i, d);
}

void rms_norm(const float* x, const MatrixView& weight, float eps, float* y, std::uint32_t n, std::uint32_t d) {
  rms_norm_strided(x, d, weight, eps, y, d, n, d);
}

void rms_norm_reference(const float* x, const MatrixView& weight, float eps, float* y, std::uint32_t n,
                        std::uint32_t d) {
  for (std::size_t i = 0; i < n; ++i) {
    double squares = 0;
    for (std::size_t j = 0; j < d; ++j) squares += double{x[i * d + j]} * double{x[i * d + j]};
    const double scale = 1 / std::sqrt(squares / d + double{eps});
    for (std::size_t j = 0; j < d; ++j)
      y[i * d + j] =
          static_cast<float>(double{x[i * d + j]} * scale * double{load_element(weight.data, weight.type, j)});
  }
}

}  // namespace tandem
