#include "engine/kernels/activation.h"

#include <cmath>

#include "engine/kernels/kernel_table.h"

namespace tandem {

void swiglu(const float* gate, const float* up, float* out, std::size_t n) {
  kernels().swiglu(gate, up, out, n);
}

void swiglu_reference(const float* gate, const float* up, float* out, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i)
    out[i] = static_cast<float>(double{gate[i]} / (1 + std::exp(-double{gate[i]})) * double{up[i]});
}

void add(float* x, const float* y, std::size_t n) {
  kernels().add(x, y, n);
}

}  // namespace tandem
