// What the attention kernels of the GPU take.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "engine/common/error.h"
#include "engine/kernels/tensor.h"

namespace tandem::gpu {

inline constexpr std::uint32_t kMostDimensions = 512;  // of a head

/// Whether there are tensor-core kernels for KV of this type and dimension.
constexpr bool has_tiles(DType type, std::uint32_t dim) {
  return type != DType::f32 && (dim == 64 || dim == 96 || dim == 128 || dim == 256);
}

/// Whether decode attention and token scores of this shape run on tensor cores.
constexpr bool takes_tensor_cores(DType type, std::uint32_t group, std::uint32_t dim) {
  return has_tiles(type, dim) && group <= 16;
}

/// Calls `call` with the dimension of a kernel that has_tiles() as a constant.
template <class Call>
void with_tiles(std::uint32_t dim, const Call& call) {
  switch (dim) {
    case 64:
      return call(std::integral_constant<unsigned, 64>{});
    case 96:
      return call(std::integral_constant<unsigned, 96>{});
    case 128:
      return call(std::integral_constant<unsigned, 128>{});
    default:
      return call(std::integral_constant<unsigned, 256>{});
  }
}

inline void check_aligned(const void* at, std::size_t bytes, const char* what) {
  TANDEM_CHECK(reinterpret_cast<std::uintptr_t>(at) % bytes == 0, "{} is not aligned to {} bytes.", what, bytes);
}

inline void check_attention_shape(std::uint32_t group, std::uint32_t dim) {
  TANDEM_CHECK(group >= 1 && group <= 32, "A group has 1 to 32 query heads, not {}.", group);
  TANDEM_CHECK(dim >= 1, "Heads of no dimensions.");
  if (dim > kMostDimensions)
    throw_input_error("Heads of {} dimensions are not supported on a GPU, where they may have {} at most; use the CPU.",
                      dim, kMostDimensions);
}

}  // namespace tandem::gpu
