// Which kernels a paged attention takes, and on what grids.
#include "engine/common/error.h"
#include "engine/kernels/attention_limits.h"
#include "engine/kernels/cuda/launch.cuh"
#include "engine/kernels/merge_kernels.cuh"
#include "engine/kernels/paged_attention.h"
#include "engine/kernels/paged_attention_kernels.cuh"
#include "engine/kernels/plain_attention_kernels.cuh"
#include "engine/kernels/selection_kernels.cuh"
#include "engine/kernels/token_score_kernels.cuh"

namespace tandem {
namespace {

using gpu::Launcher;

constexpr bool takes_tensor_cores(DType type, std::uint32_t group, std::uint32_t dim) {
  return gpu::has_tiles(type, dim) && group <= 16;
}

template <class Element, unsigned kDim>
void launch_tensor(Launcher& launch, const PagedAttention& a) {
  using Shape = gpu::PagedShape<Element, kDim>;
  // Warps work alone, so a device whose blocks have less shared memory gets fewer of them.
  const auto room = static_cast<unsigned>(launch.max_shared() / Shape::kWarpBytes);
  const unsigned warps = room < Shape::kWarps ? room : Shape::kWarps;
  if (warps == 0)
    throw_input_error("Decode attention of {} dimensions takes {} bytes of shared memory; the GPU's blocks have {}.",
                      kDim, Shape::kWarpBytes, launch.max_shared());
  const std::uint32_t blocks = (a.work_count + warps - 1) / warps;
  const std::uint32_t most = launch.multiprocessors() * Shape::kBlocksPerMultiprocessor;
  // With less work than warps every piece goes to a warp of its own, as spread as it can be.
  launch(gpu::paged_attention_kernel<Element, kDim>, blocks < most ? (a.work_count < most ? a.work_count : most) : most,
         warps * gpu::kWarp, warps * Shape::kWarpBytes, a);
}

template <class Element>
void launch_splits(Launcher& launch, const PagedAttention& a) {
  if constexpr (sizeof(typename Element::Bits) == 2) {
    if (takes_tensor_cores(a.kv.type, a.group, a.kv.dim)) {
      return gpu::with_tiles(a.kv.dim, [&](auto dim) { launch_tensor<Element, decltype(dim)::value>(launch, a); });
    }
  }
  const std::uint32_t most = launch.multiprocessors() * 8;
  launch(gpu::plain_attention_kernel<Element>, a.work_count < most ? a.work_count : most, gpu::kPlainThreads,
         gpu::plain_attention_shared(a.group, a.kv.dim), a);
}

template <class Element>
void launch_token_scores(Launcher& launch, const gpu::TokenScores& request, dim3 grid) {
  if constexpr (sizeof(typename Element::Bits) == 2) {
    if (takes_tensor_cores(request.kv.type, request.group, request.kv.dim)) {
      return gpu::with_tiles(request.kv.dim, [&](auto dim) {
        launch(gpu::token_scores_kernel<Element, decltype(dim)::value>, grid, gpu::kTokenScoreThreads, 0, request);
      });
    }
  }
  launch(gpu::plain_token_scores_kernel<Element>, grid, gpu::kTokenScoreThreads,
         sizeof(float) * request.group * request.kv.dim, request);
}

}  // namespace

void paged_attention_cuda(const PagedAttention& a, CudaStream stream) {
  gpu::check_attention_shape(a.group, a.kv.dim);
  gpu::check_aligned(a.kv.pages, 16, "KvPages::pages");
  if (takes_tensor_cores(a.kv.type, a.group, a.kv.dim)) {
    gpu::check_aligned(a.q, 8, "PagedAttention::q");
    gpu::check_aligned(a.o, 8, "PagedAttention::o");
    gpu::check_aligned(a.parts, 8, "PagedAttention::parts");
  }
  Launcher launch(stream);
  gpu::with_element(a.kv.type, [&](auto element) { launch_splits<decltype(element)>(launch, a); });
  launch(gpu::merge_splits_kernel, dim3(a.merge_count, a.group), gpu::kMergeThreads, 0, a);
}

void pages_of_selection_cuda(const LaunchArray<BlockSelection>& rows, std::uint32_t n, std::uint32_t kv_heads,
                             std::uint32_t group, std::uint32_t heads_per_list, bool own_only, std::uint32_t capacity,
                             PageEntry* entries, std::uint32_t* counts, CudaStream stream,
                             const SelectedTokens& tokens) {
  TANDEM_CHECK(group >= 1 && group <= 32, "A group has 1 to 32 query heads, not {}.", group);
  TANDEM_CHECK(heads_per_list == 1 || heads_per_list == group || heads_per_list == kv_heads * group,
               "{} query heads choose together, of {} groups of {}.", heads_per_list, kv_heads, group);
  TANDEM_CHECK(kv_heads == 1 || (tokens.totals == nullptr && tokens.own == nullptr), "Tokens of {} KV heads.",
               kv_heads);
  Launcher launch(stream);
  launch(gpu::pages_of_selection_kernel, dim3(kv_heads, n), gpu::kSelectionThreads, 0, rows, group, heads_per_list,
         own_only, capacity, entries, counts, tokens);
}

void whole_pages_cuda(const LaunchArray<WholePages>& lists, std::uint32_t count, std::uint32_t capacity,
                      PageEntry* entries, std::uint32_t* counts, CudaStream stream) {
  gpu::Launcher launch(stream);
  launch(gpu::whole_pages_kernel, count, gpu::kSelectionThreads, 0, lists, capacity, entries, counts);
}

void pages_of_ranges_cuda(const LaunchArray<PageRanges>& lists, const LaunchArray<TokenRange>& ranges,
                          std::uint32_t count, bool behind, std::uint32_t capacity, PageEntry* entries,
                          std::uint32_t* counts, CudaStream stream) {
  gpu::Launcher launch(stream);
  launch(gpu::pages_of_ranges_kernel, count, gpu::kSelectionThreads, 0, lists, ranges, behind, capacity, entries,
         counts);
}

void pages_of_tokens_cuda(const LaunchArray<SingleTokens>& lists, std::uint32_t count, std::uint32_t capacity,
                          PageEntry* entries, std::uint32_t* counts, CudaStream stream) {
  gpu::Launcher launch(stream);
  launch(gpu::pages_of_tokens_kernel, count, gpu::kSelectionThreads, 0, lists, capacity, entries, counts);
}

void pages_of_residents_cuda(const LaunchArray<ResidentPages>& lists, std::uint32_t count, std::uint32_t capacity,
                             PageEntry* entries, std::uint32_t* counts, CudaStream stream) {
  gpu::Launcher launch(stream);
  launch(gpu::pages_of_residents_kernel, count, gpu::kSelectionThreads, 0, lists, capacity, entries, counts);
}

void count_tokens_cuda(const PageLists& lists, std::uint32_t rows, std::uint32_t kv_heads, std::uint64_t* totals,
                       CudaStream stream) {
  TANDEM_CHECK(lists.per_kv_head, "Tokens are counted in lists of KV heads.");
  Launcher launch(stream);
  launch(gpu::count_tokens_kernel, rows, gpu::kSelectionThreads, 0, lists, kv_heads, totals);
}

void paged_token_scores_cuda(const float* q, std::uint32_t rows, std::uint32_t group, const KvPages& kv,
                             const PageLists& lists, float* scores, CudaStream stream) {
  gpu::check_attention_shape(group, kv.dim);
  gpu::check_aligned(kv.pages, 16, "KvPages::pages");
  if (takes_tensor_cores(kv.type, group, kv.dim)) {
    gpu::check_aligned(q, 8, "The token scores' q");
    gpu::check_aligned(scores, 8, "The token scores' result");
  }
  const gpu::TokenScores request{q, group, kv, lists, scores};
  const dim3 grid((lists.capacity + gpu::kTokenScoreEntries - 1) / gpu::kTokenScoreEntries, kv.kv_heads, rows);
  Launcher launch(stream);
  gpu::with_element(kv.type, [&](auto element) { launch_token_scores<decltype(element)>(launch, request, grid); });
}

void merge_partials_cuda(const LaunchArray<const float*>& o, const LaunchArray<const float*>& lse, std::uint32_t parts,
                         std::uint32_t rows, std::uint32_t dim, float* out, float* out_lse, CudaStream stream,
                         const LastPart& last) {
  Launcher launch(stream);
  launch(gpu::merge_partials_kernel, rows, gpu::kMergeThreads, 0, o, lse, last, parts, dim, out, out_lse);
}

}  // namespace tandem
