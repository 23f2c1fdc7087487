// The predictor on a GPU: its network and what is known of each prompt stay in device memory from their first use on.
#pragma once

#include <cstdint>
#include <mutex>
#include <span>
#include <vector>

#include "engine/device/launch_context.h"
#include "engine/mechanisms/work_queue/work_queue.h"
#include "methods/fluxion/features.h"
#include "methods/fluxion/predictor.h"

namespace tandem {

/// What is known of a sequence since its prefill, in all layers. Of one stream.
class KnownOnGpu {
 public:
  /// The prefill's part of StepFeatures for one layer, in device memory. `layers`: by layer, the same in every call.
  StepFeatures layer(LaunchContext& ctx, std::span<const PrefillStatistics> layers, std::uint32_t layer);

 private:
  CudaMemory memory_;  // by layer: known, anchor, mean_key
};

/// A row of a batch: its step, in device memory, and what is known of it.
struct PredictedRow {
  HeadView view;
  std::uint32_t host_tokens = 0;
  StepFeatures known;
};

class PredictorOnGpu {
 public:
  explicit PredictorOnGpu(const Predictor& predictor) : predictor_(predictor) {}
  /// HeadSource::launch() of these rows, in ascending order.
  void predict(LaunchContext& ctx, const ModelShape& shape, std::span<const PredictedRow> rows, float* out);

 private:
  void load(LaunchContext& ctx);

  const Predictor& predictor_;
  std::once_flag loaded_;
  CudaMemory numbers_, layers_;
  HeadNetwork network_;  // in these
};

}  // namespace tandem
