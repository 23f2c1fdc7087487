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

constexpr unsigned kPlainThreads = 128;
constexpr std::size_t plain_attention_shared(std::uint32_t group, std::uint32_t dim) {
  return sizeof(float) * group * (2 * std::size_t{dim} + kListPageTokens + 3);
}

/// Attention of one query token's group of heads, page by page, by a block of kPlainThreads. Every thread makes every
/// call with the same arguments.
template <class Element>
class PlainAttention {
  using Bits = typename Element::Bits;

 public:
  __device__ PlainAttention(unsigned char* shared, unsigned group, unsigned dim)
      : group_(group),
        dim_(dim),
        scale_(1.0f / sqrtf(static_cast<float>(dim))),
        q_(reinterpret_cast<float*>(shared)),
        sums_(q_ + group * dim),
        weights_(sums_ + group * dim),
        largest_(weights_ + group * kListPageTokens),
        total_(largest_ + group),
        factor_(total_ + group) {}

  /// q: [group][dim].
  __device__ void begin(const float* q) {
    __syncthreads();  // nobody reads the last query's results any more
    for (unsigned i = threadIdx.x; i < group_ * dim_; i += kPlainThreads) {
      q_[i] = query_value<Element>(q[i]);
      sums_[i] = 0.0f;
    }
    if (threadIdx.x < group_) {
      largest_[threadIdx.x] = kEmptyScore;
      total_[threadIdx.x] = 0.0f;
    }
    __syncthreads();
  }

  /// Tokens [first, end) of a page, attended by the heads of the mask.
  __device__ void add(const Bits* k, const Bits* v, unsigned first, unsigned end, std::uint32_t heads) {
    for (unsigned i = threadIdx.x / kWarp; i < group_ * kListPageTokens; i += kPlainThreads / kWarp) {
      const unsigned g = i / kListPageTokens, token = i % kListPageTokens;
      float score = kEmptyScore;
      if (token >= first && token < end && (heads >> g & 1u) != 0)
        score = plain_score<Element>(q_ + g * dim_, k + token * dim_, dim_, scale_);
      if (threadIdx.x % kWarp == 0) weights_[i] = score;
    }
    __syncthreads();
    if (threadIdx.x < group_) {
      float* const mine = weights_ + threadIdx.x * kListPageTokens;
      const float before = largest_[threadIdx.x];
      float most = before;
      for (unsigned t = 0; t < kListPageTokens; ++t) most = fmaxf(most, mine[t]);
      const float reference = most == kEmptyScore ? 0.0f : most;
      factor_[threadIdx.x] = most == before ? 1.0f : expf(before - most);
      float sum = total_[threadIdx.x] * factor_[threadIdx.x];
      for (unsigned t = 0; t < kListPageTokens; ++t) {
        mine[t] = expf(mine[t] - reference);
        sum += mine[t];
      }
      largest_[threadIdx.x] = most;
      total_[threadIdx.x] = sum;
    }
    __syncthreads();
    for (unsigned i = threadIdx.x; i < group_ * dim_; i += kPlainThreads) {
      const unsigned g = i / dim_, d = i % dim_;
      float sum = sums_[i] * factor_[g];
      for (unsigned t = first; t < end; ++t) sum += weights_[g * kListPageTokens + t] * Element::widen(v[t * dim_ + d]);
      sums_[i] = sum;
    }
    __syncthreads();
  }

  /// o: [group][dim]; lse: [group] or nullptr.
  __device__ void finish(float* o, float* lse) const {
    for (unsigned i = threadIdx.x; i < group_ * dim_; i += kPlainThreads) {
      const float sum = total_[i / dim_];
      o[i] = sum == 0.0f ? 0.0f : sums_[i] / sum;
    }
    if (lse != nullptr && threadIdx.x < group_) {
      const float sum = total_[threadIdx.x];
      lse[threadIdx.x] = sum == 0.0f ? kEmptyScore : largest_[threadIdx.x] + logf(sum);
    }
  }

 private:
  unsigned group_, dim_;
  float scale_;
  float *q_, *sums_;                   // [group][dim]
  float* weights_;                     // [group][16]: scores, then exp(score - largest)
  float *largest_, *total_, *factor_;  // [group]
};

/// Dynamic shared memory: plain_attention_shared(group, dim).
template <class Element>
__global__ void __launch_bounds__(kPlainThreads)
    plain_attention_kernel(const __grid_constant__ PagedAttention attention) {
  TANDEM_DYNAMIC_SHARED(shared);
  using Bits = typename Element::Bits;
  const KvPages& kv = attention.kv;
  PlainAttention<Element> heads(shared, attention.group, kv.dim);
  for (unsigned w = blockIdx.x; w < attention.work_count; w += gridDim.x) {
    const AttentionWork& work = attention.work[w];
    heads.begin(attention.q + (std::size_t{work.row} * kv.kv_heads + work.kv_head) * attention.group * kv.dim);
    const HeadPages pages = head_pages(kv, work.row, work.kv_head, sizeof(Bits));
    const std::size_t list = list_of(kv, attention.lists, work.row, work.kv_head);
    const std::uint32_t entries = entries_of(attention.lists, list, work);
    for (std::uint32_t e = 0; e < entries; ++e) {
      const PageEntry& entry = attention.lists.entries[list * attention.lists.capacity + work.first + e];
      const std::uint32_t mask = entry.head_mask & all_heads(attention.group);
      if (mask == 0) continue;
      const unsigned char* const k = pages.slot(entry.slot);
      heads.add(reinterpret_cast<const Bits*>(k), reinterpret_cast<const Bits*>(k + pages.v_after_k), entry.first,
                entry.first + entry.tokens, mask);
    }
    const PieceOutput out = output_of(attention, work);
    heads.finish(out.o, out.lse);
  }
}

}  // namespace tandem::gpu
