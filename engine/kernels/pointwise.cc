#include "engine/kernels/pointwise.h"

#include <cmath>

#include "engine/common/error.h"
#include "engine/kernels/convert.h"
#include "engine/kernels/kernel_table.h"
#include "engine/kernels/rope.h"

namespace tandem {

void embed(const MatrixView& table, const std::int32_t* tokens, float* out, std::uint32_t n) {
  for (std::size_t i = 0; i < n; ++i) {
    TANDEM_CHECK(tokens[i] >= 0 && static_cast<std::uint32_t>(tokens[i]) < table.rows,
                 "Token {} lies outside the embedding table of {} rows.", tokens[i], table.rows);
    to_f32(table.data, table.type, static_cast<std::size_t>(tokens[i]) * table.cols, table.cols, out + i * table.cols);
  }
}

void rms_norm(const float* x, const MatrixView& weight, float eps, float* y, std::uint32_t n, std::uint32_t d) {
  TANDEM_CHECK(weight.rows == 1 && weight.cols == d, "The norm weight is {}x{} for rows of {}.", weight.rows,
               weight.cols, d);
  const KernelTable& table = kernels();
  for (std::size_t i = 0; i < n; ++i) table.rms_norm_row(x + i * d, weight.data, weight.type, eps, y + i * d, d);
}

void swiglu(const float* gate, const float* up, float* out, std::size_t n) {
  kernels().swiglu(gate, up, out, n);
}

void add(float* x, const float* y, std::size_t n) {
  kernels().add(x, y, n);
}

RopeTable::RopeTable(std::uint32_t dim, double theta) : head_dim(dim), inverse_frequency(dim / 2) {
  TANDEM_CHECK(dim > 0 && dim % 2 == 0, "Rotary embedding needs an even head dimension, not {}.", dim);
  for (std::uint32_t i = 0; i < dim / 2; ++i) inverse_frequency[i] = std::pow(theta, -2.0 * i / dim);
}

void rope(float* x, const std::uint32_t* positions, const RopeTable& frequencies, std::uint32_t n,
          std::uint32_t heads) {
  const KernelTable& table = kernels();
  const std::uint32_t dim = frequencies.head_dim, pairs = dim / 2;
  std::vector<float> cosines(pairs), sines(pairs);
  for (std::size_t i = 0; i < n; ++i) {
    table.rope_angles(frequencies.inverse_frequency.data(), pairs, positions[i], cosines.data(), sines.data());
    if (frequencies.scale != 1) {
      for (std::size_t j = 0; j < pairs; ++j) {
        cosines[j] = static_cast<float>(cosines[j] * frequencies.scale);
        sines[j] = static_cast<float>(sines[j] * frequencies.scale);
      }
    }
    for (std::size_t h = 0; h < heads; ++h)
      table.rotate(x + (i * heads + h) * dim, pairs, cosines.data(), sines.data());
  }
}

}  // namespace tandem
