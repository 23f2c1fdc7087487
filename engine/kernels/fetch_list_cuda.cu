#include "engine/common/error.h"
#include "engine/kernels/cuda/launch.cuh"
#include "engine/kernels/fetch_list.h"
#include "engine/kernels/fetch_list_kernels.cuh"

namespace tandem {

void list_units_cuda(const LaunchArray<UnitFetch>& fetches, std::uint32_t n, std::uint32_t kv_heads, std::uint32_t unit,
                     std::uint32_t slots, const FetchList& list, CudaStream stream) {
  const std::uint32_t piece = unit < kListPageTokens ? unit : kListPageTokens;
  TANDEM_CHECK(unit >= 1 && unit % piece == 0 && kListPageTokens % piece == 0, "Units of {} tokens.", unit);
  TANDEM_CHECK(n >= 1 && n <= gpu::kMaxGridRows && kv_heads >= 1, "{} fetches of {} KV heads.", n, kv_heads);
  check_piece_numbers(slots, kv_heads, 2 * (kListPageTokens / piece));
  gpu::Launcher launch(stream);
  launch(gpu::list_units_kernel, dim3(kv_heads, n), gpu::kListThreads, 0, fetches, unit / piece,
         kListPageTokens / piece, list);
}

void list_pages_cuda(const PageEntry* entries, const std::uint32_t* counts, std::uint32_t rows, std::uint32_t kv_heads,
                     std::uint32_t capacity, std::uint32_t slots, const FetchList& list, CudaStream stream) {
  TANDEM_CHECK(rows >= 1 && rows <= gpu::kMaxGridRows && kv_heads >= 1, "{} rows of {} lists.", rows, kv_heads);
  check_piece_numbers(slots, kv_heads, 1);
  gpu::Launcher launch(stream);
  launch(gpu::list_pages_kernel, dim3(kv_heads, rows), gpu::kListThreads, 0, entries, counts, capacity, list);
}

void number_pages_cuda(PageEntry* entries, const std::uint32_t* counts, std::uint32_t lists, std::uint32_t capacity,
                       CudaStream stream) {
  gpu::Launcher launch(stream);
  launch(gpu::number_pages_kernel, lists, gpu::kListThreads, 0, entries, counts, capacity);
}

}  // namespace tandem
