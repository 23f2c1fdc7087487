// Angles of the rotary embedding.
#pragma once

#include "engine/kernels/cuda/device.cuh"

namespace tandem::gpu {

/// cos and sin of position * inverse_frequency, times scale: the angle in float64 and reduced there.
__device__ __forceinline__ float2 rotation(double inverse_frequency, std::uint32_t position, float scale) {
  const double angle = inverse_frequency * position;
  const double turns = rint(angle * 0.15915494309189533577);
  double rest = fma(-turns, 6.28318530717958623200, angle);
  rest = fma(-turns, 2.44929359829470635445e-16, rest);
  float sine, cosine;
  sincospif(static_cast<float>(rest * 0.31830988618379067154), &sine, &cosine);
  return make_float2(cosine * scale, sine * scale);
}

}  // namespace tandem::gpu
