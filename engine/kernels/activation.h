// Elementwise kernels.
#pragma once

#include <cstddef>

namespace tandem {

/// out = gate * sigmoid(gate) * up. out may be gate or up.
void swiglu(const float* gate /*[n]*/, const float* up /*[n]*/, float* out /*[n]*/, std::size_t n);
void swiglu_reference(const float* gate /*[n]*/, const float* up /*[n]*/, float* out /*[n]*/, std::size_t n);

/// x += y.
void add(float* x /*[n]*/, const float* y /*[n]*/, std::size_t n);

}  // namespace tandem
