// KvSpan apart from attention.h, for files that include no C++ library header (vec.h says why).
#pragma once

#include <stdint.h>

namespace tandem {

/// A run of tokens of one KV head.
struct KvSpan {
  const float* k = nullptr;  // [tokens][D]
  const float* v = nullptr;  // [tokens][D]
  uint32_t tokens = 0;       // may be 0
  uint32_t head_mask = 0;    // bit g: query head g of the group attends this span; a span with mask 0 is not read
};

}  // namespace tandem
