// What a layer's attention on the device attends to, gathered when its operation is submitted (device_attention.cc) and
// turned into spans of KV when the body runs (device_spans.cc), which alone knows what was chosen.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "engine/runtime/decode_attention.h"
#include "engine/runtime/of_heads.h"

namespace tandem {

/// Blocks that a row attends on the device and that only bodies know: a selection's, in the store or fetched.
struct DecodeAttention::DeviceChosen {
  std::uint32_t row = 0, layer = 0;
  DigestIndex index;
  Scope scope = Scope::query_head;
  std::uint32_t blocks = 0;          // that have a digest
  std::uint32_t most = 0;            // that a KV head's query heads can have chosen together
  SequenceId sequence = 0;           // whose they are
  std::vector<std::uint32_t> slots;  // of their pages in the store, for bodies
  std::optional<Staging> staging;    // where they were fetched to instead
  std::uint32_t part = 0;
  Range heads;
  bool own_only = true;
};

/// Whole blocks that were fetched.
struct DecodeAttention::DeviceFetched {
  std::uint32_t row = 0;
  Staging staging;
  std::uint32_t part = 0, blocks = 0;
  Range heads;
};

/// Blocks that are resident: all of them, or those of the latest choice, which only bodies know.
struct DecodeAttention::DeviceResident {
  std::uint32_t row = 0, layer = 0;
  ResidentSet set;  // as it is when submitted
  bool chosen_only = false;
};

/// Tokens that were fetched ahead; how many, only bodies know.
struct DecodeAttention::DeviceSpeculated {
  std::uint32_t row = 0, layer = 0;
  SkewedIndex index;  // as it is when submitted
};

/// Single tokens of the store's pages; which, only bodies know.
struct DecodeAttention::DeviceTokens {
  std::uint32_t row = 0;
  TokenChoice choice;
  SequenceId sequence = 0;
  std::vector<std::uint32_t> slots;  // of the pages that the candidates are in, for bodies
  std::uint32_t keep = 0;            // tokens of a KV head
};

/// Single tokens that a cache rank chose and sent, packed.
struct DecodeAttention::DeviceAhead {
  std::uint32_t row = 0, layer = 0;
  CacheRank rank;  // as it is when submitted
};

/// Tokens that survived, per KV head.
struct DecodeAttention::DeviceHeavy {
  std::uint32_t row = 0, layer = 0, held = 0;
  HeavySet set;
};

struct DecodeAttention::DeviceRow {
  SequenceId sequence = 0;
  // [KV head] entries of its list over the store's pages, at most: of what the plan names and of what was chosen there.
  std::vector<std::uint32_t> entries;
  OfHeads<PageRun> pages;  // for bodies
  OfHeads<Range> tokens;   // for launches

  void add_entries(Range heads, std::uint32_t more) {
    for (std::uint32_t head = heads.begin; head < heads.end; ++head) entries[head] += more;
  }
};

struct DecodeAttention::DeviceWork {
  std::vector<DeviceRow> fixed;  // [row]: rows without device items give the empty partial
  std::vector<DeviceFetched> fetched;
  std::vector<DeviceHeavy> heavy;
  std::vector<DeviceTokens> tokens;
  std::vector<DeviceAhead> ahead;
  std::vector<DeviceChosen> chosen;
  std::vector<DeviceResident> residents;
  std::vector<DeviceSpeculated> speculated;
  std::vector<Access> own;  // what is touched whatever was chosen
  Cost cost;                // of that
  bool settles = false;     // what is attended is known to the body only

  /// LogicError for rows that launch_device() does not take together, so that every device refuses what a GPU would.
  void check(std::uint32_t kv_heads, bool scores) const;
  /// Of launch_device(). scores: of what the plan names, for something that is made of them.
  std::uint32_t kernels(bool scores) const;

  bool chooses_blocks_of_store() const {
    return std::any_of(chosen.begin(), chosen.end(), [](const auto& c) { return !c.staging; });
  }
  /// Blocks of the store's pages were chosen, or single tokens: not both.
  bool chooses_of_store() const { return !tokens.empty() || chooses_blocks_of_store(); }
  /// Nothing that lies elsewhere is attended.
  bool only_store() const {
    return fetched.empty() && residents.empty() && ahead.empty() && speculated.empty() && heavy.empty() &&
           std::none_of(chosen.begin(), chosen.end(), [](const auto& c) { return c.staging.has_value(); });
  }
};

}  // namespace tandem
