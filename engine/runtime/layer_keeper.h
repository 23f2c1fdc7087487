// Where the KV of a prompt that is being prefilled does not fit the device: brings it there layer by layer.
#pragma once

#include <cstdint>

#include "engine/device/types.h"
#include "engine/kv/kv_store.h"

namespace tandem {

class LayerKeeper {
 public:
  LayerKeeper() = default;
  LayerKeeper(const LayerKeeper&) = delete;
  LayerKeeper& operator=(const LayerKeeper&) = delete;
  virtual ~LayerKeeper() = default;
  /// Before the sequence grows by `tokens`: frees device memory for their KV in all layers.
  virtual void make_room(SequenceId sequence, std::uint32_t tokens) = 0;
  /// All KV that the sequence has in this layer stays on the device from the returned event until read().
  virtual Event need(SequenceId sequence, std::uint32_t layer) = 0;
  /// `reader` is the last operation that reads what need() brought.
  virtual void read(SequenceId sequence, std::uint32_t layer, Event reader) = 0;
};

}  // namespace tandem
