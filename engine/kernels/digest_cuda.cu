// Digests of blocks and the scores that bound their keys.
#include "engine/common/error.h"
#include "engine/kernels/cuda/launch.cuh"
#include "engine/kernels/digest.h"

namespace tandem::gpu {

constexpr unsigned kDigestThreads = 128;

/// One dimension after the other of each thread. Minimum and maximum are exact elements, a mean has the CPU's order of
/// sums. Grid: {blocks of the longest run, kv_heads, runs}.
template <class Element>
__global__ void __launch_bounds__(kDigestThreads)
    build_digests_kernel(const __grid_constant__ KvPages kv, const __grid_constant__ LaunchArray<DigestRun> runs,
                         std::uint32_t block_tokens, DigestKind kind) {
  const DigestRun run = runs[blockIdx.z];
  const std::uint32_t first = blockIdx.x * block_tokens;
  if (first >= run.tokens) return;
  const std::uint32_t count = run.tokens - first < block_tokens ? run.tokens - first : block_tokens;
  const auto key = [&](std::uint32_t i) {
    const std::uint32_t token = first + i;
    return reinterpret_cast<const typename Element::Bits*>(
        kv.key(run.slots[token / kListPageTokens], blockIdx.y, token));
  };
  auto* const least = static_cast<typename Element::Bits*>(run.digests) +
                      (std::size_t{blockIdx.y} * vectors_of(kind) * run.room + blockIdx.x) * kv.dim;
  if (kind == DigestKind::mean) {
    const float share = 1.0f / static_cast<float>(count);
    for (std::uint32_t d = threadIdx.x; d < kv.dim; d += blockDim.x) {
      float sum = 0.0f;
#pragma unroll 8
      for (std::uint32_t i = 0; i < count; ++i) sum += Element::widen(key(i)[d]);
      least[d] = Element::narrow(sum * share);
    }
    return;
  }
  auto* const most = least + std::size_t{run.room} * kv.dim;
  for (std::uint32_t d = threadIdx.x; d < kv.dim; d += blockDim.x) {
    float low = Element::widen(key(0)[d]), high = low;
#pragma unroll 8
    for (std::uint32_t i = 1; i < count; ++i) {
      const float value = Element::widen(key(i)[d]);
      low = fminf(low, value);
      high = fmaxf(high, value);
    }
    least[d] = Element::narrow(low);
    most[d] = Element::narrow(high);
  }
}

constexpr unsigned kScoreThreads = 128;
constexpr unsigned kScoreLanes = 8;    // that share a block of keys
constexpr unsigned kScoreBlocks = 64;  // per block of threads
constexpr unsigned kScoreHeads = 4;    // whose sums a lane keeps: a digest is read once per four heads

/// 16 bytes of elements as numbers.
template <class Element>
struct Chunk {
  static constexpr unsigned kCount = 16 / sizeof(typename Element::Bits);
  float values[kCount];
  __device__ __forceinline__ explicit Chunk(const typename Element::Bits* at) {
    const uint4 bits = load_stream(at);
    const std::uint32_t words[4] = {bits.x, bits.y, bits.z, bits.w};
#pragma unroll
    for (unsigned w = 0; w < 4; ++w) {
      if constexpr (kCount == 4) {
        values[w] = __uint_as_float(words[w]);
      } else {
        const float2 pair = Element::widen_pair(words[w]);
        values[2 * w] = pair.x;
        values[2 * w + 1] = pair.y;
      }
    }
  }
};

/// max(q min, q max) = max(q, 0) max + min(q, 0) min: two multiply-adds and no comparison. A mean is both. Eight lanes
/// share a block of keys, so that a warp reads four digests in whole lines; the parts of q lie in shared memory as the
/// lanes read them. Dynamic shared memory: 2 * group * dim floats. Grid: {ceil(most_blocks / kScoreBlocks), kv_heads,
/// rows}. kWide: rows of digests are whole chunks of 16 bytes.
template <class Element, bool kWide>
__global__ void __launch_bounds__(kScoreThreads)
    score_blocks_kernel(const BlockScores* rows, std::uint32_t group, std::uint32_t dim, DigestKind kind) {
  constexpr unsigned kCount = kWide ? Chunk<Element>::kCount : 1;
  TANDEM_DYNAMIC_SHARED(shared);
  float* const positive = reinterpret_cast<float*>(shared);     // [group][part of a chunk][chunk][4 or 1]
  float* const negative = positive + std::size_t{group} * dim;  // the same
  const BlockScores& row = rows[blockIdx.z];
  const std::uint32_t kv_head = blockIdx.y, blocks = row.blocks, chunks = dim / kCount;
  const std::uint32_t room = row.room == 0 ? blocks : row.room;
  const float* const q = row.q + std::size_t{kv_head} * group * dim;
  for (std::uint32_t i = threadIdx.x; i < group * dim; i += kScoreThreads) {
    const std::uint32_t d = i % dim, chunk = d / kCount, e = d % kCount;
    const std::uint32_t at = i - d + (kCount < 4 ? d : e / 4 * (dim / kCount * 4) + chunk * 4 + e % 4);
    positive[at] = fmaxf(q[i], 0.0f);
    negative[at] = fminf(q[i], 0.0f);
  }
  __syncthreads();

  const unsigned lane = threadIdx.x % kScoreLanes;
  const auto* const least =
      static_cast<const typename Element::Bits*>(row.digests) + std::size_t{kv_head} * vectors_of(kind) * room * dim;
  const auto* const most = kind == DigestKind::bounds ? least + std::size_t{room} * dim : least;
  for (std::uint32_t i = threadIdx.x / kScoreLanes; i < kScoreBlocks; i += kScoreThreads / kScoreLanes) {
    // Lanes of a warp go through the loop together: beyond the end they take the last block once more.
    const std::uint32_t wanted = blockIdx.x * kScoreBlocks + i;
    if (blocks == 0) break;
    const std::uint32_t b = wanted < blocks ? wanted : blocks - 1;
    const std::size_t at = std::size_t{b} * dim;
    for (std::uint32_t first = 0; first < group; first += kScoreHeads) {
      float sums[kScoreHeads] = {};
      for (std::uint32_t c = lane; c < chunks; c += kScoreLanes) {
        if constexpr (kWide) {
          const Chunk<Element> low(least + at + c * kCount);
          const Chunk<Element> high = most == least ? low : Chunk<Element>(most + at + c * kCount);
#pragma unroll
          for (unsigned h = 0; h < kScoreHeads; ++h) {
            if (first + h >= group) break;
            const std::size_t from = std::size_t{first + h} * dim + c * 4;
#pragma unroll
            for (unsigned part = 0; part < kCount / 4; ++part) {
              const float4 up = load_vector<float4>(positive + from + part * chunks * 4);
              const float4 down = load_vector<float4>(negative + from + part * chunks * 4);
              const float *l = low.values + part * 4, *m = high.values + part * 4;
              sums[h] = fmaf(up.x, m[0], fmaf(down.x, l[0], sums[h]));
              sums[h] = fmaf(up.y, m[1], fmaf(down.y, l[1], sums[h]));
              sums[h] = fmaf(up.z, m[2], fmaf(down.z, l[2], sums[h]));
              sums[h] = fmaf(up.w, m[3], fmaf(down.w, l[3], sums[h]));
            }
          }
        } else {
          const float low = Element::widen(least[at + c]), high = Element::widen(most[at + c]);
#pragma unroll
          for (unsigned h = 0; h < kScoreHeads; ++h) {
            if (first + h >= group) break;
            const std::size_t from = std::size_t{first + h} * dim + c;
            sums[h] = fmaf(positive[from], high, fmaf(negative[from], low, sums[h]));
          }
        }
      }
#pragma unroll
      for (unsigned h = 0; h < kScoreHeads; ++h) {
#pragma unroll
        for (unsigned step = kScoreLanes / 2; step > 0; step /= 2)
          sums[h] += __shfl_xor_sync(kWholeWarp, sums[h], step);
        if (lane == h && first + h < group && wanted < blocks)
          row.scores[(std::size_t{kv_head} * group + first + h) * blocks + b] = sums[h];
      }
    }
  }
}

}  // namespace tandem::gpu

namespace tandem {
using namespace gpu;

void build_digests_cuda(const KvPages& kv, const LaunchArray<DigestRun>& runs, std::uint32_t n,
                        std::uint32_t most_tokens, std::uint32_t pages_per_block, CudaStream stream, DigestKind kind) {
  TANDEM_CHECK(pages_per_block >= 1, "An empty block has no digest.");
  TANDEM_CHECK(n <= kMaxGridRows, "{} runs of blocks.", n);
  const std::uint32_t block = pages_per_block * kListPageTokens;
  with_element(kv.type, [&](auto element) {
    launch(stream, build_digests_kernel<decltype(element)>, dim3((most_tokens + block - 1) / block, kv.kv_heads, n),
           kDigestThreads, 0, kv, runs, block, kind);
  });
}

void score_blocks_cuda(const BlockScores* rows, std::uint32_t n, std::uint32_t most_blocks, std::uint32_t kv_heads,
                       AttentionShape shape, CudaStream stream, DigestKind kind) {
  TANDEM_CHECK(shape.group >= 1 && shape.group <= 32, "A group has 1 to 32 query heads, not {}.", shape.group);
  const dim3 grid((most_blocks + kScoreBlocks - 1) / kScoreBlocks, kv_heads, n);
  const std::size_t shared = std::size_t{2} * shape.group * shape.dim * sizeof(float);
  const bool wide = shape.dim * size_of(shape.kv) % 16 == 0;
  with_element(shape.kv, [&](auto element) {
    using Element = decltype(element);
    launch(stream, wide ? score_blocks_kernel<Element, true> : score_blocks_kernel<Element, false>, grid, kScoreThreads,
           shared, rows, shape.group, shape.dim, kind);
  });
}

}  // namespace tandem
