// Counts and spans of packed tokens, for bodies that declared their accesses.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/device/device.h"
#include "engine/kernels/attention_span.h"
#include "engine/kv/kv_source.h"

namespace tandem {

/// Tokens of a KV head, and of all of a row's.
std::uint32_t packed_tokens(const BodyContext& ctx, const Packed& packed, std::uint32_t kv_head);
std::uint64_t packed_tokens_of_row(const BodyContext& ctx, const Packed& packed, std::uint32_t kv_heads);

/// Appends a KV head's runs, in the order in which they lie. `vector_bytes`: of K or V of a token and head. `own_only`:
/// where tokens have masks, each query head attends what it chose, and runs are cut where masks change.
void append_packed_spans(const BodyContext& ctx, const Packed& packed, std::size_t vector_bytes, std::uint32_t kv_head,
                         bool own_only, std::vector<KvSpan>& spans);

}  // namespace tandem
