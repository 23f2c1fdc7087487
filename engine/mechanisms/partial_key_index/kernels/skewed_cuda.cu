// The partial index of keys: components along directions, scores from them, and the choice of tokens. A prompt's keys
// are a product of matrices by ordinary multiply-adds: it happens once per prompt.
#include <algorithm>

#include "engine/common/error.h"
#include "engine/kernels/cuda/launch.cuh"
#include "engine/kernels/radix_select.cuh"
#include "engine/mechanisms/partial_key_index/kernels/skewed.h"

namespace tandem::gpu {

constexpr unsigned kSkewThreads = 128;
constexpr unsigned kSkewTokens = 16;     // per block: a page, which lies in one run
constexpr unsigned kScoreTokens = 1024;  // per block: the query's components are worth making

constexpr unsigned kGramTile = 16;

/// A tile of both matrices, element by element; the rows pass by in their order. Grid: {tiles, tiles, heads}; block:
/// {kGramTile, kGramTile}.
__global__ void __launch_bounds__(kGramTile* kGramTile)
    skew_grams_kernel(const SkewGrams* all, std::uint32_t first, std::uint32_t group,
                      const __grid_constant__ KvPages kv) {
  TANDEM_SHARED(float, left, kGramTile* kGramTile);   // [row][i]
  TANDEM_SHARED(float, right, kGramTile* kGramTile);  // [row][j]
  const SkewGrams& grams = all[first + blockIdx.z];
  const std::uint32_t dim = kv.dim, x = threadIdx.x, y = threadIdx.y;
  const std::uint32_t i = blockIdx.y * kGramTile + y, j = blockIdx.x * kGramTile + x;
  for (const bool keys : {true, false}) {
    const std::uint32_t rows = keys ? grams.tokens : grams.observed * group;
    double sum = 0.0;
    for (std::uint32_t begin = 0; begin < rows; begin += kGramTile) {
      const std::uint32_t row = begin + y, column_i = blockIdx.y * kGramTile + x;
      const void* data = grams.queries + row / group * grams.stride + std::size_t{row % group} * dim;
      if (keys && row < rows) data = kv.key(grams.slots[row / kListPageTokens], grams.kv_head, row);
      const DType type = keys ? kv.type : DType::f32;
      left[y * kGramTile + x] = row < rows && column_i < dim ? load_1(data, type, column_i) : 0.0f;
      right[y * kGramTile + x] = row < rows && j < dim ? load_1(data, type, j) : 0.0f;
      __syncthreads();
      for (unsigned r = 0; r < kGramTile; ++r)
        sum += static_cast<double>(left[r * kGramTile + y]) * static_cast<double>(right[r * kGramTile + x]);
      __syncthreads();
    }
    if (i < dim && j < dim) (keys ? grams.key_gram : grams.query_gram)[std::size_t{i} * dim + j] = sum;
  }
}

constexpr unsigned kEigenThreads = 256;
constexpr unsigned kEigenPairs = 256;  // of 512 dimensions

/// block_sum() with fewer registers: with that one the kernel below spills. `scratch`: 8 shared numbers.
__device__ __forceinline__ double block_sum_of_eigen(double value, double* scratch) {
  value = warp_sum(value);
  if (threadIdx.x % kWarp == 0) scratch[threadIdx.x / kWarp] = value;
  __syncthreads();
  value = 0.0;
  for (unsigned warp = 0; warp < kEigenThreads / kWarp; ++warp) value += scratch[warp];
  __syncthreads();
  return value;
}

/// Jacobi rotations, n / 2 disjoint ones at a time: in a round robin every dimension meets every other once per sweep
/// (Brent and Luk 1985). The vectors grow in `queries`. A block per head.
__global__ void __launch_bounds__(kEigenThreads)
    skew_directions_kernel(double* keys, double* queries, std::uint32_t n, std::uint32_t columns, float* skew) {
  TANDEM_SHARED(double, cosines, kEigenPairs);
  TANDEM_SHARED(double, sines, kEigenPairs);
  TANDEM_SHARED(double, scratch, kEigenThreads / kWarp);
  const std::size_t size = std::size_t{n} * n;
  double* const a = keys + blockIdx.x * size;
  double* const v = queries + blockIdx.x * size;
  double key_trace = 0.0, query_trace = 0.0;
  for (std::uint32_t i = threadIdx.x; i < n; i += kEigenThreads) {
    key_trace += a[i * (std::size_t{n} + 1)];
    query_trace += v[i * (std::size_t{n} + 1)];
  }
  key_trace = block_sum_of_eigen(key_trace, scratch);
  query_trace = block_sum_of_eigen(query_trace, scratch);
  double norm = 0.0;
  for (std::size_t i = threadIdx.x; i < size; i += kEigenThreads) {
    a[i] = (key_trace > 0.0 ? a[i] / key_trace : a[i]) + (query_trace > 0.0 ? v[i] / query_trace : v[i]);
    v[i] = i % (std::size_t{n} + 1) == 0 ? 1.0 : 0.0;
    norm += a[i] * a[i];
  }
  norm = block_sum_of_eigen(norm, scratch);
  const std::uint32_t players = n + n % 2, rounds = players - 1, pairs = players / 2;
  for (int sweep = 0; sweep < 40; ++sweep) {
    double off = 0.0;
    for (std::size_t i = threadIdx.x; i < size; i += kEigenThreads)
      if (i % (std::size_t{n} + 1) != 0) off += a[i] * a[i];
    off = block_sum_of_eigen(off, scratch);
    if (!(off > 1e-24 * norm)) break;  // for all threads alike
    for (std::uint32_t round = 0; round < rounds; ++round) {
      const auto one = [=](std::uint32_t pair) { return pair == 0 ? rounds : (round + pair) % rounds; };
      const auto other = [=](std::uint32_t pair) { return (round + rounds - pair) % rounds; };
      for (std::uint32_t pair = threadIdx.x; pair < pairs; pair += kEigenThreads) {
        const std::uint32_t p = one(pair), q = other(pair);
        double c = 1.0, s = 0.0;
        if (p < n && q < n && a[std::size_t{p} * n + q] != 0.0) {
          const double apq = a[std::size_t{p} * n + q];
          const double theta = (a[std::size_t{q} * n + q] - a[std::size_t{p} * n + p]) / (2.0 * apq);
          const double t = (theta < 0.0 ? -1.0 : 1.0) / (fabs(theta) + sqrt(theta * theta + 1.0));
          c = 1.0 / sqrt(t * t + 1.0);
          s = t * c;
        }
        cosines[pair] = c;
        sines[pair] = s;
      }
      __syncthreads();
      for (std::size_t i = threadIdx.x; i < std::size_t{pairs} * n; i += kEigenThreads) {  // rows of both
        const auto pair = static_cast<std::uint32_t>(i / n);
        const std::size_t p = one(pair), q = other(pair), column = i % n;
        if (p >= n || q >= n) continue;
        for (double* const m : {a, v}) {
          const double at_p = m[p * n + column], at_q = m[q * n + column];
          m[p * n + column] = cosines[pair] * at_p - sines[pair] * at_q;
          m[q * n + column] = sines[pair] * at_p + cosines[pair] * at_q;
        }
      }
      __syncthreads();
      for (std::size_t i = threadIdx.x; i < std::size_t{pairs} * n; i += kEigenThreads) {  // columns
        const auto pair = static_cast<std::uint32_t>(i % pairs);
        const std::size_t p = one(pair), q = other(pair), row = i / pairs;
        if (p >= n || q >= n) continue;
        const double at_p = a[row * n + p], at_q = a[row * n + q];
        a[row * n + p] = row == q ? 0.0 : cosines[pair] * at_p - sines[pair] * at_q;
        a[row * n + q] = row == p ? 0.0 : sines[pair] * at_p + cosines[pair] * at_q;
      }
      __syncthreads();
    }
  }
  // A warp per dimension: its vector goes to where its eigenvalue ranks.
  for (std::uint32_t i = threadIdx.x / kWarp; i < n; i += kEigenThreads / kWarp) {
    const double value = a[i * (std::size_t{n} + 1)];
    std::uint32_t rank = 0;
    for (std::uint32_t k = 0; k < n; ++k) {
      const double other = a[k * (std::size_t{n} + 1)];
      rank += other > value || (other == value && k < i) ? 1u : 0u;
    }
    if (rank >= columns) continue;
    for (std::uint32_t d = threadIdx.x % kWarp; d < n; d += kWarp)
      skew[(blockIdx.x * std::size_t{columns} + rank) * n + d] = static_cast<float>(v[std::size_t{i} * n + d]);
  }
}

/// Dynamic shared memory: a page of keys, kSkewTokens * dim floats. Grid: {pages, heads}.
__global__ void __launch_bounds__(kSkewThreads)
    skew_keys_kernel(const __grid_constant__ LaunchArray<SkewedKeys> all, std::uint32_t first, std::uint32_t columns,
                     const __grid_constant__ KvPages kv) {
  TANDEM_DYNAMIC_SHARED(shared);
  float* const rows = reinterpret_cast<float*>(shared);  // [token][dim]
  const SkewedKeys keys = all[first + blockIdx.y];
  const std::uint32_t begin = blockIdx.x * kSkewTokens, dim = kv.dim;
  if (begin >= keys.tokens) return;
  const std::uint32_t tokens = keys.tokens - begin < kSkewTokens ? keys.tokens - begin : kSkewTokens;
  static_assert(kSkewTokens == kListPageTokens);
  const char* const page = kv.key(keys.slots[blockIdx.x], keys.kv_head, 0);
  for (std::uint32_t i = threadIdx.x; i < kSkewTokens * dim; i += kSkewThreads)
    rows[i] = i < tokens * dim ? load_1(page, kv.type, i) : 0.0f;
  __syncthreads();
  // A warp per direction, read once for all tokens of the page; a lane sums every 32nd product.
  for (std::uint32_t c = threadIdx.x / kWarp; c < columns; c += kSkewThreads / kWarp) {
    const float* direction = keys.skew + std::size_t{c} * dim;
    float sums[kSkewTokens] = {};
    for (std::uint32_t d = threadIdx.x % kWarp; d < dim; d += kWarp) {
      const float x = direction[d];
#pragma unroll
      for (unsigned t = 0; t < kSkewTokens; ++t) sums[t] = fmaf(x, rows[t * dim + d], sums[t]);
    }
#pragma unroll
    for (unsigned t = 0; t < kSkewTokens; ++t) {
      const float sum = warp_sum(sums[t]);
      if (t < tokens && threadIdx.x % kWarp == t) store_1(keys.out, kv.type, std::size_t{begin + t} * columns + c, sum);
    }
  }
}

/// Dynamic shared memory: group * columns floats. Grid: {ceil(n / kScoreTokens), heads}.
__global__ void __launch_bounds__(kSkewThreads)
    skewed_scores_kernel(const __grid_constant__ LaunchArray<SkewedScores> requests, std::uint32_t first,
                         const __grid_constant__ SkewedShape shape) {
  TANDEM_DYNAMIC_SHARED(shared);
  float* const query = reinterpret_cast<float*>(shared);  // [group][columns]
  const SkewedScores request = requests[first + blockIdx.y];
  const std::uint32_t begin = blockIdx.x * kScoreTokens;
  if (begin >= request.n) return;
  for (std::uint32_t i = threadIdx.x / kWarp; i < shape.group * shape.columns; i += kSkewThreads / kWarp) {
    const float* q = request.q + std::size_t{i / shape.columns} * shape.dim;
    const float* direction = request.skew + std::size_t{i % shape.columns} * shape.dim;
    float sum = 0.0f;
    for (std::uint32_t d = threadIdx.x % kWarp; d < shape.dim; d += kWarp) sum = fmaf(direction[d], q[d], sum);
    sum = warp_sum(sum);
    if (threadIdx.x % kWarp == 0) query[i] = sum;
  }
  __syncthreads();
  const float root = sqrtf(static_cast<float>(shape.dim));
  const std::uint32_t end = request.n - begin < kScoreTokens ? request.n : begin + kScoreTokens;
  for (std::uint32_t t = begin + threadIdx.x; t < end; t += kSkewThreads) {
    for (std::uint32_t h = 0; h < shape.group; ++h) {  // the row stays in the first-level cache
      float sum = 0.0f;
      for (std::uint32_t c = 0; c < shape.columns; ++c)
        sum = fmaf(query[h * shape.columns + c], load_1(request.keys, shape.type, std::size_t{t} * shape.columns + c),
                   sum);
      request.scores[std::size_t{h} * request.n + t] = sum / root;
    }
  }
}

/// How many tokens of a query head score near its best. Grid: {query heads, choices}.
__global__ void __launch_bounds__(kSelectThreads) near_the_best_kernel(const SkewedChoice* choices) {
  TANDEM_SHARED(float, most_of, kWarp);
  TANDEM_SHARED(std::uint32_t, sums, kWarp);
  const SkewedChoice& choice = choices[blockIdx.y];
  const float* scores = choice.scores + std::size_t{blockIdx.x} * choice.n;
  float most = -__builtin_huge_valf();
  for (std::uint32_t t = threadIdx.x; t < choice.n; t += kSelectThreads) most = fmaxf(most, scores[t]);
  const double least = static_cast<double>(block_max(most, most_of)) - choice.alpha;
  std::uint32_t mine = 0, near = 0;
  for (std::uint32_t t = threadIdx.x; t < choice.n; t += kSelectThreads)
    mine += static_cast<double>(scores[t]) >= least ? 1u : 0u;
  sum_before(mine, sums, near);
  if (threadIdx.x == 0) choice.near[blockIdx.x] = near;
}

/// Units that a choice keeps, from how many tokens its heads count.
__device__ __forceinline__ std::uint32_t kept_units(const SkewedChoice& choice, std::uint32_t heads) {
  unsigned long long near = 0;
  for (std::uint32_t h = 0; h < heads; ++h) near += choice.near[h];
  const auto tokens = static_cast<std::uint32_t>((near + heads - 1) / heads);
  const std::uint32_t unit = choice.unit, units = choice.n / unit;
  std::uint32_t keep = tokens / unit + (tokens % unit != 0 ? 1 : 0);
  if (keep > choice.most) keep = choice.most;
  return keep > units ? units : keep;
}

/// The best of a unit's tokens under any of `heads` query heads.
__device__ __forceinline__ float unit_score(const SkewedChoice& choice, std::uint32_t first_head, std::uint32_t heads,
                                            std::uint32_t unit) {
  const float* scores = choice.scores + std::size_t{first_head} * choice.n + std::size_t{unit} * choice.unit;
  float score = __uint_as_float(0xff800000u);
  for (std::uint32_t h = 0; h < heads; ++h, scores += choice.n) {
    for (std::uint32_t t = 0; t < choice.unit; ++t) score = fmaxf(score, scores[t]);
  }
  return score;
}

/// Grid: {KV heads, choices}.
__global__ void __launch_bounds__(kSelectThreads) best_units_kernel(const SkewedChoice* choices, std::uint32_t group) {
  TANDEM_SHARED(SelectScratch, all_scratch, 1);
  const SkewedChoice& choice = choices[blockIdx.y];
  const std::uint32_t units = choice.n / choice.unit, keep = kept_units(choice, gridDim.x * group);
  list_best([&](std::uint32_t i) { return order_key(unit_score(choice, blockIdx.x * group, group, i)); }, units, keep,
            choice.chosen + blockIdx.x * (1 + std::size_t{choice.room}), all_scratch[0]);
}

/// Chooses what any head of the group would choose by itself. Grid: {KV heads, choices}.
__global__ void __launch_bounds__(kSelectThreads)
    best_units_of_each_kernel(const SkewedChoice* choices, std::uint32_t group) {
  TANDEM_SHARED(SelectScratch, all_scratch, 1);
  SelectScratch& scratch = all_scratch[0];
  const SkewedChoice& choice = choices[blockIdx.y];
  const std::uint32_t units = choice.n / choice.unit, keep = kept_units(choice, gridDim.x * group);
  std::uint32_t* const marks = choice.marks + std::size_t{blockIdx.x} * units;
  for (std::uint32_t i = threadIdx.x; i < units; i += kSelectThreads) marks[i] = 0;
  for (std::uint32_t h = 0; keep > 0 && h < group; ++h) {
    const auto key_of = [&](std::uint32_t i) { return order_key(unit_score(choice, blockIdx.x * group + h, 1, i)); };
    walk_selection(key_of, units, end_of_selection(key_of, units, keep, scratch), scratch,
                   [marks](std::uint32_t, std::uint32_t i) { marks[i] = 1; });
  }
  __syncthreads();
  std::uint32_t mine = 0, count = 0;
  for (std::uint32_t i = threadIdx.x; i < units; i += kSelectThreads) mine += marks[i];
  sum_before(mine, scratch.sums, count);
  std::uint32_t* const chosen = choice.chosen + blockIdx.x * (1 + std::size_t{choice.room});
  if (threadIdx.x == 0) chosen[0] = count;
  if (count == 0) return;
  walk_selection([marks](std::uint32_t i) { return marks[i]; }, units, SelectionEnd{1, count}, scratch,
                 [chosen](std::uint32_t rank, std::uint32_t i) { chosen[1 + rank] = i; });
}

/// A unit per thread, its scores summed in the order of the KV heads. Grid: {units, choices}.
__global__ void __launch_bounds__(kSkewThreads)
    sum_units_kernel(const SkewedChoice* choices, std::uint32_t kv_heads, std::uint32_t group) {
  const SkewedChoice& choice = choices[blockIdx.y];
  const std::uint32_t unit = blockIdx.x * kSkewThreads + threadIdx.x;
  if (unit >= choice.n / choice.unit) return;
  float sum = 0.0f;
  for (std::uint32_t head = 0; head < kv_heads; ++head) sum += unit_score(choice, head * group, group, unit);
  choice.sums[unit] = sum;
}

/// One choice, copied to the lists of all KV heads. A block per choice.
__global__ void __launch_bounds__(kSelectThreads)
    best_units_of_all_kernel(const SkewedChoice* choices, std::uint32_t kv_heads, std::uint32_t group) {
  TANDEM_SHARED(SelectScratch, all_scratch, 1);
  const SkewedChoice& choice = choices[blockIdx.x];
  const std::uint32_t units = choice.n / choice.unit, keep = kept_units(choice, kv_heads * group);
  std::uint32_t* const chosen = choice.chosen;
  const float* const sums = choice.sums;
  list_best([sums](std::uint32_t i) { return order_key(sums[i]); }, units, keep, chosen, all_scratch[0]);
  __syncthreads();
  const std::size_t stride = 1 + std::size_t{choice.room};
  for (std::uint32_t i = threadIdx.x; i <= keep; i += kSelectThreads) {
    for (std::uint32_t head = 1; head < kv_heads; ++head) chosen[head * stride + i] = chosen[i];
  }
}

}  // namespace tandem::gpu

namespace tandem {
using namespace gpu;

void skew_grams_cuda(const SkewGrams* grams, std::uint32_t count, std::uint32_t group, const KvPages& kv,
                     CudaStream stream) {
  TANDEM_CHECK(group >= 1, "The queries of a group of no heads.");
  const unsigned tiles = blocks_for(kv.dim, kGramTile);
  for (std::uint32_t first = 0; first < count; first += kMaxGridRows)
    launch(stream, skew_grams_kernel, dim3(tiles, tiles, std::min(count - first, kMaxGridRows)),
           dim3(kGramTile, kGramTile), 0, grams, first, group, kv);
}

void skew_directions_cuda(double* keys, double* queries, std::uint32_t heads, std::uint32_t dim, std::uint32_t columns,
                          float* skew, CudaStream stream) {
  TANDEM_CHECK(dim <= 2 * kEigenPairs && columns <= dim, "{} directions of {} dimensions.", columns, dim);
  launch(stream, skew_directions_kernel, heads, kEigenThreads, 0, keys, queries, dim, columns, skew);
}

void skew_keys_cuda(const LaunchArray<SkewedKeys>& keys, std::uint32_t count, std::uint32_t most, std::uint32_t columns,
                    const KvPages& kv, CudaStream stream) {
  for (std::uint32_t first = 0; first < count; first += kMaxGridRows)
    launch(stream, skew_keys_kernel, dim3(blocks_for(most, kSkewTokens), std::min(count - first, kMaxGridRows)),
           kSkewThreads, kSkewTokens * kv.dim * sizeof(float), keys, first, columns, kv);
}

void skewed_scores_cuda(const LaunchArray<SkewedScores>& requests, std::uint32_t count, std::uint32_t most,
                        const SkewedShape& shape, CudaStream stream) {
  TANDEM_CHECK(std::size_t{shape.group} * shape.columns <= 8192, "{} query heads of {} components.", shape.group,
               shape.columns);
  for (std::uint32_t first = 0; first < count; first += kMaxGridRows)
    launch(stream, skewed_scores_kernel, dim3(blocks_for(most, kScoreTokens), std::min(count - first, kMaxGridRows)),
           kSkewThreads, shape.group * shape.columns * sizeof(float), requests, first, shape);
}

void choose_skewed_cuda(const SkewedChoice* choices, std::uint32_t count, std::uint32_t most_units,
                        std::uint32_t kv_heads, std::uint32_t group, Scope scope, CudaStream stream) {
  TANDEM_CHECK(group >= 1 && kv_heads >= 1 && count <= kMaxGridRows, "{} choices of {} groups of {}.", count, kv_heads,
               group);
  launch(stream, near_the_best_kernel, dim3(kv_heads * group, count), kSelectThreads, 0, choices);
  if (scope != Scope::layer) {
    launch(stream, scope == Scope::kv_head ? best_units_kernel : best_units_of_each_kernel, dim3(kv_heads, count),
           kSelectThreads, 0, choices, group);
    return;
  }
  launch(stream, sum_units_kernel, dim3(blocks_for(most_units, kSkewThreads), count), kSkewThreads, 0, choices,
         kv_heads, group);
  launch(stream, best_units_of_all_kernel, count, kSelectThreads, 0, choices, kv_heads, group);
}

}  // namespace tandem
