// Page tables of the device tier where kernels read them: for whom the control thread would otherwise list every page
// of a context in every layer and step, which at 32K tokens costs it more than a small model's step takes the GPU.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "engine/device/launch_context.h"
#include "engine/kv/kv_store.h"

namespace tandem {

/// Of one stream, which alone reads what slots() gives and has written it before: an entry stays what it is until the
/// device is drained.
class PageTables {
 public:
  explicit PageTables(const KvStore& kv) : kv_(kv) {}

  /// Slots of a layer's blocks from block 0 on, as many as the sequence has now, in device memory; KvStore::kNoSlot or
  /// what was there once where a block has left the device. Puts into the stream what has come since the last call.
  const std::uint32_t* slots(LaunchContext& ctx, SequenceId sequence, std::uint32_t layer);
  /// Whether the layer's blocks have other slots than at the last call: then slots() launches a kernel for them.
  bool moved(SequenceId sequence, std::uint32_t layer);
  /// LogicError unless these blocks, which a plan attends, are on the device.
  void check(SequenceId sequence, std::uint32_t layer, Range blocks) const;

 private:
  struct Table {
    CudaMemory memory;  // [layers][capacity] u32
    std::uint32_t capacity = 0, blocks = 0;
    std::uint32_t rewrites = 0;           // KvStore::rewrites() when it was written
    std::vector<std::uint32_t> restores;  // [layer] KvStore::restores() when its row was written
  };
  void update(LaunchContext& ctx, SequenceId sequence, Table& table);
  void place(LaunchContext& ctx, SequenceId sequence, Table& table, Range layers, Range blocks);

  const KvStore& kv_;
  std::unordered_map<SequenceId, Table> tables_;
  std::unordered_map<SequenceId, std::vector<std::uint32_t>> seen_;  // [layer] KvStore::restores()
  std::vector<CudaMemory> outgrown_;  // may be in use; giving memory back waits for all streams
};

}  // namespace tandem
