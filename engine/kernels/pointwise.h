// Row by row and element by element: embeddings, root-mean-square normalisation, activation, and what happens between a
// projection and attention.
#pragma once

#include <cstddef>
#include <cstdint>

#include "engine/device/cuda/launch_array.h"
#include "engine/device/cuda/runtime.h"  // CudaStream
#include "engine/kernels/tensor.h"

namespace tandem {

/// Rows of the embedding table: out[i] = table[tokens[i]]. Every token lies in [0, table.rows).
void embed(const MatrixView& table /*[vocab][hidden]*/, const std::int32_t* tokens /*[n]*/, float* out /*[n][hidden]*/,
           std::uint32_t n);

/// On the GPU, everything in device memory. A token outside the table makes a row of NaN.
void embed_cuda(const MatrixView& table /*[vocab][hidden]*/, const std::int32_t* tokens /*[n]*/,
                float* out /*[n][hidden]*/, std::uint32_t n, CudaStream stream);

/// Root-mean-square normalisation: y = x / sqrt(mean(x^2) + eps) * weight, for each row. y may be x. QK-norm is the
/// same call with n * heads rows of head_dim.
void rms_norm(const float* x /*[n][d]*/, const MatrixView& weight /*[1][d]*/, float eps, float* y /*[n][d]*/,
              std::uint32_t n, std::uint32_t d);

/// On the GPU, rounded to y_type. All pointers are device memory. y may be x with y_type f32. Rows that are aligned for
/// it are read four elements at a time. Nothing is added to x before: the product that the sum comes from does that
/// (LinearCuda::add), which saves a kernel in each layer and the sum's way through memory.
void rms_norm_cuda(const float* x /*[n][d]*/, const MatrixView& weight /*[1][d]*/, float eps, void* y /*[n][d]*/,
                   DType y_type, std::uint32_t n, std::uint32_t d, CudaStream stream);

/// out = gate * sigmoid(gate) * up. out may be gate or up.
void swiglu(const float* gate /*[n]*/, const float* up /*[n]*/, float* out /*[n]*/, std::size_t n);

/// x += y.
void add(float* x /*[n]*/, const float* y /*[n]*/, std::size_t n);

/// On the GPU, rounded to out_type. Rows of gate and up lie in_stride floats apart, for example as the halves of the
/// rows of one product. Device memory.
void swiglu_cuda(const float* gate /*[n][d]*/, const float* up /*[n][d]*/, std::size_t in_stride, void* out /*[n][d]*/,
                 DType out_type, std::uint32_t n, std::uint32_t d, CudaStream stream);

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

/// Bias, the norms of Qwen3's queries and keys, rotary embedding, and storing K and V where the cache wants them, in
/// one pass. On the CPU linear() adds the bias, and rms_norm() and rope() follow. All pointers are device memory; qkv
/// is what the projection wrote. The angle is computed in float64 as in rope().
void prepare_qkv_cuda(const float* qkv /*[n][Hq D | Hkv D | Hkv D]*/, const QkvShape& shape, const QkvWeights& weights,
                      const LaunchArray<QkvToken>& tokens /*[n]*/, float* q /*[n][Hq][D]*/, const KvPlaces& kv,
                      std::uint32_t n, CudaStream stream);

}  // namespace tandem
