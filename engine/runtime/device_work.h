// What a layer's attention on the device attends to, gathered when its operation is submitted (device_attention.cc) and
// turned into spans of KV when the body runs (device_work.cc), which alone knows what was chosen.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "engine/runtime/decode_attention.h"
#include "engine/runtime/selection.h"

namespace tandem {

/// A row's blocks, which only bodies know: in the store, or copied.
struct DecodeAttention::DeviceBlocks {
  std::uint32_t row = 0;
  ChosenBlocks chosen;
  std::optional<Blocks::Copy> copy;
  SequenceId sequence = 0;  // whose they are
  bool own_only = true;
};

/// A row's single tokens; which, only bodies know.
struct DecodeAttention::DeviceTokens {
  std::uint32_t row = 0;
  Tokens tokens;
  SequenceId sequence = 0;
  std::vector<std::uint32_t> slots;  // of the pages that the candidates are in, for bodies
};

/// A row's tokens in memory of their own.
struct DecodeAttention::DevicePacked {
  std::uint32_t row = 0;
  Packed packed;
  bool scored = false;  // its weights go to a mechanism

  bool in_pages() const { return packed.memory.in_pages(); }
};

struct DecodeAttention::DeviceRow {
  SequenceId sequence = 0;
  // Entries of a KV head's list over the store's pages, at most: of what the plan names and of what was chosen there.
  std::uint32_t entries = 0;
  std::vector<PageRun> pages;  // that the plan names, for bodies
  std::vector<Range> tokens;   // the same for launches, whose kernels list the pages
};

struct DecodeAttention::DeviceWork {
  std::vector<DeviceRow> fixed;  // [row]: rows without device items give the empty partial
  std::vector<DeviceBlocks> blocks;
  std::vector<DeviceTokens> tokens;
  std::vector<DevicePacked> packed;
  std::vector<Event*> readers;  // KvMemory::reader of all sources
  std::vector<Access> own;      // what is touched whatever was chosen
  Cost cost;                    // of that
  std::uint32_t tables = 0;     // rows whose page tables are written anew
  bool settles = false;         // what is attended is known to the body only

  /// LogicError for rows that launch_device() does not take together, so that every device refuses what a GPU would.
  void check(bool scores) const;
  /// Of launch_device(). scores: of what the plan names, for something that is made of them.
  std::uint32_t kernels(bool scores) const;

  void note_reader(const KvMemory& memory) {
    if (memory.reader != nullptr) readers.push_back(memory.reader);
  }
  bool copied_blocks() const {
    return std::any_of(blocks.begin(), blocks.end(), [](const auto& b) { return b.copy.has_value(); });
  }
  bool chooses_blocks_of_store() const {
    return std::any_of(blocks.begin(), blocks.end(), [](const auto& b) { return !b.copy.has_value(); });
  }
  /// Blocks of the store's pages were chosen, or single tokens: not both.
  bool chooses_of_store() const { return !tokens.empty() || chooses_blocks_of_store(); }
  /// Nothing that lies elsewhere is attended.
  bool only_store() const { return packed.empty() && !copied_blocks(); }
  /// The kernels count what the rows attend of what lies in pages, or not.
  bool counts_packed(bool in_pages) const {
    return std::any_of(packed.begin(), packed.end(),
                       [&](const auto& p) { return p.in_pages() == in_pages && (p.packed.counted || p.packed.count); });
  }
};

}  // namespace tandem
