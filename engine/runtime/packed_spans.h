// Counts and spans of packed tokens, for bodies that declared their accesses.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "engine/device/device.h"
#include "engine/kernels/attention_span.h"
#include "engine/kv/block_set.h"
#include "engine/kv/kv_source.h"

namespace tandem {

/// Membership of the block in each place in the choice.
class NamedBlocks {
 public:
  NamedBlocks(const BodyContext& ctx, const Packed& packed, const Packed::Named& named, std::uint32_t kv_head)
      : numbers_(named.numbers), set_(named.numbers) {
    const std::uint32_t* chosen =
        named.chosen.read<std::uint32_t>(ctx) + named.chosen_offset + kv_head * named.chosen_stride;
    set_.add({chosen + 1, chosen[0]});
    places_ = {ctx.read<std::uint32_t>(named.table) + named.table_offset + kv_head * named.table_stride,
               packed.tokens / (packed.block_runs * packed.memory.run_tokens)};
  }
  bool has(std::uint32_t place) const { return contains(places_[place]); }
  std::uint32_t count() const {
    return static_cast<std::uint32_t>(
        std::ranges::count_if(places_, [&](std::uint32_t block) { return contains(block); }));
  }

 private:
  /// A place that holds nothing has a number that no block has.
  bool contains(std::uint32_t block) const { return block < numbers_ && set_.contains(block); }

  std::uint32_t numbers_ = 0;
  BlockSet set_;
  std::span<const std::uint32_t> places_;
};

/// Tokens of a KV head, and of all of a row's.
inline std::uint32_t packed_tokens(const BodyContext& ctx, const Packed& packed, std::uint32_t kv_head) {
  if (const Packed::Count* count = packed.counter())
    return count->values.read<std::uint32_t>(ctx)[count->offset + kv_head * count->stride] * count->unit;
  if (const Packed::Named* named = packed.names())
    return NamedBlocks(ctx, packed, *named, kv_head).count() * packed.block_runs * packed.memory.run_tokens;
  return packed.tokens;
}
inline std::uint64_t packed_tokens_of_row(const BodyContext& ctx, const Packed& packed, std::uint32_t kv_heads) {
  if (const Packed::Named* named = packed.names();
      named != nullptr && named->chosen_stride == 0)  // all heads have the same
    return std::uint64_t{kv_heads} * packed_tokens(ctx, packed, 0);
  std::uint64_t sum = 0;
  for (std::uint32_t g = 0; g < kv_heads; ++g) sum += packed_tokens(ctx, packed, g);
  return sum;
}

/// Appends a KV head's runs, in the order in which they lie. `vector_bytes`: of K or V of a token and head. `own_only`:
/// where tokens have masks, each query head attends what it chose, and runs are cut where masks change.
inline void append_packed_spans(const BodyContext& ctx, const Packed& packed, std::size_t vector_bytes,
                                std::uint32_t kv_head, bool own_only, std::vector<KvSpan>& spans) {
  const KvMemory& memory = packed.memory;
  const char* const kv = memory.kv.read<char>(ctx);
  const std::size_t v_after_k = memory.run_tokens * vector_bytes;
  std::optional<NamedBlocks> named;
  if (const Packed::Named* by = packed.names()) named.emplace(ctx, packed, *by, kv_head);
  const std::uint32_t tokens = named ? packed.tokens : packed_tokens(ctx, packed, kv_head);
  const std::uint32_t* const masks =
      packed.masks && own_only
          ? packed.masks->values.read<std::uint32_t>(ctx) + packed.masks->offset + kv_head * packed.masks->stride
          : nullptr;
  for (std::uint32_t token = 0, run = 0; token < tokens; token += memory.run_tokens, ++run) {
    if (named && !named->has(run / packed.block_runs)) continue;
    const char* const k = kv + memory.k_offset(kv_head, run);
    const std::uint32_t count = std::min(memory.run_tokens, tokens - token);
    for (std::uint32_t t = 0; t < count;) {  // tokens that the same heads chose as one span
      std::uint32_t end = masks == nullptr ? count : t + 1;
      while (end < count && masks[token + end] == masks[token + t]) ++end;
      spans.push_back(
          {k + t * vector_bytes, k + v_after_k + t * vector_bytes, end - t, masks == nullptr ? ~0u : masks[token + t]});
      t = end;
    }
  }
}

}  // namespace tandem
