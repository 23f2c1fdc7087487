// A partial index of a sequence's keys on the device (InfiniGen): per KV head an orthogonal skewing that gathers what
// queries and keys have in common in the first columns, and these columns of every indexed key. Scores from it say
// which tokens to fetch; what is fetched lies here too, until the layer after the next one needs the room.
//   skew:   [layer][kv_head][columns][D] f32, rows are directions
//   keys:   [layer][kv_head][room][columns] of KvShape::type, tokens from `begin` on
//   chosen: [2][kv_head][1 + most] u32: a count, then units in ascending order, by layer % 2
//   staged: [2][kv_head]{K [most * unit][D], V [most * unit][D]} of KvShape::type
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/device/device.h"
#include "engine/kv/host_pages.h"
#include "engine/kv/kv_store.h"

namespace tandem {

struct SkewedIndex {
  static constexpr const char* kName = "skewed index";
  SequenceId sequence = 0;
  KvShape shape;
  std::uint32_t columns = 0;
  std::uint32_t unit = 1;             // tokens that are fetched together
  std::uint32_t room = 0;             // tokens
  std::uint32_t most = 0;             // units per KV head of one fetch
  bool per_head = true;               // KV heads choose apart; else all have the same units, which travel together
  std::vector<std::uint32_t> tokens;  // [layer] indexed, from the sequence's first token on, whole units
  DeviceBuffer skew, keys, chosen, staged;
  std::shared_ptr<HostPages> host_pages;  // of the indexed tokens
  std::vector<Event> read;                // [2] the attention that last read what was fetched

  std::size_t skew_offset(std::uint32_t layer, std::uint32_t kv_head) const {  // in floats
    return (std::size_t{layer} * shape.kv_heads + kv_head) * columns * shape.head_dim;
  }
  std::size_t row_bytes() const { return columns * size_of(shape.type); }
  std::size_t keys_offset(std::uint32_t layer, std::uint32_t kv_head) const {  // in bytes
    return (std::size_t{layer} * shape.kv_heads + kv_head) * room * row_bytes();
  }
  std::size_t chosen_offset(std::uint32_t layer, std::uint32_t kv_head) const {  // in u32
    return (std::size_t{layer % 2} * shape.kv_heads + kv_head) * (1 + std::size_t{most});
  }
  std::size_t half_bytes() const { return 2 * std::size_t{most} * unit * shape.vector_bytes(); }  // of a KV head
  std::size_t staged_offset(std::uint32_t layer, std::uint32_t kv_head) const {                   // of K, in bytes
    return (std::size_t{layer % 2} * shape.kv_heads + kv_head) * half_bytes();
  }
  std::size_t bytes(Tier tier) const {
    return tier == Tier::device ? skew.bytes() + keys.bytes() + chosen.bytes() + staged.bytes() : 0;
  }
};

inline void make_skewed_keys(Device& device, SkewedIndex& index, std::uint32_t room) {
  index.room = room;
  index.keys = device.allocate_device(std::size_t{index.shape.layers} * index.shape.kv_heads * room * index.row_bytes(),
                                      "partial index");
}

inline void make_skewed_staging(Device& device, SkewedIndex& index, std::uint32_t most) {
  index.most = most;
  index.chosen = device.allocate_device(
      std::size_t{2} * index.shape.kv_heads * (1 + std::size_t{most}) * sizeof(std::uint32_t), "speculated tokens");
  index.staged = device.allocate_device(2 * index.shape.kv_heads * index.half_bytes(), "speculated kv");
}

/// Nothing indexed yet.
inline SkewedIndex make_skewed_index(Device& device, SequenceId sequence, const KvShape& shape, std::uint32_t columns,
                                     std::uint32_t unit, std::uint32_t room, std::uint32_t most, bool per_head) {
  SkewedIndex index;
  index.sequence = sequence;
  index.per_head = per_head;
  index.shape = shape;
  index.columns = columns;
  index.unit = unit;
  index.tokens.resize(shape.layers);
  index.read.resize(2);
  index.host_pages = std::make_shared<HostPages>(shape.layers);
  index.skew = device.allocate_device(
      std::size_t{shape.layers} * shape.kv_heads * columns * shape.head_dim * sizeof(float), "skewing");
  make_skewed_keys(device, index, room);
  make_skewed_staging(device, index, most);
  return index;
}

}  // namespace tandem
