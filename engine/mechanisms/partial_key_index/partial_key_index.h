// A partial index of a sequence's keys on the device (InfiniGen): per KV head an orthogonal skewing that gathers what
// queries and keys have in common in the first columns, and these columns of every indexed key. Scores from it say
// which tokens to fetch; what is fetched lies here too, until the layer after the next one needs the room.
//   skew:   [layer from first_layer on][kv_head][columns][D] f32, rows are directions
//   keys:   [layer from first_layer on][kv_head][room][columns] of KvShape::type, from the sequence's first token on
//   chosen: [half][kv_head][1 + most] u32: a count, then units in ascending order
//   staged: [half][kv_head]{K [most * unit][D], V [most * unit][D]} of KvShape::type
// There are two halves, which layers take in turn; one, or none, where no more layers are indexed.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "engine/common/error.h"
#include "engine/device/device.h"
#include "engine/kernels/scope.h"
#include "engine/kv/host_pages.h"
#include "engine/kv/kv_store.h"

namespace tandem {

struct PartialKeyIndex {
  static constexpr const char* kName = "partial key index";
  SequenceId sequence = 0;
  KvShape shape;
  std::uint32_t columns = 0;
  std::uint32_t unit = 1;         // tokens that are fetched together
  std::uint32_t first_layer = 0;  // layers before it have no index
  std::uint32_t room = 0;         // tokens
  std::uint32_t most = 0;         // units per KV head of one fetch
  Scope scope = Scope::kv_head;   // of a layer: all KV heads have the same units, which travel together
  // [layer] tokens in host memory, from the sequence's first on, whole units; those of layers with an index are in it.
  std::vector<std::uint32_t> tokens;
  DeviceBuffer skew, keys, chosen, staged;
  std::shared_ptr<HostPages> host_pages;  // of the indexed tokens

  std::uint32_t layers() const { return shape.layers - first_layer; }  // with an index
  std::uint32_t halves() const { return std::min(2u, layers()); }
  std::uint32_t half(std::uint32_t layer) const { return (layer - first_layer) % 2; }
  std::size_t skew_offset(std::uint32_t layer, std::uint32_t kv_head) const {  // in floats
    return (std::size_t{layer - first_layer} * shape.kv_heads + kv_head) * columns * shape.head_dim;
  }
  std::size_t row_bytes() const { return columns * size_of(shape.type); }
  std::size_t keys_offset(std::uint32_t layer, std::uint32_t kv_head) const {  // in bytes
    return (std::size_t{layer - first_layer} * shape.kv_heads + kv_head) * room * row_bytes();
  }
  std::size_t chosen_offset(std::uint32_t layer, std::uint32_t kv_head) const {  // in u32
    return (std::size_t{half(layer)} * shape.kv_heads + kv_head) * (1 + std::size_t{most});
  }
  std::size_t half_bytes() const { return 2 * std::size_t{most} * unit * shape.vector_bytes(); }  // of a KV head
  std::size_t staged_offset(std::uint32_t layer, std::uint32_t kv_head) const {                   // of K, in bytes
    return (std::size_t{half(layer)} * shape.kv_heads + kv_head) * half_bytes();
  }
  std::size_t bytes(Tier tier) const {
    return tier == Tier::device ? skew.bytes() + keys.bytes() + chosen.bytes() + staged.bytes() : 0;
  }
};

inline void make_index_room(Device& device, PartialKeyIndex& index, std::uint32_t room) {
  index.room = room;
  index.keys = device.allocate_device(std::size_t{index.layers()} * index.shape.kv_heads * room * index.row_bytes(),
                                      "partial index");
}

inline void make_fetch_room(Device& device, PartialKeyIndex& index, std::uint32_t most) {
  index.most = most;
  index.chosen = device.allocate_device(
      std::size_t{index.halves()} * index.shape.kv_heads * (1 + std::size_t{most}) * sizeof(std::uint32_t),
      "speculated tokens");
  index.staged = device.allocate_device(index.halves() * index.shape.kv_heads * index.half_bytes(), "speculated kv");
}

/// Nothing indexed yet.
inline PartialKeyIndex make_partial_key_index(Device& device, SequenceId sequence, const KvShape& shape,
                                              std::uint32_t columns, std::uint32_t unit, std::uint32_t room,
                                              std::uint32_t most, Scope scope, std::uint32_t first_layer) {
  TANDEM_CHECK(first_layer <= shape.layers, "an index from layer {} of {} on", first_layer, shape.layers);
  PartialKeyIndex index;
  index.sequence = sequence;
  index.scope = scope;
  index.shape = shape;
  index.columns = columns;
  index.first_layer = first_layer;
  index.unit = unit;
  index.tokens.resize(shape.layers);
  index.host_pages = std::make_shared<HostPages>(shape.layers);
  index.skew = device.allocate_device(
      std::size_t{index.layers()} * shape.kv_heads * columns * shape.head_dim * sizeof(float), "skewing");
  make_index_room(device, index, room);
  make_fetch_room(device, index, most);
  return index;
}

}  // namespace tandem
