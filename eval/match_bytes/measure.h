// What methods come to in bytes on a run's own prompts: an engine that decodes them as the run will.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "eval/match_bytes/match_bytes.h"
#include "eval/run/run_dataset.h"

namespace tandem::eval {

class BytesOfPrompts {
 public:
  /// Prefills the samples' prompts: as many as take half of the device's KV budget, at least one; `options` as the run
  /// has them. Model, device and pool must outlive this. Throws what prefilling does.
  BytesOfPrompts(std::span<const DatasetSample> samples, const DatasetRunOptions& options, const Model& model,
                 Device& device, ThreadPool& pool);
  ~BytesOfPrompts();

  std::size_t prompts() const { return requests_.size(); }
  /// Decodes all prompts with the method, in batches as the run does.
  double operator()(const std::string& spec, Measure measure);

 private:
  const std::uint32_t batch_;
  Engine engine_;
  std::vector<std::unique_ptr<Prefix>> prefixes_;
  std::vector<DecodeRequest> requests_;
};

}  // namespace tandem::eval
