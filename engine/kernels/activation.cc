#include "engine/kernels/activation.h"

#include "engine/kernels/kernel_table.h"

namespace tandem {

void swiglu(const float* gate, const float* up, float* out, std::size_t n) {
  kernels().swiglu(gate, up, out, n);
}

void add(float* x, const float* y, std::size_t n) {
  kernels().add(x, y, n);
}

}  // namespace tandem
