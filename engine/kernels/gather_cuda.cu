#include <algorithm>
#include <vector>

#include "engine/common/error.h"
#include "engine/kernels/gather_kernels.cuh"

namespace tandem {
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
  static_assert(kMostLists <= gpu::kCopyThreads);  // each of which looks at one
  // The last step of the kernel's loop must not wrap around.
  TANDEM_CHECK(n <= kMostLists && all_bytes / 16 < std::size_t{1} << 31, "{} lists of {} bytes in one gather.", n,
               all_bytes);
  gpu::Launcher launch(stream);
  launch(gpu::gather_kernel, std::min(gpu::kCopyBlocks, gpu::blocks_for(all_bytes / 16, gpu::kCopyThreads)),
         gpu::kCopyThreads, 0, lists, n);
}

}  // namespace tandem
