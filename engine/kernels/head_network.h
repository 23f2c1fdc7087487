// The network of Fluxion's predictor (Fluxion section 5.2): from the features of query heads to how much of the host's
// KV they need. Normalisation, layers of ReLU, and three numbers.
#pragma once

#include <cstdint>

#include "engine/device/cuda/runtime.h"  // CudaStream

namespace tandem {

struct NetworkLayer {
  const float* weight = nullptr;  // [out][in]; on the GPU [in][out], so that neighbours read what lies side by side
  const float* bias = nullptr;    // [out]
  std::uint32_t in = 0, out = 0;
};

struct HeadNetwork {
  // (x - mean) * scale, cut at +-10 so that a context unlike any of the training cannot lead anywhere.
  const float* mean = nullptr;           // [inputs]
  const float* scale = nullptr;          // [inputs]
  const NetworkLayer* layers = nullptr;  // [count], ReLU after all but the last, which has three outputs
  std::uint32_t count = 0;               // at least 1
  std::uint32_t inputs = 0;
  std::uint32_t widest = 0;  // the largest number of inputs or outputs of a layer; GPU only
};
inline constexpr std::uint32_t kHeadOutputs = 3;
inline constexpr float kFeatureCut = 10;  // standard deviations

/// Budget, slope and streaming (1 or 0) of n heads. A head whose budget or slope is not finite needs everything: 1, 0,
/// 0. The bits of a row depend on its features alone. Any thread may call.
void predict_heads(const HeadNetwork& network, const float* features /*[n][inputs]*/, std::uint32_t n,
                   float* out /*[n][3]*/);

/// The same on the GPU, all layers in one launch. The network's numbers and layers are device memory. InputError where
/// its layers are wider than a block's shared memory holds (5,000 on an A100).
void predict_heads_cuda(const HeadNetwork& network, const float* features /*[n][inputs]*/, std::uint32_t n,
                        float* out /*[n][3]*/, CudaStream stream);

}  // namespace tandem
