#include "engine/kernels/norm.h"

#include "engine/common/error.h"
#include "engine/kernels/kernel_table.h"

namespace tandem {

void rms_norm(const float* x, const MatrixView& weight, float eps, float* y, std::uint32_t n, std::uint32_t d) {
  TANDEM_CHECK(weight.rows == 1 && weight.cols == d, "The norm weight is {}x{} for rows of {}.", weight.rows,
               weight.cols, d);
  const KernelTable& table = kernels();
  for (std::size_t i = 0; i < n; ++i) table.rms_norm_row(x + i * d, weight.data, weight.type, eps, y + i * d, d);
}

}  // namespace tandem
