// Digests of host-resident blocks and the room for selections made from them. One index covers a fixed token range of
// one sequence at one block size; a method that needs several granularities builds several indexes.
//   values:    [layer][kv_head][min, max][block][D] of KvShape::type
//   selection: [query head][1 + blocks] u32: a count, then block numbers in ascending order; rewritten by every layer
#pragma once

#include <cstdint>

#include "engine/common/error.h"
#include "engine/device/device.h"
#include "engine/kv/kv_store.h"

namespace tandem {

struct DigestIndex {
  static constexpr const char* kName = "digest index";
  SequenceId sequence = 0;
  Range tokens;             // block 0 starts at tokens.begin
  std::uint32_t block = 0;  // tokens per block
  std::uint32_t blocks = 0;
  KvShape shape;
  HostBuffer values, selection;

  std::size_t min_offset(std::uint32_t layer, std::uint32_t kv_head) const {  // in bytes; max follows min
    return (std::size_t{layer} * shape.kv_heads + kv_head) * 2 * blocks * shape.vector_bytes();
  }
  std::size_t max_offset(std::uint32_t layer, std::uint32_t kv_head) const {
    return min_offset(layer, kv_head) + blocks * shape.vector_bytes();
  }
  std::size_t layer_bytes() const { return std::size_t{shape.kv_heads} * 2 * blocks * shape.vector_bytes(); }
  /// Tokens of block b, as positions in the sequence.
  Range block_tokens(std::uint32_t b) const {
    const std::uint32_t begin = tokens.begin + b * block;
    return {begin, begin + block < tokens.end ? begin + block : tokens.end};
  }
  std::size_t bytes(Tier tier) const { return tier == Tier::host ? values.bytes() + selection.bytes() : 0; }
};

inline DigestIndex make_digest_index(Device& device, SequenceId sequence, Range tokens, std::uint32_t block,
                                     const KvShape& shape, std::uint32_t q_heads) {
  TANDEM_CHECK(tokens.begin < tokens.end && block % kPageTokens == 0, "digests over [{}, {}) by {}", tokens.begin,
               tokens.end, block);
  DigestIndex index;
  index.sequence = sequence;
  index.tokens = tokens;
  index.block = block;
  index.blocks = (tokens.end - tokens.begin + block - 1) / block;
  index.shape = shape;
  index.values = device.allocate_host(index.layer_bytes() * shape.layers, "digests");
  index.selection =
      device.allocate_host(std::size_t{q_heads} * (1 + index.blocks) * sizeof(std::uint32_t), "selection");
  return index;
}

}  // namespace tandem
