#include "eval/predict/schedule_check.h"

#include <algorithm>

namespace tandem::eval {
namespace {

// Blocks of every size that methods offer fill up within these steps.
constexpr std::uint32_t kSteps = 20, kLongestBlock = 128, kBeforeItFills = 3;
constexpr std::uint32_t kKvHeads = 2;

/// All layers, which options count; few heads, which they do not.
Model with_few_heads(const Model& shape) {
  Model small;
  small.config = shape.config;
  const std::uint32_t group = shape.config.q_heads / shape.config.kv_heads;
  small.config.kv_heads = std::min(small.config.kv_heads, kKvHeads);
  small.config.q_heads = group * small.config.kv_heads;
  small.weights = shape_weights(small.config, DType::bf16);
  small.name = shape.name;
  return small;
}

}  // namespace

void check_schedule(const Model& shape, const HardwareProfile& hardware, const Workload& workload,
                    const PredictionOptions& options, const std::string& method) {
  PredictionOptions small;
  small.methods = {method};
  small.context = options.context;
  small.batch = std::min(options.batch, 2u);
  const std::uint32_t whole = options.context / kLongestBlock * kLongestBlock;
  small.contexts = {options.context};
  if (small.batch == 2) small.contexts.push_back(whole > 0 ? whole - kBeforeItFills : options.context - 1);
  small.steps = std::min(options.steps, kSteps);
  small.prefill_chunk = options.prefill_chunk;
  small.threads = 1;
  small.interrupted = options.interrupted;
  const Prediction few = predict_checked(with_few_heads(shape), hardware, workload, small);
  // A predictor's file is of a model with all heads.
  if (!few.rows.at(0).refused.empty()) predict_checked(shape, hardware, workload, small);
}

}  // namespace tandem::eval
