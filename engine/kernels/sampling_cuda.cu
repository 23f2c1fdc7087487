// Drawing the next token, a block of threads per row: the filters are ends of selections by radix, over counts for
// top_k and over weights for top_p; sums of whole weights are the same in any order. The logits are read a dozen times,
// from the second-level cache.
#include "engine/common/error.h"
#include "engine/kernels/cuda/launch.cuh"
#include "engine/kernels/radix_select.cuh"
#include "engine/kernels/sampling.h"
#include "engine/kernels/sampling_math.h"

namespace tandem::gpu {

using Weight = unsigned long long;  // as atomicAdd takes it

__device__ __forceinline__ float logit_of_key(std::uint32_t key) {
  return __uint_as_float((key >> 31) != 0 ? key & 0x7fffffffu : ~key);
}

struct SampleScratch {
  SelectScratch select;
  Weight digits[kSelectDigits];
  Weight sums[kWarp];
  Weight left;
};

/// Of those up to `end`, the best whose weights first reach `share` of their sum.
template <class KeyOf, class WeightOf>
__device__ __forceinline__ SelectionEnd end_of_share(const KeyOf& key_of, const WeightOf& weight_of, std::uint32_t n,
                                                     SelectionEnd end, float share, SampleScratch& scratch) {
  std::uint32_t prefix = 0, known = 0;
  Weight left = 0;
  for (int shift = 24; shift >= 0; shift -= 8) {
    scratch.digits[threadIdx.x] = 0;
    __syncthreads();
    for (std::uint32_t i = threadIdx.x; i < n; i += kSelectThreads) {
      const std::uint32_t key = key_of(i);
      if (key <= end.key || (key & known) != prefix) continue;
      const Weight weight = weight_of(logit_of_key(key));
      if (weight > 0) atomicAdd(&scratch.digits[key >> shift & 0xffu], weight);
    }
    if (threadIdx.x == 0 && end.ties > 0 && (end.key & known) == prefix)
      atomicAdd(&scratch.digits[end.key >> shift & 0xffu], end.ties * weight_of(logit_of_key(end.key)));
    __syncthreads();
    const std::uint32_t digit = kSelectDigits - 1 - threadIdx.x;
    const Weight weight = scratch.digits[digit];
    Weight all = 0;
    const Weight above = sum_before(weight, scratch.sums, all);
    if (shift == 24) left = sampling::least_sum(share, all);
    if (above < left && above + weight >= left) {  // of one thread
      scratch.select.found[0] = digit;
      scratch.left = left - above;
    }
    __syncthreads();
    prefix |= scratch.select.found[0] << shift;
    known |= 0xffu << shift;
    left = scratch.left;
  }
  const Weight each = weight_of(logit_of_key(prefix));
  return {prefix, static_cast<std::uint32_t>((left + each - 1) / each)};
}

__global__ void __launch_bounds__(kSelectThreads)
    sample_tokens_kernel(const __grid_constant__ LaunchArray<SampleRow> rows, std::uint32_t vocab) {
  TANDEM_SHARED(SampleScratch, all_scratch, 1);
  SampleScratch& scratch = all_scratch[0];
  const SampleRow row = rows[blockIdx.x];
  const Sampling& how = row.how;
  const auto key_of = [&row](std::uint32_t i) { return order_key(row.logits[i]); };
  // The best token: the first of the selection of one.
  const SelectionEnd best_end = end_of_selection(key_of, vocab, 1, scratch.select);
  const float best = logit_of_key(best_end.key), infinity = __builtin_huge_valf();
  if (how.temperature == 0.0f || !(best < infinity && best > -infinity)) {
    walk_selection(key_of, vocab, best_end, scratch.select,
                   [&row](std::uint32_t, std::uint32_t i) { *row.token = static_cast<std::int32_t>(i); });
    return;
  }
  const double scale = sampling::kLog2E / static_cast<double>(how.temperature);
  const Weight best_weight = sampling::weight(best, best, scale);
  const auto weight_of = [best, scale](float logit) -> Weight { return sampling::weight(logit, best, scale); };
  SelectionEnd end{0, 0};  // all
  if (how.top_k > 0 && how.top_k < vocab) end = end_of_selection(key_of, vocab, how.top_k, scratch.select);
  if (how.top_p < 1.0f) end = end_of_share(key_of, weight_of, vocab, end, how.top_p, scratch);

  // What is left, in order of the token.
  const auto kept_weight = [&](std::uint32_t i) -> Weight {
    const Weight weight = weight_of(logit_of_key(key_of(i)));
    return sampling::heavy_enough(weight, how.min_p, best_weight) ? weight : 0;
  };
  Weight mine = 0, total = 0;
  walk_selection(key_of, vocab, end, scratch.select, [&](std::uint32_t, std::uint32_t i) { mine += kept_weight(i); });
  sum_before(mine, scratch.sums, total);
  Weight left = sampling::scaled(sampling::random_bits(how.seed, row.position), total);
  Weight here = 0;  // of this thread's neighbours
  std::uint32_t first = 0;
  Weight weights[kSelectRun] = {};
  walk_selection(
      key_of, vocab, end, scratch.select,
      [&](std::uint32_t, std::uint32_t i) {
        first = i / kSelectRun * kSelectRun;
        weights[i % kSelectRun] = kept_weight(i);
        here += weights[i % kSelectRun];
      },
      [&] {
        Weight all = 0;
        const Weight before = sum_before(here, scratch.sums, all);
        if (left >= before && left < before + here) {
          Weight rest = left - before;
          unsigned i = 0;
          while (rest >= weights[i]) rest -= weights[i++];
          *row.token = static_cast<std::int32_t>(first + i);
        }
        here = 0;
        for (unsigned i = 0; i < kSelectRun; ++i) weights[i] = 0;
        const bool found = left < all;
        left -= all;
        return !found;
      });
}

}  // namespace tandem::gpu

namespace tandem {
using namespace gpu;

void sample_tokens_cuda(const LaunchArray<SampleRow>& rows, std::uint32_t count, std::uint32_t vocab,
                        CudaStream stream) {
  TANDEM_CHECK(vocab >= 1, "An empty vocabulary has no token to draw.");
  launch(stream, sample_tokens_kernel, count, kSelectThreads, 0, rows, vocab);
}

}  // namespace tandem
