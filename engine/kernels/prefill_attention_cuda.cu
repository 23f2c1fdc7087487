#include "engine/common/error.h"
#include "engine/kernels/attention.h"
#include "engine/kernels/attention_limits.h"
#include "engine/kernels/cuda/launch.cuh"
#include "engine/kernels/prefill_attention_kernels.cuh"

namespace tandem {
namespace {

template <class Element, unsigned kDim>
void launch_tiles(gpu::Launcher& launch, const PrefillChunk& chunk) {
  using Shape = gpu::PrefillShape<kDim>;
  const std::uint32_t rows = chunk.n * (chunk.q_heads / chunk.kv.kv_heads);
  launch(gpu::prefill_attention_kernel<Element, kDim>, dim3(gpu::blocks_for(rows, Shape::kRows), chunk.kv.kv_heads),
         Shape::kWarps * gpu::kWarp, Shape::kBlockBytes, chunk);
}

template <class Element>
void launch_type(gpu::Launcher& launch, const PrefillChunk& chunk) {
  if constexpr (sizeof(typename Element::Bits) == 2) {
    if (gpu::has_tiles(chunk.kv.type, chunk.kv.dim))
      return gpu::with_tiles(chunk.kv.dim,
                             [&](auto dim) { launch_tiles<Element, decltype(dim)::value>(launch, chunk); });
  }
  // Heads that go through the plain kernel together: all of a group where it has no more than 32.
  const std::uint32_t all = chunk.q_heads / chunk.kv.kv_heads;
  std::uint32_t group = all;
  for (std::uint32_t parts = 2; group > 32; ++parts)
    if (all % parts == 0) group = all / parts;
  launch(gpu::plain_prefill_kernel<Element>, dim3(chunk.n, chunk.kv.kv_heads), gpu::kPlainThreads,
         gpu::plain_attention_shared(group, chunk.kv.dim), chunk, group);
}

}  // namespace

void prefill_attention_cuda(const PrefillChunk& chunk, CudaStream stream) {
  TANDEM_CHECK(chunk.kv.kv_heads > 0 && chunk.q_heads > 0 && chunk.q_heads % chunk.kv.kv_heads == 0,
               "{} query heads over {} KV heads.", chunk.q_heads, chunk.kv.kv_heads);
  gpu::check_attention_shape(1, chunk.kv.dim);
  gpu::check_aligned(chunk.kv.pages, 16, "KvPages::pages");
  if (gpu::has_tiles(chunk.kv.type, chunk.kv.dim)) {
    gpu::check_aligned(chunk.q, 8, "PrefillChunk::q");
    gpu::check_aligned(chunk.out, 8, "PrefillChunk::out");
  }
  gpu::Launcher launch(stream);
  gpu::with_element(chunk.kv.type, [&](auto element) { launch_type<decltype(element)>(launch, chunk); });
}

}  // namespace tandem
