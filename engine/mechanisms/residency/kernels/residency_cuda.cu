// Residents and what was chosen, a block of threads per list.
#include "engine/kernels/block_scan.cuh"
#include "engine/kernels/cuda/launch.cuh"
#include "engine/mechanisms/residency/kernels/residency.h"

namespace tandem::gpu {

constexpr unsigned kResidencyThreads = 256;

__global__ void __launch_bounds__(kResidencyThreads)
    split_residents_kernel(const __grid_constant__ LaunchArray<ResidentSplit> lists) {
  TANDEM_SHARED(std::uint32_t, table, kResidencyThreads);
  TANDEM_SHARED(std::uint32_t, sums, kWarp);
  const ResidentSplit list = lists[blockIdx.x];
  const std::uint32_t count = list.selected[0];
  std::uint32_t written = 0;
  for (std::uint32_t begin = 0; begin < count; begin += kResidencyThreads) {
    const std::uint32_t i = begin + threadIdx.x;
    const std::uint32_t block = i < count ? list.selected[1 + i] : 0;
    bool resident = i >= count;
    for (std::uint32_t first = 0; first < list.residents; first += kResidencyThreads) {  // a table is in no order
      const std::uint32_t left = list.residents - first, here = left < kResidencyThreads ? left : kResidencyThreads;
      if (threadIdx.x < here) table[threadIdx.x] = list.table[first + threadIdx.x];
      __syncthreads();
      for (std::uint32_t t = 0; t < here && !resident; ++t) resident = table[t] == block;
      __syncthreads();
    }
    std::uint32_t all = 0;
    const std::uint32_t rank = sum_before(resident ? 0u : 1u, sums, all);
    if (!resident) list.missing[1 + written + rank] = block;
    if (i < count) list.chosen[1 + i] = block;
    written += all;
  }
  if (threadIdx.x != 0) return;
  list.chosen[0] = count;
  list.missing[0] = written;
}

__global__ void __launch_bounds__(kResidencyThreads)
    swap_residents_kernel(const __grid_constant__ LaunchArray<ResidentSwap> lists) {
  TANDEM_SHARED(std::uint32_t, sums, kWarp);
  const ResidentSwap& list = lists[blockIdx.x];
  const std::uint32_t missing = list.missing[0], pages = list.pages_per_block;
  const bool ordered = list.order != nullptr;
  const std::uint32_t left = list.slots - list.chosen[0];  // slots that an ordered swap leaves alone
  std::uint32_t gone = 0;                                  // of the slots before
  for (std::uint32_t begin = 0; begin < list.slots && (ordered || gone < missing); begin += kResidencyThreads) {
    const std::uint32_t i = begin + threadIdx.x;
    const bool there = i < list.slots;
    const std::uint32_t slot = there && ordered ? list.order[i] : i;
    const bool goes = there && !in_list(list.chosen, list.table[slot]);
    std::uint32_t all = 0;
    const std::uint32_t rank = gone + sum_before(goes ? 1u : 0u, sums, all);
    if (goes && rank < missing) {
      const std::uint32_t block = list.missing[1 + rank];
      list.table[slot] = block;
      for (std::uint32_t page = 0; page < pages; ++page) {
        list.from[std::size_t{rank} * pages + page] = list.pages[std::size_t{block} * pages + page];
        list.to[std::size_t{rank} * pages + page] = slot * pages + page;
      }
    }
    if (there && ordered) {
      const std::uint32_t hits = i - rank;  // before this slot
      list.next[!goes ? left + missing + hits : rank < missing ? left + rank : rank - missing] = slot;
    }
    gone += all;
  }
  __syncthreads();
  for (std::uint32_t i = threadIdx.x; ordered && i < list.slots; i += kResidencyThreads) list.order[i] = list.next[i];
  if (threadIdx.x == 0) *list.moves = (gone < missing ? gone : missing) * pages;
}

}  // namespace tandem::gpu

namespace tandem {
using namespace gpu;

void split_residents_cuda(const LaunchArray<ResidentSplit>& lists, std::uint32_t count, CudaStream stream) {
  launch(stream, split_residents_kernel, count, kResidencyThreads, 0, lists);
}

void swap_residents_cuda(const LaunchArray<ResidentSwap>& lists, std::uint32_t count, CudaStream stream) {
  launch(stream, swap_residents_kernel, count, kResidencyThreads, 0, lists);
}

}  // namespace tandem
