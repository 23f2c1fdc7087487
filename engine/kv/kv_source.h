// Sources of attention: the four kinds of tokens that a plan can name (runtime/plan.h). A mechanism that keeps KV in
// its own memory describes it as one of them.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "engine/device/types.h"
#include "engine/kernels/scope.h"
#include "engine/kv/kv_store.h"
#include "engine/kv/tier_buffer.h"

namespace tandem {

/// KV is attended on the side where it lies.
using Side = Tier;

/// Fields that all four kinds have.
struct KvTokens {
  std::optional<SequenceId> sequence = {};  // whose they are; empty: the row's own
  Side side = Side::device;
  // Sorted, disjoint ranges that contain their positions; empty if only operation bodies know these.
  std::vector<Range> positions = {};
  Event ready = {};         // when they are there
  std::uint64_t found = 0;  // bytes of these that were looked for and had stayed on the device (Cost::looked_up)
};

/// All tokens at their positions, in the KV store.
struct Ranges : KvTokens {
  Ranges() = default;
  Ranges(std::initializer_list<Range> tokens, Side on = Side::device) : Ranges(std::vector<Range>(tokens), on) {}
  explicit Ranges(std::vector<Range> tokens, Side on = Side::device) {
    positions = std::move(tokens);
    side = on;
  }
  /// All `tokens` of a row except those in `gap`, which may be empty.
  static Ranges around(Range gap, std::uint32_t tokens) {
    if (gap.begin >= gap.end) return {{0, tokens}};
    if (gap.begin == 0) return {{gap.end, tokens}};
    return {{0, gap.begin}, {gap.end, tokens}};
  }
  std::uint32_t count() const {
    std::uint32_t sum = 0;
    for (const Range& r : positions) sum += r.end - r.begin;
    return sum;
  }
};

/// KV outside the store: K and V of `run_tokens` tokens lie side by side, {K [run_tokens][D], V [run_tokens][D]}.
struct KvMemory {
  TierBuffer kv = {};
  std::size_t offset = 0;                     // in bytes, of the first run of the first KV head; from there
  std::size_t head_bytes = 0, run_bytes = 0;  // to the next KV head, and to the next run of one
  std::uint32_t run_tokens = 0;
  Event* reader = nullptr;  // attention stores the last operation that read it here, unless null

  /// Runs are pages of the store's layout; else all tokens of a KV head are one run.
  bool in_pages() const { return run_bytes != 0; }
  std::size_t k_offset(std::uint32_t kv_head, std::uint32_t run) const {
    return offset + kv_head * head_bytes + run * run_bytes;
  }
};

struct DigestRef {  // a digest index; `side`: where its digests lie
  std::uint32_t id = 0;
  Side side = Side::host;
};

/// Blocks of a digest index that a selection names: in the store, or where a fetch has brought them.
struct Blocks : KvTokens {
  DigestRef digests = {};
  std::uint32_t layer = 0;
  Scope scope = Scope::query_head;
  std::uint32_t blocks = 0;  // that each list holds
  /// The blocks' pages as runs, each KV head's chosen ones in ascending order. `ready` of the base is the choice's.
  struct Copy {
    KvMemory memory;
    Access access;
    Event ready;
  };
  std::optional<Copy> copy = {};
};

/// Single tokens of the store's pages on the device, from lists there.
struct Tokens : KvTokens {
  DeviceBuffer lists = {};   // [kv_head][stride] u32: a count, then tokens in ascending order
  std::size_t stride = 0;    // in u32
  std::uint32_t tokens = 0;  // of a KV head, at most
};

/// Tokens in separate memory: `tokens` for each KV head, or fewer if `count` or `named` says so when the body runs.
struct Packed : KvTokens {
  KvMemory memory = {};
  std::uint32_t tokens = 0;
  /// A KV head has values[offset + kv_head * stride] * unit tokens.
  struct Count {
    TierBuffer values;                   // u32
    std::size_t offset = 0, stride = 0;  // in u32
    std::uint32_t unit = 1;
  };
  std::optional<Count> count = {};
  /// A KV head has those blocks, of `block_runs` runs each, whose numbers `chosen` contains.
  struct Named {
    DeviceBuffer table;                              // u32: block number by place
    TierBuffer chosen;                               // on the device, u32: a count, then numbers in ascending order
    std::size_t table_offset = 0, table_stride = 0;  // in u32; strides from one KV head to the next
    std::size_t chosen_offset = 0, chosen_stride = 0;
    std::uint32_t numbers = 0;  // block numbers are below this
  };
  std::optional<Named> named = {};
  std::uint32_t block_runs = 1;
  bool counted = false;  // a GPU kernel counts the attended tokens
  /// Bit mask per token of the query heads that attend it; host memory only.
  struct Masks {
    TierBuffer values;                   // u32, [kv_head][stride]
    std::size_t offset = 0, stride = 0;  // in u32
  };
  std::optional<Masks> masks = {};
  std::vector<Access> access = {};  // reads that attention declares

  const Count* counter() const { return count ? &*count : nullptr; }
  const Named* names() const { return named ? &*named : nullptr; }
};

using KvSource = std::variant<Ranges, Blocks, Tokens, Packed>;

inline const KvTokens& common_of(const KvSource& source) {
  return *std::visit([](const KvTokens& tokens) { return &tokens; }, source);
}

}  // namespace tandem
