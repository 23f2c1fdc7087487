// Tokens of a sequence that survived on the device, per layer and KV head, with the attention mass that each has
// gathered (H2O, Zhang et al. 2023). Which tokens they are is known to operation bodies only; every KV head of a layer
// holds the same number.
//   kv:        [layer][kv_head]{K [room][D], V [room][D]} of KvShape::type
//   mass:      [layer][kv_head][room] f32, summed over the query heads of the group and all queries so far
//   positions: [layer][kv_head][room] u32
//   arriving:  [layer][kv_head][tokens] f32, mass of a new prompt's tokens while it is being computed
#pragma once

#include <cstdint>
#include <vector>

#include "engine/device/device.h"
#include "engine/kv/kv_store.h"

namespace tandem {

struct HeavySet {
  static constexpr const char* kName = "heavy set";
  SequenceId sequence = 0;
  KvShape shape;
  std::uint32_t room = 0;           // tokens
  std::uint32_t window = 0;         // most recent tokens that nothing displaces
  bool latest = false;              // mass is the latest query's alone, and all KV heads hold the same tokens
  std::vector<std::uint32_t> held;  // [layer] tokens
  DeviceBuffer kv, mass, positions;
  Range arriving_tokens{0, 0};
  DeviceBuffer arriving;

  std::size_t list(std::uint32_t layer, std::uint32_t kv_head) const {  // in tokens
    return (std::size_t{layer} * shape.kv_heads + kv_head) * room;
  }
  std::size_t half_bytes() const { return std::size_t{room} * shape.vector_bytes(); }  // K or V of a KV head
  std::size_t kv_offset(std::uint32_t layer, std::uint32_t kv_head) const {            // of K, in bytes
    return (std::size_t{layer} * shape.kv_heads + kv_head) * 2 * half_bytes();
  }
  /// K, V, mass and position of a token of one KV head.
  std::size_t token_bytes() const { return 2 * shape.vector_bytes() + sizeof(float) + sizeof(std::uint32_t); }
  /// All of a layer.
  void append_access(std::uint32_t layer, bool write, std::vector<Access>& out) const {
    for (const DeviceBuffer* buffer : {&kv, &mass, &positions})
      out.push_back(write ? buffer->writes(layer, layer + 1) : buffer->reads(layer, layer + 1));
  }
  std::size_t bytes(Tier tier) const {
    return tier == Tier::host ? 0 : kv.bytes() + mass.bytes() + positions.bytes() + arriving.bytes();
  }
};

/// Empty.
inline HeavySet make_heavy_set(Device& device, SequenceId sequence, const KvShape& shape, std::uint32_t room,
                               std::uint32_t window) {
  HeavySet set;
  set.sequence = sequence;
  set.shape = shape;
  set.room = room;
  set.window = window;
  set.held.resize(shape.layers);
  const std::size_t tokens = std::size_t{shape.layers} * shape.kv_heads * room;
  set.kv = device.allocate_device(2 * tokens * shape.vector_bytes(), "heavy kv");
  set.mass = device.allocate_device(tokens * sizeof(float), "attention mass");
  set.positions = device.allocate_device(tokens * sizeof(std::uint32_t), "heavy positions");
  return set;
}

}  // namespace tandem
