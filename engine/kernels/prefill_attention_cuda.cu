// Causal attention of a chunk of a prompt (FlashAttention-2, Dao 2023): a block takes rows that are (query, head of one
// group), so that a group reads K and V once; its warps take 32 rows each (16 at D 256), which halves what they read
// from shared memory per product, and go through the tokens in steps of 32, of which the next is on its way.
#include "engine/common/error.h"
#include "engine/kernels/attention.h"
#include "engine/kernels/attention_limits.h"
#include "engine/kernels/attention_tiles.cuh"
#include "engine/kernels/cuda/launch.cuh"
#include "engine/kernels/plain_attention_kernels.cuh"

namespace tandem::gpu {

template <unsigned kDim>
struct PrefillShape {
  static constexpr unsigned kRow = kDim + 8;  // elements: 16 bytes more than the data, against bank conflicts
  static constexpr unsigned kWarps = 4;
  static constexpr unsigned kTiles = kDim <= 128 ? 2 : 1;  // of 16 rows per warp
  static constexpr unsigned kRows = kWarps * kTiles * 16;
  static constexpr unsigned kTokens = 32;                         // per step
  static constexpr unsigned kStageElements = 2 * kTokens * kRow;  // K, then V
  static constexpr unsigned kBlockBytes = (kRows * kRow + 2 * kStageElements) * 2;
};

/// Starts the loads of K and V of kTokens tokens from `first` on. Tokens from `end` on become zeros.
template <unsigned kDim>
__device__ __forceinline__ void load_tokens(const PrefillChunk& chunk, std::uint32_t kv_head, std::uint32_t first,
                                            std::uint32_t end, std::uint16_t* stage) {
  using Shape = PrefillShape<kDim>;
  constexpr unsigned kChunks = kDim / 8, kThreads = Shape::kWarps * kWarp;
  static_assert(2 * Shape::kTokens * kChunks % kThreads == 0);
#pragma unroll
  for (unsigned i = 0; i < 2 * Shape::kTokens * kChunks / kThreads; ++i) {
    const unsigned at = i * kThreads + threadIdx.x, row = at / kChunks, column = at % kChunks * 8;
    const std::uint32_t token = first + row % Shape::kTokens;
    const bool there = token < end;
    const std::uint32_t slot = chunk.slots[there ? token / kListPageTokens : 0];
    const auto* page = reinterpret_cast<const std::uint16_t*>(chunk.kv.key(slot, kv_head, 0));
    const unsigned page_row = row / Shape::kTokens * kListPageTokens + token % kListPageTokens;
    async_copy_16(stage + row * Shape::kRow + column, page + page_row * kDim + column, there);
  }
}

/// Grid: {tiles of kRows rows, kv_heads}. Dynamic shared memory: kBlockBytes.
template <class Element, unsigned kDim>
__global__ void __launch_bounds__(PrefillShape<kDim>::kWarps* kWarp, 2)
    prefill_attention_kernel(const __grid_constant__ PrefillChunk chunk) {
  using Shape = PrefillShape<kDim>;
  constexpr unsigned kTiles = Shape::kTiles, kColumns = Shape::kTokens / 8;
  constexpr float kBits = TensorTraits<Element>::kWeightBits;
  TANDEM_DYNAMIC_SHARED(shared);
  auto* const queries = reinterpret_cast<std::uint16_t*>(shared);  // [kRows][kRow]
  std::uint16_t* const stages = queries + Shape::kRows * Shape::kRow;
  const unsigned warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  const std::uint32_t kv_head = blockIdx.y, group = chunk.q_heads / chunk.kv.kv_heads, rows = chunk.n * group;
  const std::uint32_t first_row = (gridDim.x - 1 - blockIdx.x) * Shape::kRows;  // the longest first
  const float scale = 1.0f / sqrtf(static_cast<float>(kDim));
  // Offset of a row of (query, head) in q and out.
  const auto row_offset = [&](std::uint32_t row) {
    return (std::size_t{row / group} * chunk.q_heads + kv_head * group + row % group) * kDim;
  };
  const std::uint32_t last_row = first_row + Shape::kRows < rows ? first_row + Shape::kRows - 1 : rows - 1;
  const std::uint32_t end = chunk.first_position + last_row / group + 1;  // of the tokens that any row attends
  load_tokens<kDim>(chunk, kv_head, 0, end, stages);
  async_commit();

  for (unsigned i = threadIdx.x; i < Shape::kRows * (kDim / 2); i += Shape::kWarps * kWarp) {
    const unsigned row = i / (kDim / 2), d = i % (kDim / 2) * 2;
    float2 pair = make_float2(0.0f, 0.0f);
    if (first_row + row < rows) pair = load_vector<float2>(chunk.q + row_offset(first_row + row) + d);
    reinterpret_cast<std::uint32_t*>(queries)[(row * Shape::kRow + d) / 2] = Element::narrow_pair(pair.x, pair.y);
  }

  const unsigned warp_row = warp * kTiles * 16;
  std::uint32_t limits[kTiles][2];  // tokens that this lane's rows attend
#pragma unroll
  for (unsigned tile = 0; tile < kTiles; ++tile) {
#pragma unroll
    for (unsigned half = 0; half < 2; ++half) {
      const std::uint32_t row = first_row + warp_row + tile * 16 + lane / 4 + half * 8;
      limits[tile][half] = row < rows ? chunk.first_position + row / group + 1 : 0;
    }
  }
  // Steps that every row of the warp sees whole need no mask; from warp_end on none sees any.
  const std::uint32_t warp_first = first_row + warp_row, warp_last = warp_first + kTiles * 16 - 1;
  const std::uint32_t whole = warp_last < rows ? chunk.first_position + warp_first / group + 1 : 0;
  const std::uint32_t warp_end =
      warp_first >= rows ? 0 : chunk.first_position + (warp_last < rows ? warp_last : rows - 1) / group + 1;

  SoftmaxRows<kDim> sums[kTiles];
#pragma unroll
  for (unsigned tile = 0; tile < kTiles; ++tile) sums[tile].clear();

  unsigned stage = 0;
  for (std::uint32_t first = 0; first < end; first += Shape::kTokens, stage ^= 1u) {
    async_wait<0>();
    __syncthreads();  // this step's tokens have arrived, and all warps have left the other stage
    if (first + Shape::kTokens < end) {
      load_tokens<kDim>(chunk, kv_head, first + Shape::kTokens, end, stages + (stage ^ 1u) * Shape::kStageElements);
      async_commit();
    }
    if (first >= warp_end) continue;
    const std::uint16_t* const k = stages + stage * Shape::kStageElements;
    const std::uint16_t* const v = k + Shape::kTokens * Shape::kRow;

    float s[kTiles][kColumns][4];
#pragma unroll
    for (unsigned tile = 0; tile < kTiles; ++tile) {
#pragma unroll
      for (unsigned n = 0; n < kColumns; ++n) {
#pragma unroll
        for (unsigned i = 0; i < 4; ++i) s[tile][n][i] = 0.0f;
      }
    }
#pragma unroll
    for (unsigned d = 0; d < kDim / 16; ++d) {
      std::uint32_t a[kTiles][4];
#pragma unroll
      for (unsigned tile = 0; tile < kTiles; ++tile)
        load_matrices_4(a[tile],
                        queries + (warp_row + tile * 16 + a_row(lane)) * Shape::kRow + d * 16 + a_column(lane));
#pragma unroll
      for (unsigned n = 0; n < kColumns; n += 2) {
        std::uint32_t keys[4];
        load_matrices_4(keys, k + (n * 8 + b_row(lane)) * Shape::kRow + d * 16 + b_column(lane));
        const std::uint32_t early[2] = {keys[0], keys[1]}, late[2] = {keys[2], keys[3]};
#pragma unroll
        for (unsigned tile = 0; tile < kTiles; ++tile) {
          multiply_16x8x16<Element>(s[tile][n], a[tile], early);
          multiply_16x8x16<Element>(s[tile][n + 1], a[tile], late);
        }
      }
    }
    const bool masked = first + Shape::kTokens > whole;
    std::uint32_t weights[kTiles][kColumns / 2][4];
#pragma unroll
    for (unsigned tile = 0; tile < kTiles; ++tile) {
#pragma unroll
      for (unsigned n = 0; n < kColumns; ++n) {
#pragma unroll
        for (unsigned i = 0; i < 4; ++i) {
          s[tile][n][i] = fminf(s[tile][n][i] * scale, kLargestScore);
          if (masked && first + n * 8 + lane % 4 * 2 + i % 2 >= limits[tile][i / 2]) s[tile][n][i] = kEmptyScore;
        }
      }
      sums[tile].weigh(s[tile], kBits);
#pragma unroll
      for (unsigned n = 0; n < kColumns; ++n) {
        weights[tile][n / 2][n % 2 * 2] = Element::narrow_pair(s[tile][n][0], s[tile][n][1]);
        weights[tile][n / 2][n % 2 * 2 + 1] = Element::narrow_pair(s[tile][n][2], s[tile][n][3]);
      }
    }
#pragma unroll
    for (unsigned t = 0; t < kColumns / 2; ++t) {
#pragma unroll
      for (unsigned d = 0; d < kDim / 16; ++d) {
        std::uint32_t values[4];
        load_matrices_4_transposed(values, v + (t * 16 + a_row(lane)) * Shape::kRow + d * 16 + a_column(lane));
        const std::uint32_t left[2] = {values[0], values[1]}, right[2] = {values[2], values[3]};
#pragma unroll
        for (unsigned tile = 0; tile < kTiles; ++tile) {
          multiply_16x8x16<Element>(sums[tile].o[2 * d], weights[tile][t], left);
          multiply_16x8x16<Element>(sums[tile].o[2 * d + 1], weights[tile][t], right);
        }
      }
    }
  }

#pragma unroll
  for (unsigned tile = 0; tile < kTiles; ++tile) {
    sums[tile].finish();
#pragma unroll
    for (unsigned half = 0; half < 2; ++half) {
      const std::uint32_t row = first_row + warp_row + tile * 16 + lane / 4 + half * 8;
      if (row >= rows) continue;
      sums[tile].store(half, lane, chunk.out + row_offset(row));
      if (chunk.lse != nullptr && lane % 4 == 0) chunk.lse[row_offset(row) / kDim] = sums[tile].lse(half, kBits);
    }
  }
}

/// Grid: {n, kv_heads}: a block per query and KV head. Dynamic shared memory: plain_attention_shared(group, dim).
template <class Element>
__global__ void __launch_bounds__(kPlainThreads)
    plain_prefill_kernel(const __grid_constant__ PrefillChunk chunk, std::uint32_t group) {
  TANDEM_DYNAMIC_SHARED(shared);
  PlainAttention<Element> heads(shared, group, chunk.kv.dim);
  const std::uint32_t query = gridDim.x - 1 - blockIdx.x, kv_head = blockIdx.y;
  const std::uint32_t tokens = chunk.first_position + query + 1;
  const std::uint32_t all = chunk.q_heads / chunk.kv.kv_heads;
  // A group of more than 32 heads is attended in parts.
  for (std::uint32_t first = 0; first < all; first += group) {
    const std::size_t at = (std::size_t{query} * chunk.q_heads + kv_head * all + first) * chunk.kv.dim;
    heads.begin(chunk.q + at);
    for (std::uint32_t token = 0; token < tokens; token += kListPageTokens) {
      const std::uint32_t left = tokens - token;
      const auto* const k = reinterpret_cast<const typename Element::Bits*>(
          chunk.kv.key(chunk.slots[token / kListPageTokens], kv_head, 0));
      heads.add(k, k + std::size_t{kListPageTokens} * chunk.kv.dim, 0, left < kListPageTokens ? left : kListPageTokens,
                0xffffffffu);
    }
    heads.finish(chunk.out + at, chunk.lse == nullptr ? nullptr : chunk.lse + at / chunk.kv.dim);
  }
}

}  // namespace tandem::gpu

namespace tandem {
using namespace gpu;
namespace {

template <class Element, unsigned kDim>
void launch_tiles(Launcher& launch, const PrefillChunk& chunk) {
  using Shape = PrefillShape<kDim>;
  const std::uint32_t rows = chunk.n * (chunk.q_heads / chunk.kv.kv_heads);
  launch(prefill_attention_kernel<Element, kDim>, dim3(blocks_for(rows, Shape::kRows), chunk.kv.kv_heads),
         Shape::kWarps * kWarp, Shape::kBlockBytes, chunk);
}

template <class Element>
void launch_type(Launcher& launch, const PrefillChunk& chunk) {
  if constexpr (sizeof(typename Element::Bits) == 2) {
    if (has_tiles(chunk.kv.type, chunk.kv.dim))
      return with_tiles(chunk.kv.dim, [&](auto dim) { launch_tiles<Element, decltype(dim)::value>(launch, chunk); });
  }
  // Heads that go through the plain kernel together: all of a group where it has no more than 32.
  const std::uint32_t all = chunk.q_heads / chunk.kv.kv_heads;
  std::uint32_t group = all;
  for (std::uint32_t parts = 2; group > 32; ++parts)
    if (all % parts == 0) group = all / parts;
  launch(plain_prefill_kernel<Element>, dim3(chunk.n, chunk.kv.kv_heads), kPlainThreads,
         plain_attention_shared(group, chunk.kv.dim), chunk, group);
}

}  // namespace

void prefill_attention_cuda(const PrefillChunk& chunk, CudaStream stream) {
  TANDEM_CHECK(chunk.kv.kv_heads > 0 && chunk.q_heads > 0 && chunk.q_heads % chunk.kv.kv_heads == 0,
               "{} query heads over {} KV heads.", chunk.q_heads, chunk.kv.kv_heads);
  check_attention_shape(1, chunk.kv.dim);
  check_aligned(chunk.kv.pages, 16, "KvPages::pages");
  if (has_tiles(chunk.kv.type, chunk.kv.dim)) {
    check_aligned(chunk.q, 8, "PrefillChunk::q");
    check_aligned(chunk.out, 8, "PrefillChunk::out");
  }
  Launcher launch(stream);
  with_element(chunk.kv.type, [&](auto element) { launch_type<decltype(element)>(launch, chunk); });
}

}  // namespace tandem
