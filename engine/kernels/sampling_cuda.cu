// Drawing the next token, a block of threads per row: the filters are ends of selections by radix, over counts for
// top_k and over weights for top_p; sums of whole weights are the same in any order. The logits are read a dozen times,
// from the second-level cache.
// The two best logits of each row and the logarithm of the softmax come from parts of a row that several blocks read.
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
  DigitScratch<Weight> weights;
};

/// The end of the fewest best keys, among those up to `end`, whose weights reach `share` of their sum.
template <class KeyOf, class WeightOf>
__device__ __forceinline__ SelectionEnd end_of_share(const KeyOf& key_of, const WeightOf& weight_of, std::uint32_t n,
                                                     SelectionEnd end, float share, DigitScratch<Weight>& scratch) {
  const auto add = [&](int shift, std::uint32_t known, std::uint32_t prefix) {
    for (std::uint32_t i = threadIdx.x; i < n; i += kSelectThreads) {
      const std::uint32_t key = key_of(i);
      if (key <= end.key || (key & known) != prefix) continue;
      const Weight weight = weight_of(logit_of_key(key));
      if (weight > 0) atomicAdd(&scratch.digits[key >> shift & 0xffu], weight);
    }
    if (threadIdx.x == 0 && end.ties > 0 && (end.key & known) == prefix)
      atomicAdd(&scratch.digits[end.key >> shift & 0xffu], end.ties * weight_of(logit_of_key(end.key)));
  };
  std::uint32_t key = 0;
  const Weight left = reach_amount(
      add, [share](Weight all) -> Weight { return sampling::least_sum(share, all); }, scratch, key);
  const Weight each = weight_of(logit_of_key(key));
  return {key, static_cast<std::uint32_t>((left + each - 1) / each)};
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
  if (how.top_p < 1.0f) end = end_of_share(key_of, weight_of, vocab, end, how.top_p, scratch.weights);

  // The tokens that are left, in their order.
  const auto kept_weight = [&](std::uint32_t i) -> Weight {
    const Weight weight = weight_of(logit_of_key(key_of(i)));
    return sampling::heavy_enough(weight, how.min_p, best_weight) ? weight : 0;
  };
  Weight mine = 0, total = 0;
  walk_selection(key_of, vocab, end, scratch.select, [&](std::uint32_t, std::uint32_t i) { mine += kept_weight(i); });
  sum_before(mine, scratch.weights.sums, total);
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
        const Weight before = sum_before(here, scratch.weights.sums, all);
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

constexpr std::uint32_t kLogitsPart = 8192;  // per block: 19 blocks for 152K logits
constexpr unsigned kLogitsThreads = 512;

/// TopTwo without initial values, which shared memory cannot have.
struct Top {
  std::int32_t best;
  float best_logit;
  std::int32_t second;
  float second_logit;
};

/// One block's result for its part of a row.
struct LogitsPart {
  Top top;
  double sum;  // of exp(logit - top.best_logit)
};

__device__ __forceinline__ bool better(std::int32_t i, float logit, std::int32_t than, float than_logit) {
  if (i < 0 || than < 0) return i >= 0;
  return logit > than_logit || (logit == than_logit && i < than);
}

__device__ __forceinline__ void offer(Top& top, std::int32_t i, float logit) {
  if (better(i, logit, top.best, top.best_logit)) {
    top.second = top.best;
    top.second_logit = top.best_logit;
    top.best = i;
    top.best_logit = logit;
  } else if (better(i, logit, top.second, top.second_logit)) {
    top.second = i;
    top.second_logit = logit;
  }
}

__device__ __forceinline__ void offer(Top& top, const Top& other) {
  offer(top, other.best, other.best_logit);
  offer(top, other.second, other.second_logit);
}

__device__ __forceinline__ Top no_top() {
  const float nothing = __uint_as_float(0xff800000u);  // -infinity
  return {-1, nothing, -1, nothing};
}

__device__ __forceinline__ Top warp_top(Top top) {
#pragma unroll
  for (unsigned step = kWarp / 2; step > 0; step /= 2) {
    Top other;
    other.best = __shfl_xor_sync(kWholeWarp, top.best, step);
    other.best_logit = __shfl_xor_sync(kWholeWarp, top.best_logit, step);
    other.second = __shfl_xor_sync(kWholeWarp, top.second, step);
    other.second_logit = __shfl_xor_sync(kWholeWarp, top.second_logit, step);
    offer(top, other);
  }
  return top;
}

/// gridDim = (parts of a row, rows).
__global__ void __launch_bounds__(kLogitsThreads)
    logits_parts_kernel(const float* logits, std::uint32_t vocab, LogitsPart* parts) {
  TANDEM_SHARED(Top, tops, kWarp);
  TANDEM_SHARED(double, sums, kWarp);
  const float* row = logits + std::size_t{blockIdx.y} * vocab;
  const std::uint32_t begin = blockIdx.x * kLogitsPart;
  const std::uint32_t end = vocab - begin < kLogitsPart ? vocab : begin + kLogitsPart;
  const float nothing = __uint_as_float(0xff800000u);

  Top top = no_top();
  for (std::uint32_t i = begin + threadIdx.x; i < end; i += kLogitsThreads) {
    const float logit = row[i] >= nothing ? row[i] : nothing;  // NaN
    offer(top, static_cast<std::int32_t>(i), logit);
  }
  top = warp_top(of_warps(warp_top(top), no_top(), tops));

  double sum = 0;
  if (top.best_logit > nothing) {
    for (std::uint32_t i = begin + threadIdx.x; i < end; i += kLogitsThreads)
      sum += static_cast<double>(expf(row[i] - top.best_logit));
  }
  sum = block_sum(sum, sums);
  if (threadIdx.x != 0) return;
  LogitsPart& part = parts[std::size_t{blockIdx.y} * gridDim.x + blockIdx.x];
  part.top = top;
  part.sum = sum;
}

/// A warp per row.
__global__ void __launch_bounds__(kWarp)
    choose_kernel(const float* logits, std::uint32_t vocab, const LogitsPart* parts, std::uint32_t parts_per_row,
                  const std::int32_t* tokens, TopTwo* tops, std::int32_t* best, double* log_probabilities) {
  const LogitsPart* mine = parts + std::size_t{blockIdx.x} * parts_per_row;
  const float nothing = __uint_as_float(0xff800000u);
  Top top = no_top();
  for (std::uint32_t i = threadIdx.x; i < parts_per_row; i += kWarp) offer(top, mine[i].top);
  top = warp_top(top);
  double sum = 0;
  for (std::uint32_t i = threadIdx.x; i < parts_per_row; i += kWarp) {
    if (mine[i].top.best_logit > nothing)
      sum += mine[i].sum * exp(static_cast<double>(mine[i].top.best_logit) - static_cast<double>(top.best_logit));
  }
  sum = warp_sum(sum);
  if (threadIdx.x != 0) return;
  if (tops != nullptr) tops[blockIdx.x] = {top.best, top.best_logit, top.second, top.second_logit};
  if (best != nullptr) best[blockIdx.x] = top.best;
  if (log_probabilities == nullptr) return;
  const std::int32_t token = tokens == nullptr ? top.best : tokens[blockIdx.x];
  if (token < 0 || static_cast<std::uint32_t>(token) >= vocab) {
    log_probabilities[blockIdx.x] = static_cast<double>(__uint_as_float(0x7fc00000u));  // NaN
    return;
  }
  const double logit = static_cast<double>(logits[std::size_t{blockIdx.x} * vocab + static_cast<std::size_t>(token)]);
  log_probabilities[blockIdx.x] = logit - static_cast<double>(top.best_logit) - log(sum);
}

}  // namespace tandem::gpu

namespace tandem {
using namespace gpu;

void sample_tokens_cuda(const LaunchArray<SampleRow>& rows, std::uint32_t count, std::uint32_t vocab,
                        CudaStream stream) {
  TANDEM_CHECK(vocab >= 1, "An empty vocabulary has no token to draw.");
  launch(stream, sample_tokens_kernel, count, kSelectThreads, 0, rows, vocab);
}

std::size_t choose_scratch_bytes(std::uint32_t n, std::uint32_t vocab) {
  return std::size_t{n} * blocks_for(vocab, kLogitsPart) * sizeof(LogitsPart);
}

void choose_cuda(const float* logits, std::uint32_t n, std::uint32_t vocab, const std::int32_t* tokens, TopTwo* top,
                 std::int32_t* best, double* log_probabilities, void* scratch, CudaStream stream) {
  TANDEM_CHECK(vocab >= 1, "An empty vocabulary has no best token.");
  TANDEM_CHECK(n <= kMaxGridRows, "{} rows of logits.", n);
  TANDEM_CHECK(reinterpret_cast<std::uintptr_t>(scratch) % alignof(LogitsPart) == 0,
               "The scratch of choose_cuda is not aligned to {} bytes.", alignof(LogitsPart));
  auto* const parts = static_cast<LogitsPart*>(scratch);
  const unsigned parts_per_row = blocks_for(vocab, kLogitsPart);
  launch(stream, logits_parts_kernel, n == 0 ? dim3(0) : dim3(parts_per_row, n), kLogitsThreads, 0, logits, vocab,
         parts);
  launch(stream, choose_kernel, n, kWarp, 0, logits, vocab, parts, parts_per_row, tokens, top, best, log_probabilities);
}

}  // namespace tandem
