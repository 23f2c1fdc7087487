// A look at a prefilled context for statistics of a method's own (Fluxion's predictor).
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "engine/runtime/mechanism.h"

namespace tandem {

/// One layer of a context in f32.
struct ContextView {
  std::uint32_t layer = 0, tokens = 0;
  const float* query = nullptr;            // of its last token, [Hq][D], after RoPE
  std::vector<const float*> keys, values;  // by KV head: [tokens][D]
};

struct ContextRequest {
  Cost cost;  // of a layer, beside reading it
  /// Writes what later HeadEstimates of the sequence read. Not called where only shapes are simulated. May be empty:
  /// only the cost of reading counts then.
  std::function<void(const ContextView&)> read;
};

class ContextViews : public Mechanism {
 public:
  using Mechanism::Mechanism;
  /// Shows a prefilled sequence, all of it still on the device, layer by layer on the device (Needs::last_queries); on
  /// a GPU the host looks at a copy.
  void show(SequenceState& sequence, const ContextRequest& request);
};

}  // namespace tandem
