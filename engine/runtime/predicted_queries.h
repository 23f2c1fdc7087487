// Queries that a layer before predicts (ScoutAttention algorithm 1, line 2), on the device. Those of a layer live in
// one of two halves by layer % 2.
#pragma once

#include "engine/device/device.h"
#include "engine/runtime/forward.h"
#include "engine/runtime/plan.h"

namespace tandem {

class PredictedQueries {
 public:
  PredictedQueries(Forward& forward, Device& device) : forward_(forward), device_(device) {}

  QueryRef predict(const LayerContext& context, std::uint32_t layer, std::uint32_t norm_of);
  /// [row][Hq][D] of the predicted or the running layer's own queries.
  const DeviceBuffer& values(const QueryRef& query) const {
    return query.predicted ? halves_[query.layer % 2] : forward_.q();
  }

 private:
  Forward& forward_;
  Device& device_;
  DeviceBuffer halves_[2];  // allocated when first used
};

}  // namespace tandem
