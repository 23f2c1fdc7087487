// Digests of a sequence's blocks and the room for selections made from them. They lie in device or in host memory,
// wherever the KV that they stand for is. An index has one block size; a method that needs several granularities builds
// several indexes.
//   values:    [layer from first_layer on][kv_head][min, max][room][D] of KvShape::type;
//              of means [layer from first_layer on][kv_head][room][D]
//   selection: [list][1 + room] u32: a count, then block numbers in ascending order; a list per query head, per KV head
//              or one for all, as the selection's scope says. One at a time: the next choice replaces it
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "engine/common/error.h"
#include "engine/device/device.h"
#include "engine/kernels/digest.h"
#include "engine/kv/block_set.h"
#include "engine/kv/kv_store.h"
#include "engine/kv/tier_buffer.h"

namespace tandem {

struct DigestIndex {
  static constexpr const char* kName = "digest index";
  SequenceId sequence = 0;
  Range tokens;             // block 0 starts at tokens.begin; a fixed index covers them all
  std::uint32_t block = 0;  // tokens per block
  DigestKind kind = DigestKind::bounds;
  std::uint32_t room = 0;              // blocks
  std::vector<std::uint32_t> digests;  // [layer] blocks that have one, from block 0 on
  std::vector<Event> built;            // [layer] the operation that made the last of them
  std::vector<Event> read;             // [layer] the last one on another side's lane that read them
  std::uint32_t first_layer = 0;       // layers before it have no digests
  std::optional<std::uint32_t> finer;  // the index whose digests these are made from, where it is not the keys
  KvShape shape;
  std::uint32_t q_heads = 0;
  TierBuffer values, selection;

  Tier tier() const { return values.tier(); }
  std::size_t min_offset(std::uint32_t layer,
                         std::uint32_t kv_head) const {  // in bytes; max follows min, a mean is both
    return (std::size_t{layer - first_layer} * shape.kv_heads + kv_head) * vectors_of(kind) * room *
           shape.vector_bytes();
  }
  std::size_t max_offset(std::uint32_t layer, std::uint32_t kv_head) const {
    return min_offset(layer, kv_head) + (vectors_of(kind) - 1) * room * shape.vector_bytes();
  }
  /// Of so many blocks of one layer.
  std::size_t digest_bytes(std::uint32_t blocks) const {
    return std::size_t{shape.kv_heads} * vectors_of(kind) * blocks * shape.vector_bytes();
  }
  /// Tokens of block b, as positions in the sequence.
  Range block_tokens(std::uint32_t b) const {
    const std::uint32_t begin = tokens.begin + b * block;
    return {begin, std::min(begin + block, tokens.end)};
  }
  /// Tokens of the blocks that have a digest.
  Range digested(std::uint32_t layer) const {
    return {tokens.begin, digests[layer] == 0 ? tokens.begin : block_tokens(digests[layer] - 1).end};
  }
  /// Tokens of some of the first `blocks` blocks. Only the index's last block, which closes it, may be short: what
  /// these tokens fill is blocks_for() pages.
  std::uint32_t tokens_of(const BlockSet& set, std::uint32_t blocks) const {
    std::uint32_t sum = set.count() * block;
    if (blocks > 0 && set.contains(blocks - 1)) {
      const Range last = block_tokens(blocks - 1);
      sum -= block - (last.end - last.begin);
    }
    return sum;
  }
  std::size_t bytes(Tier tier) const { return tier == this->tier() ? values.bytes() + selection.bytes() : 0; }
};

/// Without any digests yet; room for those of `tokens`.
inline DigestIndex make_digest_index(Device& device, Tier tier, SequenceId sequence, Range tokens, std::uint32_t block,
                                     const KvShape& shape, std::uint32_t q_heads, std::uint32_t first_layer,
                                     DigestKind kind) {
  TANDEM_CHECK(tokens.begin <= tokens.end && tokens.begin % kPageTokens == 0 && block > 0 && block % kPageTokens == 0,
               "digests over [{}, {}) by {}", tokens.begin, tokens.end, block);
  TANDEM_CHECK(first_layer <= shape.layers, "digests from layer {} of {} on", first_layer, shape.layers);
  DigestIndex index;
  index.sequence = sequence;
  index.tokens = tokens;
  index.block = block;
  index.kind = kind;
  index.room = (tokens.end - tokens.begin + block - 1) / block;
  index.digests.resize(shape.layers);
  index.built.resize(shape.layers);
  index.read.resize(shape.layers);
  index.first_layer = first_layer;
  index.shape = shape;
  index.q_heads = q_heads;
  index.values = TierBuffer(device, tier, index.digest_bytes(index.room) * (shape.layers - first_layer), "digests");
  index.selection =
      TierBuffer(device, tier, std::size_t{q_heads} * (1 + index.room) * sizeof(std::uint32_t), "selection");
  return index;
}

}  // namespace tandem
