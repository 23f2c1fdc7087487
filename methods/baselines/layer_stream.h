// What full-offload and the dense layers of infinigen share: layers whose KV lies in host memory and is all copied to
// the device ahead of their attention, layer after layer, in every step.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/runtime/method.h"

namespace tandem {

/// Of a sequence: room on the device for some layers' KV at a time, which the layers take in turn.
struct LayerStream {
  std::uint32_t block = 0;  // tokens that leave the device together
  std::uint32_t room = 0;   // of a part, in tokens: whole blocks
  StagingRef staging;
  std::vector<KvSource> fetched;  // [layer % parts]

  std::uint32_t parts() const { return static_cast<std::uint32_t>(fetched.size()); }
  /// What the step has fetched of a layer.
  const KvSource& of(std::uint32_t layer) const { return fetched[layer % parts()]; }
};

/// With room for the whole blocks of max_tokens, `parts` times.
LayerStream open_layer_stream(SequenceState& sequence, std::uint32_t parts, std::uint32_t block, Ops& ops);

struct StreamedRow {
  const SequenceState* sequence = nullptr;
  LayerStream* stream = nullptr;  // all rows' have as many parts
  std::uint32_t end = 0;          // tokens before it are in host memory, whole blocks; at least one
};
/// In before_layer of the layers before `layers`: fetches what is to be on its way now, so that while a layer runs the
/// next ones, one fewer than there are parts, are on their way. The first begin with the step.
void stream_layers(const LayerContext& context, std::uint32_t layers, std::span<const StreamedRow> rows, Ops& ops);

}  // namespace tandem
