#include "eval/match_bytes/measure.h"

#include <algorithm>

#include "eval/run/decoded.h"
#include "methods/registry.h"

namespace tandem::eval {
namespace {

/// How many of the samples, from the first on.
std::size_t that_fit(std::span<const DatasetSample> samples, const EngineOptions& engine, const Model& model) {
  std::size_t bytes = 0, count = 0;
  for (const DatasetSample& sample : samples) {
    bytes += prompt_kv_bytes(engine, model, static_cast<std::uint32_t>(sample.prompt.size()));
    if (count > 0 && bytes > engine.kv.device_bytes / 2) break;
    ++count;
  }
  return count;
}

}  // namespace

BytesOfPrompts::BytesOfPrompts(std::span<const DatasetSample> samples, const DatasetRunOptions& options,
                               const Model& model, Device& device, ThreadPool& pool)
    : batch_(options.batch), engine_(model, device, pool, engine_options_of(options, model)) {
  const PrefixCache kept(options.prefix_files, engine_options_of(options, model));
  for (const DatasetSample& sample : samples.first(that_fit(samples, options.engine, model))) {
    prefixes_.push_back(kept.prefill(engine_, sample.prompt));
    requests_.push_back({prefixes_.back().get(), sample.max_new_tokens, sample.stop_tokens});
  }
}

BytesOfPrompts::~BytesOfPrompts() {
  for (const auto& prefix : prefixes_) engine_.release(*prefix);
}

double BytesOfPrompts::operator()(const std::string& spec, Measure measure) {
  const std::unique_ptr<Method> method = make_method(spec);
  double touched = 0, steps = 0, peak = 0;
  for (std::size_t first = 0; first < requests_.size(); first += batch_) {
    const std::span<const DecodeRequest> batch =
        std::span(requests_).subspan(first, std::min<std::size_t>(batch_, requests_.size() - first));
    const DecodeResult result = engine_.decode(*method, batch);
    for (std::size_t row = 0; row < batch.size(); ++row) {
      const SampleTiming timing = timing_of({}, result, row, 0, engine_.device().clock_name());
      touched += static_cast<double>(timing.bytes.touched);
      steps += timing.steps;
      peak = std::max(peak, static_cast<double>(timing.device_kv_bytes));
    }
  }
  return measure == Measure::touched ? touched / steps : peak;
}

}  // namespace tandem::eval
