// KvSpan apart from attention.h, for files that include no C++ library header (vec.h says why).
#pragma once

#include <stdint.h>

#include "engine/kernels/tensor.h"

namespace tandem {

/// A run of tokens of one KV head.
struct KvSpan {
  const void* k = nullptr;  // [tokens][D] of AttentionShape::kv
  const void* v = nullptr;  // [tokens][D] of AttentionShape::kv
  uint32_t tokens = 0;      // may be 0
  uint32_t head_mask = 0;   // bit g: query head g of the group attends this span; a span with mask 0 is not read
};

/// The query heads that share one KV head.
struct AttentionShape {
  uint32_t group = 1;     // query heads, 1..32
  uint32_t dim = 0;       // D
  DType kv = DType::f32;  // how K and V are stored
};

}  // namespace tandem
