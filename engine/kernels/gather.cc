#include "engine/kernels/gather.h"

#include "engine/common/error.h"

namespace tandem {

void check_pieces(const Pieces& pieces) {
  const auto number_of = [](const void* at) { return reinterpret_cast<std::uintptr_t>(at); };
  TANDEM_CHECK(
      (pieces.bytes | pieces.from_stride | pieces.to_stride | number_of(pieces.from) | number_of(pieces.to)) % 16 == 0,
      "Pieces of {} bytes at strides of {} and {} are not all multiples of 16.", pieces.bytes, pieces.from_stride,
      pieces.to_stride);
}

}  // namespace tandem
