// Which kernels a paged attention takes, and on what grids.
#include "engine/common/error.h"
#include "engine/kernels/attention.h"
#include "engine/kernels/attention_limits.h"
#include "engine/kernels/cuda/launch.cuh"
#include "engine/kernels/paged_attention.h"
#include "engine/kernels/paged_attention_kernels.cuh"
#include "engine/kernels/plain_attention_kernels.cuh"

namespace tandem::gpu {

// ---- merge: a block per row of the result

constexpr unsigned kMergeThreads = 128;
constexpr unsigned kMergeWarps = kMergeThreads / kWarp;
constexpr unsigned kMergeKept = 512;    // lse that are read once: they may come over the link
constexpr unsigned kMergeColumns = 8;   // per lane and pass
constexpr unsigned kMergeTogether = 4;  // parts of a warp whose loads are under way at once
constexpr unsigned kMergeWidth = kMergeColumns * kWarp;

/// out = sum_i exp(lse_i - lse) o_i of `parts` parts; see merge_partials. parts.o(i) and parts.lse(i): part i's row and
/// its lse. Warps take every fourth part and their sums are added in order, so the bits depend on the parts alone. out
/// may be one of the parts' rows, and out_lse one of their lse: all is read before it is written. Sums begin at -0, so
/// that a part which is alone stays as it is, zeros of either sign too.
template <class Parts>
__device__ __forceinline__ void merge_row(const Parts& parts, std::uint32_t count, std::uint32_t dim, float* out,
                                          float* out_lse) {
  TANDEM_SHARED(float, kept, kMergeKept);
  TANDEM_SHARED(float, found, kWarp);
  TANDEM_SHARED(float, sums, kMergeWarps* kMergeWidth);
  const unsigned warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  float most = kEmptyScore;
  for (std::uint32_t i = threadIdx.x; i < count; i += kMergeThreads) {
    const float lse = parts.lse(i);
    if (i < kMergeKept) kept[i] = lse;
    most = fmaxf(most, lse);
  }
  most = block_max(most, found);
  const auto weight = [&](std::uint32_t i) {
    const float lse = i < kMergeKept ? kept[i] : parts.lse(i);
    return lse == kEmptyScore ? 0.0f : expf(lse - most);
  };
  float total = 0.0f;
  for (std::uint32_t i = threadIdx.x; i < count; i += kMergeThreads) total += weight(i);
  total = warp_sum(total);
  if (lane == 0) found[warp] = total;
  __syncthreads();
  static_assert(kMergeWarps == 4);
  total = (found[0] + found[1]) + (found[2] + found[3]);
  const float inverse = total == 0.0f ? 0.0f : 1.0f / total;

  for (std::uint32_t begin = 0; begin < dim; begin += kMergeWidth) {
    float sum[kMergeColumns];
#pragma unroll
    for (unsigned c = 0; c < kMergeColumns; ++c) sum[c] = -0.0f;
    for (std::uint32_t first = warp; first < count; first += kMergeTogether * kMergeWarps) {
      float share[kMergeTogether];
      const float* o[kMergeTogether];
#pragma unroll
      for (unsigned i = 0; i < kMergeTogether; ++i) {
        const std::uint32_t part = first + i * kMergeWarps;
        share[i] = part < count ? weight(part) * inverse : 0.0f;
        o[i] = share[i] == 0.0f ? nullptr : parts.o(part) + begin;  // what has no weight is not read
      }
#pragma unroll
      for (unsigned c = 0; c < kMergeColumns; ++c) {
        const unsigned d = c * kWarp + lane;
        float values[kMergeTogether];
#pragma unroll
        for (unsigned i = 0; i < kMergeTogether; ++i) values[i] = o[i] != nullptr && begin + d < dim ? o[i][d] : -0.0f;
#pragma unroll
        for (unsigned i = 0; i < kMergeTogether; ++i) sum[c] += share[i] * values[i];
      }
    }
#pragma unroll
    for (unsigned c = 0; c < kMergeColumns; ++c) sums[warp * kMergeWidth + c * kWarp + lane] = sum[c];
    __syncthreads();
    for (unsigned d = threadIdx.x; d < kMergeWidth && begin + d < dim; d += kMergeThreads) {
      const float all = ((sums[d] + sums[kMergeWidth + d]) + sums[2 * kMergeWidth + d]) + sums[3 * kMergeWidth + d];
      out[begin + d] = total == 0.0f ? 0.0f : all;
    }
    __syncthreads();
  }
  if (out_lse != nullptr && threadIdx.x == 0) *out_lse = total == 0.0f ? kEmptyScore : most + logf(total);
}

/// Parts of a decode attention: grid {merges, group}.
__global__ void __launch_bounds__(kMergeThreads, 8) merge_splits_kernel(const __grid_constant__ PagedAttention a) {
  struct Parts {
    const float *first_o, *first_lse;
    std::size_t o_stride, lse_stride;
    __device__ const float* o(std::uint32_t i) const { return first_o + i * o_stride; }
    __device__ float lse(std::uint32_t i) const { return first_lse[i * lse_stride]; }
  };
  const AttentionMerge& merge = a.merges[blockIdx.x];
  const std::size_t dim = a.kv.dim, g = blockIdx.y, first = std::size_t{merge.first_part} * a.group + g;
  const std::size_t head = (std::size_t{merge.row} * a.kv.kv_heads + merge.kv_head) * a.group + g;
  const float* const sums = a.parts + std::size_t{a.part_count} * a.group * dim;
  merge_row(Parts{a.parts + first * dim, sums + first, a.group * dim, a.group}, merge.parts, a.kv.dim, a.o + head * dim,
            a.lse + head);
}

/// Any parts: grid {rows}. The pointers are to device memory or to pinned host memory as the device sees it.
__global__ void __launch_bounds__(kMergeThreads, 8)
    merge_partials_kernel(const __grid_constant__ LaunchArray<const float*> o,
                          const __grid_constant__ LaunchArray<const float*> lse, const __grid_constant__ LastPart last,
                          std::uint32_t parts, std::uint32_t dim, float* out, float* out_lse) {
  struct Parts {
    const LaunchArray<const float*>& all_o;
    const LaunchArray<const float*>& all_lse;
    std::size_t row, dim;
    __device__ const float* o(std::uint32_t i) const { return all_o[i] + row * dim; }
    __device__ float lse(std::uint32_t i) const { return all_lse[i][row]; }
  };
  const std::size_t row = blockIdx.x;
  std::uint32_t count = parts;
  if (last.per_bit > 0 && count > 0) {
    const std::size_t bit = row / last.per_bit;
    if ((last.bits[bit / 32] >> bit % 32 & 1u) == 0) --count;
  }
  merge_row(Parts{o, lse, row, dim}, count, dim, out + row * dim, out_lse == nullptr ? nullptr : out_lse + row);
}

}  // namespace tandem::gpu

namespace tandem {
using namespace gpu;
namespace {

template <class Element, unsigned kDim>
void launch_tensor(Launcher& launch, const PagedAttention& a) {
  using Shape = PagedShape<Element, kDim>;
  // Warps work alone, so a device whose blocks have less shared memory gets fewer of them.
  const auto room = static_cast<unsigned>(launch.max_shared() / Shape::kWarpBytes);
  const unsigned warps = room < Shape::kWarps ? room : Shape::kWarps;
  if (warps == 0)
    throw_input_error("Decode attention of {} dimensions takes {} bytes of shared memory; the GPU's blocks have {}.",
                      kDim, Shape::kWarpBytes, launch.max_shared());
  const std::uint32_t blocks = (a.work_count + warps - 1) / warps;
  const std::uint32_t most = launch.multiprocessors() * Shape::kBlocksPerMultiprocessor;
  // With less work than warps every piece goes to a warp of its own, as spread as it can be.
  launch(paged_attention_kernel<Element, kDim>, blocks < most ? (a.work_count < most ? a.work_count : most) : most,
         warps * kWarp, warps * Shape::kWarpBytes, a);
}

template <class Element>
void launch_splits(Launcher& launch, const PagedAttention& a) {
  if constexpr (sizeof(typename Element::Bits) == 2) {
    if (takes_tensor_cores(a.kv.type, a.group, a.kv.dim)) {
      return with_tiles(a.kv.dim, [&](auto dim) { launch_tensor<Element, decltype(dim)::value>(launch, a); });
    }
  }
  const std::uint32_t most = launch.multiprocessors() * 8;
  launch(plain_attention_kernel<Element>, a.work_count < most ? a.work_count : most, kPlainThreads,
         plain_attention_shared(a.group, a.kv.dim), a);
}

}  // namespace

void paged_attention_cuda(const PagedAttention& a, CudaStream stream) {
  check_attention_shape(a.group, a.kv.dim);
  check_aligned(a.kv.pages, 16, "KvPages::pages");
  if (takes_tensor_cores(a.kv.type, a.group, a.kv.dim)) {
    check_aligned(a.q, 8, "PagedAttention::q");
    check_aligned(a.o, 8, "PagedAttention::o");
    check_aligned(a.parts, 8, "PagedAttention::parts");
  }
  Launcher launch(stream);
  with_element(a.kv.type, [&](auto element) { launch_splits<decltype(element)>(launch, a); });
  launch(merge_splits_kernel, dim3(a.merge_count, a.group), kMergeThreads, 0, a);
}

void merge_partials_cuda(const LaunchArray<const float*>& o, const LaunchArray<const float*>& lse, std::uint32_t parts,
                         std::uint32_t rows, std::uint32_t dim, float* out, float* out_lse, CudaStream stream,
                         const LastPart& last) {
  launch(stream, merge_partials_kernel, rows, kMergeThreads, 0, o, lse, last, parts, dim, out, out_lse);
}

}  // namespace tandem
