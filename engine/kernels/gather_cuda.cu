// Copies that a kernel makes in units of 16 bytes, over the link too.
#include <algorithm>
#include <vector>

#include "engine/common/error.h"
#include "engine/kernels/block_scan.cuh"
#include "engine/kernels/cuda/launch.cuh"
#include "engine/kernels/gather.h"

namespace tandem::gpu {

constexpr unsigned kCopyThreads = 256;
// 30 % of an A100's multiprocessors, a quarter of an H200's. With the loads below, 384 KiB are under way: some six
// times what a link of 64 GB/s needs for a round trip of 1 us. The other multiprocessors compute meanwhile.
constexpr unsigned kCopyBlocks = 32;
constexpr unsigned kCopyLoads = 3;  // per thread, before the first store; a fourth would spill
// By which a thread has 32 registers: with 40 no block fits beside two of f16 attention at D 128 (224 x 128 each), one
// of which would wait until the link is done.
constexpr unsigned kCopyResident = 8;

/// Copies units 0 .. total - 1; locate(unit, from, to) says where one lies.
template <class Locate>
__device__ __forceinline__ void copy_units(std::uint32_t total, const Locate& locate) {
  const std::uint32_t step = gridDim.x * blockDim.x;
  for (std::uint32_t first = blockIdx.x * blockDim.x + threadIdx.x; first < total; first += kCopyLoads * step) {
    uint4 value[kCopyLoads];
    char* to[kCopyLoads];
#pragma unroll
    for (unsigned i = 0; i < kCopyLoads; ++i) {
      const std::uint32_t unit = first + i * step;
      const char* from = nullptr;
      if (unit < total) {
        locate(unit, from, to[i]);
        value[i] = load_stream(from);
      }
    }
#pragma unroll
    for (unsigned i = 0; i < kCopyLoads; ++i)
      if (first + i * step < total) store_vector(to[i], value[i]);
  }
}

/// The lists one behind the other; n <= kMostLists.
__global__ void __launch_bounds__(kCopyThreads, kCopyResident)
    gather_kernel(const __grid_constant__ LaunchArray<Pieces> lists, std::uint32_t n) {
  TANDEM_SHARED(std::uint32_t, begins, kMostLists);  // of each list's pieces among all
  TANDEM_SHARED(std::uint32_t, sums, kWarp);
  std::uint32_t count = 0, all = 0;
  if (threadIdx.x < n) {
    const Pieces& own = lists[threadIdx.x];
    count = own.count;
    if (own.device_count != nullptr && *own.device_count < count) count = *own.device_count;
  }
  const std::uint32_t before = sum_before(count, sums, all);
  if (threadIdx.x < n) begins[threadIdx.x] = before;
  __syncthreads();
  const auto units = static_cast<std::uint32_t>(lists[0].bytes / 16);
  copy_units(all * units, [&](std::uint32_t unit, const char*& from, char*& to) {
    const std::uint32_t among_all = unit / units;
    std::uint32_t list = 0;  // the last one that begins here or before; of equals the others are empty
    for (std::uint32_t end = n; list + 1 < end;) {
      const std::uint32_t middle = (list + end) / 2;
      if (begins[middle] <= among_all)
        list = middle;
      else
        end = middle;
    }
    const Pieces& pieces = lists[list];
    const std::uint32_t piece = among_all - begins[list];
    const std::size_t within = 16 * std::size_t{unit % units};
    const std::size_t source = pieces.from_slots == nullptr ? piece : pieces.from_slots[piece];
    const std::size_t target = pieces.to_slots == nullptr ? piece : pieces.to_slots[piece];
    from = static_cast<const char*>(pieces.from) + source * pieces.from_stride + within;
    to = static_cast<char*>(pieces.to) + target * pieces.to_stride + within;
  });
}

}  // namespace tandem::gpu

namespace tandem {
using namespace gpu;
namespace {

void gather_by_dma(const Pieces& pieces, CudaStream stream) {
  if (!pieces.slots_on_host || pieces.device_count != nullptr)
    throw InputError("DMA needs to know every piece on the host; these are known on the device only.");
  std::vector<void*> to(pieces.count);
  std::vector<const void*> from(pieces.count);
  const std::vector<std::size_t> bytes(pieces.count, pieces.bytes);
  for (std::uint32_t i = 0; i < pieces.count; ++i) {
    const std::size_t source = pieces.from_slots == nullptr ? i : pieces.from_slots[i];
    const std::size_t target = pieces.to_slots == nullptr ? i : pieces.to_slots[i];
    from[i] = static_cast<const char*>(pieces.from) + source * pieces.from_stride;
    to[i] = static_cast<char*>(pieces.to) + target * pieces.to_stride;
  }
  cuda_copy_pieces(to, from, bytes, CopyWay::over_link, stream);
}

}  // namespace

void gather_cuda(const Pieces& pieces, GatherWay way, CudaStream stream) {
  check_pieces(pieces);
  if (pieces.bytes == 0 || pieces.count == 0) return;
  if (way == GatherWay::dma) {
    gather_by_dma(pieces, stream);
  } else {
    gather_lists_cuda(LaunchArray<Pieces>({&pieces, 1}), 1, pieces.bytes * pieces.count, stream);
  }
}

void gather_lists_cuda(const LaunchArray<Pieces>& lists, std::uint32_t n, std::size_t all_bytes, CudaStream stream) {
  if (n == 0 || all_bytes == 0) return;
  static_assert(kMostLists <= kCopyThreads);  // each of which looks at one
  // The last step of the kernel's loop must not wrap around.
  TANDEM_CHECK(n <= kMostLists && all_bytes / 16 < std::size_t{1} << 31, "{} lists of {} bytes in one gather.", n,
               all_bytes);
  launch(stream, gather_kernel, std::min(kCopyBlocks, blocks_for(all_bytes / 16, kCopyThreads)), kCopyThreads, 0, lists,
         n);
}

}  // namespace tandem
