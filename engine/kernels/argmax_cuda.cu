// The two best logits of each row and the logarithm of the softmax, from parts of a row that several blocks read.
#include "engine/common/error.h"
#include "engine/kernels/argmax.h"
#include "engine/kernels/cuda/launch.cuh"

namespace tandem::gpu {

constexpr std::uint32_t kLogitsPart = 8192;  // per block: 19 blocks for 152K logits
constexpr unsigned kLogitsThreads = 512;

/// TopTwo without initial values, which shared memory cannot have.
struct Top {
  std::int32_t best;
  float best_logit;
  std::int32_t second;
  float second_logit;
};

/// What one block found in its part of a row.
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
  constexpr unsigned kWarps = kLogitsThreads / kWarp;
  TANDEM_SHARED(Top, tops, kWarps);
  TANDEM_SHARED(double, sums, kWarps);
  const float* row = logits + std::size_t{blockIdx.y} * vocab;
  const std::uint32_t begin = blockIdx.x * kLogitsPart;
  const std::uint32_t end = vocab - begin < kLogitsPart ? vocab : begin + kLogitsPart;
  const unsigned lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const float nothing = __uint_as_float(0xff800000u);

  Top top = no_top();
  for (std::uint32_t i = begin + threadIdx.x; i < end; i += kLogitsThreads) {
    const float logit = row[i] >= nothing ? row[i] : nothing;  // NaN
    offer(top, static_cast<std::int32_t>(i), logit);
  }
  top = warp_top(top);
  if (lane == 0) tops[warp] = top;
  __syncthreads();
  top = warp_top(lane < kWarps ? tops[lane] : no_top());

  double sum = 0;
  if (top.best_logit > nothing) {
    for (std::uint32_t i = begin + threadIdx.x; i < end; i += kLogitsThreads)
      sum += static_cast<double>(expf(row[i] - top.best_logit));
  }
  sum = warp_sum(sum);
  if (lane == 0) sums[warp] = sum;
  __syncthreads();
  sum = warp_sum(lane < kWarps ? sums[lane] : 0.0);
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
