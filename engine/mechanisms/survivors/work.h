// Arguments of the survivors' operations, shared by bodies (survivors.cc) and GPU launches (launch.cc).
#pragma once

#include <algorithm>
#include <vector>

#include "engine/mechanisms/survivors/kernels/heavy.h"
#include "engine/mechanisms/survivors/survivors.h"

namespace tandem {

/// A layer's competition for the places of a set.
struct Survivors::Competition {
  SurvivorSet old, to;  // by value: others may take their places before the operation runs
  std::uint32_t layer = 0, held = 0;
  Range arriving;            // tokens of a new prompt
  std::uint32_t stride = 0;  // of their mass, SurvivorSet::arriving
  std::uint32_t window_begin = 0;
  std::vector<std::uint32_t> slots;  // of their pages
  PromptQueries queries;             // where the latest one's weights count
  std::uint32_t last = 0;            // token of that

  std::uint32_t added() const { return arriving.end - arriving.begin; }
  bool by_latest() const { return to.latest && added() > 0; }
  /// Of the latest query of the prompt, in floats.
  std::size_t query_offset(const ModelShape& shape) const {
    return (std::size_t{layer} * queries.kept + last % queries.kept) * shape.q_heads * shape.head_dim;
  }
};

/// A set's part of a step's update.
struct Survivors::Row {
  SurvivorSet set;
  std::uint32_t row = 0, held = 0, position = 0, slot = 0;
  std::size_t offset = 0;  // of its scores, for the body

  /// Kernel arguments for one KV head, without scores. `lse`: [rows][Hq].
  HeavyStep step(const BodyContext& ctx, std::uint32_t layer, std::uint32_t kv_head, std::uint32_t group,
                 const float* lse) const {
    const std::size_t list = set.list(layer, kv_head);
    HeavyStep one;
    one.lse = lse + (std::size_t{row} * set.shape.kv_heads + kv_head) * group;
    one.mass = ctx.write<float>(set.mass) + list;
    one.positions = ctx.write<std::uint32_t>(set.positions) + list;
    one.keys = ctx.write<char>(set.kv) + set.kv_offset(layer, kv_head);
    one.values = static_cast<char*>(one.keys) + set.half_bytes();
    one.held = held;
    one.room = set.room;
    one.window_begin = position + 1 - std::min(set.window, position + 1);
    one.position = position;
    one.slot = slot;
    one.kv_head = kv_head;
    return one;
  }
};

}  // namespace tandem
