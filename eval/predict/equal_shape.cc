#include "eval/predict/equal_shape.h"

#include <algorithm>

#include "eval/predict/prediction.h"

namespace tandem::eval {

Equal equal_at_shape(Model shape, const HardwareProfile& hardware, const Workload& workload,
                     const EqualShapeOptions& options) {
  HardwareProfile roomy = hardware;
  roomy.device.memory_gb = 1e6;  // more than any sequence takes
  roomy.host.memory_gb = 0;      // no limit
  shape.config.max_positions = std::max(shape.config.max_positions, options.context + options.steps);
  PredictionOptions target;
  target.context = options.context;
  target.steps = options.steps;
  target.prefill_chunk = options.prefill_chunk;
  target.threads = options.threads;
  target.interrupted = options.interrupted;
  target.checked = false;  // the points that are simulated afterwards are
  const std::uint32_t most_tokens = options.context + options.steps;
  const std::uint64_t most = most_questions(options.asked, options.methods, most_tokens);
  std::uint64_t done = 0;
  return find_equal(options.asked, options.methods, most_tokens, [&](const std::string& spec) {
    if (options.progress) options.progress(done++, most, spec);
    target.methods = {spec};
    const PredictedRow row = predict(shape, roomy, workload, target).rows.at(0);
    const bool touched = options.asked.measure == Measure::touched;
    return Bytes{touched ? row.touched_bytes : static_cast<double>(row.device_kv_bytes), row.refused};
  });
}

}  // namespace tandem::eval
