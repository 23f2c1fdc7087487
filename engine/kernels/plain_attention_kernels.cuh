// Paged decode attention and token scores for what the tensor-core kernels do not take: f32 KV (the oracle mode), other
// dimensions, groups of more than 16 heads. Products in f32, one block per piece of work, one warp per dot product.
#pragma once

#include "engine/kernels/attention_tiles.cuh"
#include "engine/kernels/page_list_device.cuh"

namespace tandem::gpu {

/// q as the CPU twin takes it: rounded where keys are bf16.
template <class Element>
__device__ __forceinline__ float query_value(float q) {
  return q;
}
template <>
__device__ __forceinline__ float query_value<Bf16>(float q) {
  return Bf16::widen(Bf16::narrow(q));
}

/// q.k / sqrt(D) on every lane.
template <class Element>
__device__ __forceinline__ float plain_score(const float* q, const typename Element::Bits* k, unsigned dim,
                                             float scale) {
  float sum = 0.0f;
  for (unsigned d = threadIdx.x % kWarp; d < dim; d += kWarp) sum += q[d] * Element::widen(k[d]);
  return fminf(warp_sum(sum) * scale, kLargestScore);
}

/// First element of K of a page; V follows after 16 tokens.
template <class Element>
__device__ __forceinline__ const typename Element::Bits* page_of(const KvPages& kv, std::uint32_t slot,
                                                                 std::uint32_t kv_head) {
  return static_cast<const typename Element::Bits*>(kv.pages) +
         (std::size_t{slot} * kv.kv_heads + kv_head) * 2 * kListPageTokens * kv.dim;
}

constexpr unsigned kPlainThreads = 128;
constexpr std::size_t plain_attention_shared(std::uint32_t group, std::uint32_t dim) {
  return sizeof(float) * group * (2 * std::size_t{dim} + kListPageTokens + 3);
}

template <class Element>
__global__ void __launch_bounds__(kPlainThreads)
    plain_attention_kernel(const __grid_constant__ PagedAttention attention) {
  TANDEM_DYNAMIC_SHARED(shared);
  const unsigned group = attention.group, dim = attention.kv.dim, warp = threadIdx.x / kWarp,
                 lane = threadIdx.x % kWarp;
  float* const q = reinterpret_cast<float*>(shared);         // [group][dim]
  float* const sums = q + group * dim;                       // [group][dim]
  float* const weights = sums + group * dim;                 // [group][16]: scores, then exp(score - largest)
  float* const largest = weights + group * kListPageTokens;  // [group]
  float* const total = largest + group;                      // [group]
  float* const factor = total + group;                       // [group]
  const float scale = 1.0f / sqrtf(static_cast<float>(dim));

  for (unsigned w = blockIdx.x; w < attention.work_count; w += gridDim.x) {
    const AttentionWork& work = attention.work[w];
    const std::size_t head = (std::size_t{work.row} * attention.kv.kv_heads + work.kv_head) * group;
    for (unsigned i = threadIdx.x; i < group * dim; i += kPlainThreads) {
      q[i] = query_value<Element>(attention.q[head * dim + i]);
      sums[i] = 0.0f;
    }
    if (threadIdx.x < group) {
      largest[threadIdx.x] = kEmptyScore;
      total[threadIdx.x] = 0.0f;
    }
    __syncthreads();
    const std::size_t list = list_of(attention.kv, attention.lists, work.row, work.kv_head);
    const std::uint32_t entries = entries_of(attention.lists, list, work);
    for (std::uint32_t e = 0; e < entries; ++e) {
      const PageEntry& entry = attention.lists.entries[list * attention.lists.capacity + work.first + e];
      const std::uint32_t heads = entry.head_mask & all_heads(group);
      if (heads == 0) continue;  // for the whole block
      const auto* k = page_of<Element>(attention.kv, entry.slot, work.kv_head);
      const auto* v = k + std::size_t{kListPageTokens} * dim;
      const unsigned first = entry.first, end = first + entry.tokens;
      for (unsigned i = warp; i < group * kListPageTokens; i += kPlainThreads / kWarp) {
        const unsigned g = i / kListPageTokens, token = i % kListPageTokens;
        float score = kEmptyScore;
        if (token >= first && token < end && (heads >> g & 1u) != 0)
          score = plain_score<Element>(q + g * dim, k + token * dim, dim, scale);
        if (lane == 0) weights[i] = score;
      }
      __syncthreads();
      if (threadIdx.x < group) {
        float* const mine = weights + threadIdx.x * kListPageTokens;
        const float before = largest[threadIdx.x];
        float most = before;
        for (unsigned t = 0; t < kListPageTokens; ++t) most = fmaxf(most, mine[t]);
        const float reference = most == kEmptyScore ? 0.0f : most;
        factor[threadIdx.x] = most == before ? 1.0f : expf(before - most);
        float sum = total[threadIdx.x] * factor[threadIdx.x];
        for (unsigned t = 0; t < kListPageTokens; ++t) {
          mine[t] = expf(mine[t] - reference);
          sum += mine[t];
        }
        largest[threadIdx.x] = most;
        total[threadIdx.x] = sum;
      }
      __syncthreads();
      for (unsigned i = threadIdx.x; i < group * dim; i += kPlainThreads) {
        const unsigned g = i / dim, d = i % dim;
        float sum = sums[i] * factor[g];
        for (unsigned t = first; t < end; ++t) sum += weights[g * kListPageTokens + t] * Element::widen(v[t * dim + d]);
        sums[i] = sum;
      }
      __syncthreads();
    }
    const PieceOutput out = output_of(attention, work);
    for (unsigned i = threadIdx.x; i < group * dim; i += kPlainThreads) {
      const float sum = total[i / dim];
      out.o[i] = sum == 0.0f ? 0.0f : sums[i] / sum;
    }
    if (threadIdx.x < group) {
      const float sum = total[threadIdx.x];
      out.lse[threadIdx.x] = sum == 0.0f ? kEmptyScore : largest[threadIdx.x] + logf(sum);
    }
    __syncthreads();  // before the next piece's queries
  }
}

}  // namespace tandem::gpu
