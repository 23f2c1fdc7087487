// Digests of host-resident blocks and the room for selections made from them. One index covers a fixed token range of
// one sequence at one block size; a method that needs several granularities builds several indexes.
//   values:    [layer][kv_head][min, max][block][D] f32
//   selection: [query head][1 + blocks] u32: a count, then block numbers in ascending order; rewritten by every layer
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>

#include "engine/common/error.h"
#include "engine/device/device.h"
#include "engine/kv/kv_store.h"

namespace tandem {

struct DigestIndex {
  SequenceId sequence = 0;
  Range tokens;             // block 0 starts at tokens.begin
  std::uint32_t block = 0;  // tokens per block
  std::uint32_t blocks = 0;
  KvShape shape;
  HostBuffer values, selection;

  std::size_t min_offset(std::uint32_t layer, std::uint32_t kv_head) const {  // in floats; max follows min
    return (std::size_t{layer} * shape.kv_heads + kv_head) * 2 * blocks * shape.head_dim;
  }
  std::size_t max_offset(std::uint32_t layer, std::uint32_t kv_head) const {
    return min_offset(layer, kv_head) + std::size_t{blocks} * shape.head_dim;
  }
  std::size_t layer_bytes() const { return std::size_t{shape.kv_heads} * 2 * blocks * shape.head_dim * sizeof(float); }
  /// Tokens of block b, as positions in the sequence.
  Range block_tokens(std::uint32_t b) const {
    const std::uint32_t begin = tokens.begin + b * block;
    return {begin, begin + block < tokens.end ? begin + block : tokens.end};
  }
};

class DigestStore {
 public:
  std::uint32_t create(Device& device, SequenceId sequence, Range tokens, std::uint32_t block, const KvShape& shape,
                       std::uint32_t q_heads) {
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
    const std::uint32_t id = next_id_++;
    indexes_.emplace(id, std::move(index));
    return id;
  }
  const DigestIndex& get(std::uint32_t id) const {
    const auto found = indexes_.find(id);
    TANDEM_CHECK(found != indexes_.end(), "digest index {} does not exist", id);
    return found->second;
  }
  void destroy_of(SequenceId sequence) {
    std::erase_if(indexes_, [sequence](const auto& entry) { return entry.second.sequence == sequence; });
  }
  std::size_t bytes_of(SequenceId sequence) const {
    std::size_t bytes = 0;
    for (const auto& [id, index] : indexes_) {
      if (index.sequence == sequence) bytes += index.values.bytes() + index.selection.bytes();
    }
    return bytes;
  }

 private:
  std::unordered_map<std::uint32_t, DigestIndex> indexes_;
  std::uint32_t next_id_ = 1;
};

}  // namespace tandem
