// What happens between the projection of a token and attention, in one pass on the GPU: bias, the norms of Qwen3's
// queries and keys, rotary embedding, and storing K and V where the cache wants them. On the CPU linear() adds the
// bias, and rms_norm() and rope() follow.
#pragma once

#include <cstdint>

#include "engine/device/cuda/launch_array.h"
#include "engine/device/cuda/runtime.h"  // CudaStream
#include "engine/kernels/tensor.h"

namespace tandem {

struct QkvShape {
  std::uint32_t q_heads = 0, kv_heads = 0, head_dim = 0;  // head_dim is even, at most 256
  std::uint32_t columns() const { return (q_heads + 2 * kv_heads) * head_dim; }
};

/// Device memory. What a model does not have is empty.
struct QkvWeights {
  const float* bias = nullptr;                // [columns]
  MatrixView q_norm, k_norm;                  // [1][D]
  float eps = 0;                              //
  const double* inverse_frequency = nullptr;  // [D / 2], RopeTable::inverse_frequency
  double scale = 1;                           // RopeTable::scale
};

/// Where keys and values go: those of KV head h begin at k (v) + the token's offset + h * head_stride bytes. A page
/// [kv head][K 16 x D, V 16 x D] is: k = the pool, v = k + 16 * D * size, head_stride = 32 * D * size, and a token's
/// offset is that of its page and row.
struct KvPlaces {
  void* k = nullptr;
  void* v = nullptr;
  DType type = DType::f32;
  std::uint64_t head_stride = 0;
};
struct QkvToken {
  std::uint64_t kv_offset = 0;  // bytes
  std::uint32_t position = 0;
};

/// All pointers are device memory; qkv is what the projection wrote. The angle is computed in float64 as in rope().
void prepare_qkv_cuda(const float* qkv /*[n][Hq D | Hkv D | Hkv D]*/, const QkvShape& shape, const QkvWeights& weights,
                      const LaunchArray<QkvToken>& tokens /*[n]*/, float* q /*[n][Hq][D]*/, const KvPlaces& kv,
                      std::uint32_t n, CudaStream stream);

}  // namespace tandem
