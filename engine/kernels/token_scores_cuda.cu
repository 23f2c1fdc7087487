// Scores of single tokens over page lists. A warp takes a page; K comes in loads of 16 bytes per lane straight into the
// fragments of mma, for which the dimensions of both factors are taken in another order (Order::wide).
#include "engine/kernels/attention_limits.h"
#include "engine/kernels/cuda/launch.cuh"
#include "engine/kernels/plain_attention_kernels.cuh"

namespace tandem::gpu {

struct TokenScores {
  const float* q;  // [rows][Hq][D]
  std::uint32_t group;
  KvPages kv;
  PageLists lists;
  float* scores;  // [rows][Hq][16 * capacity]
};

constexpr unsigned kTokenScoreThreads = 128;
constexpr unsigned kTokenScoreEntries = 32;  // per block: a query is loaded once for eight pages of a warp

/// The entry's slot, or a page without tokens beyond the count.
struct ScoredPage {
  std::uint32_t slot = 0, tokens = 0;
};
__device__ __forceinline__ ScoredPage scored_page(const PageLists& lists, std::size_t list, std::uint32_t at) {
  if (at >= lists.counts[list]) return {};
  const PageEntry& entry = lists.entries[list * lists.capacity + at];
  return {entry.slot, token_bits(entry.first | std::uint32_t{entry.tokens} << 16)};
}

/// Grid: {ceil(capacity / kTokenScoreEntries), kv_heads, rows}.
template <class Element, unsigned kDim>
__global__ void __launch_bounds__(kTokenScoreThreads) token_scores_kernel(const __grid_constant__ TokenScores request) {
  constexpr unsigned kParts = TensorTraits<Element>::kQueryParts;
  const unsigned lane = threadIdx.x % kWarp, group = request.group;
  const std::uint32_t kv_head = blockIdx.y, row = blockIdx.z;
  const std::size_t list = list_of(request.kv, request.lists, row, kv_head);
  const std::size_t head = (std::size_t{row} * request.kv.kv_heads + kv_head) * group;
  const std::size_t columns = std::size_t{kListPageTokens} * request.lists.capacity;
  const float scale = 1.0f / sqrtf(static_cast<float>(kDim));
  QueryFragments<Element, kDim, Order::wide> query;
  const float* q = request.q + head * kDim;
  query.load(lane, [q, group](unsigned r) { return r < group ? q + r * kDim : nullptr; });

  const HeadPages pages = head_pages(request.kv, row, kv_head, sizeof(typename Element::Bits));
  const std::uint32_t begin = blockIdx.x * kTokenScoreEntries;
  for (std::uint32_t i = threadIdx.x / kWarp; i < kTokenScoreEntries; i += kTokenScoreThreads / kWarp) {
    const std::uint32_t at = begin + i;
    if (at >= request.lists.capacity) break;
    const ScoredPage page = scored_page(request.lists, list, at);
    const auto* k = reinterpret_cast<const std::uint16_t*>(pages.slot(page.slot));
    float sums[2][2][4] = {};
#pragma unroll
    for (unsigned n = 0; n < 2; ++n) {
      const unsigned token = n * 8 + lane / 4;
      uint4 keys[kDim / 32];
#pragma unroll
      for (unsigned c = 0; c < kDim / 32; ++c) {
        keys[c] = (page.tokens >> token & 1u) != 0 ? load_stream(k + token * kDim + c * 32 + lane % 4 * 8)
                                                   : make_uint4(0, 0, 0, 0);
      }
#pragma unroll
      for (unsigned c = 0; c < kDim / 32; ++c) {
        const std::uint32_t early[2] = {keys[c].x, keys[c].y}, late[2] = {keys[c].z, keys[c].w};
#pragma unroll
        for (unsigned part = 0; part < kParts; ++part) {
          multiply_16x8x16<Element>(sums[part][n], query.words[part][2 * c], early);
          multiply_16x8x16<Element>(sums[part][n], query.words[part][2 * c + 1], late);
        }
      }
    }
#pragma unroll
    for (unsigned n = 0; n < 2; ++n) {
      const unsigned token = n * 8 + lane % 4 * 2;
#pragma unroll
      for (unsigned half = 0; half < 2; ++half) {
        const unsigned r = lane / 4 + half * 8;
        if (r >= group) continue;
        float2 score;
        score.x = score_of<kParts>(sums[0][n][2 * half], sums[1][n][2 * half], scale);
        score.y = score_of<kParts>(sums[0][n][2 * half + 1], sums[1][n][2 * half + 1], scale);
        if ((page.tokens >> token & 1u) == 0) score.x = kEmptyScore;
        if ((page.tokens >> token & 2u) == 0) score.y = kEmptyScore;
        store_vector(request.scores + (head + r) * columns + std::size_t{kListPageTokens} * at + token, score);
      }
    }
  }
}

/// The same for every shape. Dynamic shared memory: group * dim floats.
template <class Element>
__global__ void __launch_bounds__(kTokenScoreThreads)
    plain_token_scores_kernel(const __grid_constant__ TokenScores request) {
  TANDEM_DYNAMIC_SHARED(shared);
  float* const q = reinterpret_cast<float*>(shared);  // [group][dim]
  const unsigned group = request.group, dim = request.kv.dim;
  const std::uint32_t kv_head = blockIdx.y, row = blockIdx.z;
  const std::size_t list = list_of(request.kv, request.lists, row, kv_head);
  const std::size_t head = (std::size_t{row} * request.kv.kv_heads + kv_head) * group;
  const std::size_t columns = std::size_t{kListPageTokens} * request.lists.capacity;
  const float scale = 1.0f / sqrtf(static_cast<float>(dim));
  for (unsigned i = threadIdx.x; i < group * dim; i += kTokenScoreThreads)
    q[i] = query_value<Element>(request.q[head * dim + i]);
  __syncthreads();
  const HeadPages pages = head_pages(request.kv, row, kv_head, sizeof(typename Element::Bits));
  const std::uint32_t begin = blockIdx.x * kTokenScoreEntries;
  for (std::uint32_t i = threadIdx.x / kWarp; i < kTokenScoreEntries; i += kTokenScoreThreads / kWarp) {
    const std::uint32_t at = begin + i;
    if (at >= request.lists.capacity) break;
    const ScoredPage page = scored_page(request.lists, list, at);
    const auto* k = reinterpret_cast<const typename Element::Bits*>(pages.slot(page.slot));
    for (unsigned g = 0; g < group; ++g) {
      for (unsigned token = 0; token < kListPageTokens; ++token) {
        float score = kEmptyScore;
        if ((page.tokens >> token & 1u) != 0)
          score = plain_score<Element>(q + g * dim, k + std::size_t{token} * dim, dim, scale);
        if (threadIdx.x % kWarp == 0)
          request.scores[(head + g) * columns + std::size_t{kListPageTokens} * at + token] = score;
      }
    }
  }
}

}  // namespace tandem::gpu

namespace tandem {
using namespace gpu;
namespace {

template <class Element>
void launch_token_scores(Launcher& launch, const TokenScores& request, dim3 grid) {
  if constexpr (sizeof(typename Element::Bits) == 2) {
    if (takes_tensor_cores(request.kv.type, request.group, request.kv.dim)) {
      return with_tiles(request.kv.dim, [&](auto dim) {
        launch(token_scores_kernel<Element, decltype(dim)::value>, grid, kTokenScoreThreads, 0, request);
      });
    }
  }
  launch(plain_token_scores_kernel<Element>, grid, kTokenScoreThreads, sizeof(float) * request.group * request.kv.dim,
         request);
}

}  // namespace

void paged_token_scores_cuda(const float* q, std::uint32_t rows, std::uint32_t group, const KvPages& kv,
                             const PageLists& lists, float* scores, CudaStream stream) {
  check_attention_shape(group, kv.dim);
  check_aligned(kv.pages, 16, "KvPages::pages");
  if (takes_tensor_cores(kv.type, group, kv.dim)) {
    check_aligned(q, 8, "The token scores' q");
    check_aligned(scores, 8, "The token scores' result");
  }
  const TokenScores request{q, group, kv, lists, scores};
  const dim3 grid((lists.capacity + kTokenScoreEntries - 1) / kTokenScoreEntries, kv.kv_heads, rows);
  Launcher launch(stream);
  with_element(kv.type, [&](auto element) { launch_token_scores<decltype(element)>(launch, request, grid); });
}

}  // namespace tandem
