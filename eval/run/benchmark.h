// What can be asked of a model: prompts with their answers, and how predictions are scored. Which tasks, lengths and
// how many samples are run is in a run's manifest; run_benchmark() runs methods on them.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/device/device.h"
#include "engine/kernels/sampling.h"
#include "engine/model/model.h"
#include "engine/runtime/engine.h"
#include "eval/report/run_folder.h"
#include "eval/run/prefix_cache.h"
#include "eval/run/shard.h"

namespace tandem::eval {

struct BenchmarkSample {
  std::string task;
  std::uint32_t length = 0, index = 0;  // as in SampleKey
  std::vector<std::int32_t> prompt;     // tokens as the model is given them, its begin token included
  std::vector<std::string> answers;
  std::uint32_t max_new_tokens = 0;
  std::vector<std::int32_t> stop_tokens = {};  // beside the model's (DecodeRequest)
  std::optional<double> depth = {};            // of what is asked for, 0 first, 1 last; nothing where it is not known
  std::optional<std::uint32_t> document = {};  // as in SampleResult
  Sampling sampling = {};                      // how its tokens are chosen, the same with every method
  bool cut_is_wrong = false;                   // an answer that max_new_tokens cut off scores 0, whatever it says
};

struct Score {
  double value = 0;                                          // in [0, 1]
  std::optional<std::string> rule = {};                      // as in SampleResult
  std::vector<std::pair<std::string, double>> by_rule = {};  // as in SampleResult
};

class Benchmark {
 public:
  virtual ~Benchmark() = default;
  virtual std::string name() const = 0;  // SampleKey::benchmark
  virtual BenchmarkSample sample(const std::string& task, std::uint32_t length, std::uint32_t index) const = 0;
  /// The text of generated tokens that is kept and scored.
  virtual std::string prediction(std::span<const std::int32_t> tokens) const = 0;
  /// Of each sample of one task.
  virtual std::vector<Score> scores(std::span<const BenchmarkSample> samples,
                                    std::span<const std::string> predictions) const = 0;
};

struct BenchmarkOptions {
  std::vector<std::string> methods;  // specs; the first is the baseline
  std::uint32_t batch = 1;           // sequences decoded together
  Shard shard = {};                  // of the run's batches, those that are decoded here
  EngineOptions engine;
  PrefixFiles prefix_files;                                              // where prefilled prompts are kept
  std::function<std::unique_ptr<Method>(const std::string& spec)> make;  // empty: make_method
  /// A method has decoded a batch, whose results are kept; the key of the batch's first sample.
  std::function<void(const SampleKey& first)> decoded;
  /// Whether what `decoded` keeps about such a batch is missing, though its results are there: it is decoded again.
  std::function<bool(const SampleKey& first)> lacks;
  /// In decoded samples, all methods: called first with what the folder had, then after each method's batch.
  std::function<void(std::uint64_t done, std::uint64_t total)> progress;
};

/// The engine that decodes these batches with these methods.
EngineOptions engine_options_of(const BenchmarkOptions& options, const Model& model);

/// Called once per method (by index) with the trace of its first decode in this process; `resumed`: samples of it had
/// been finished before.
using TraceOfFirst = std::function<void(std::size_t method, bool resumed, const Trace&)>;

/// Runs what the folder does not hold yet of its manifest's tasks, lengths and samples, and puts its lines in order:
/// each prompt is prefilled once and decoded with every method. Throws Interrupted between batches when
/// options.engine.interrupted says so; finished samples are in the folder then.
void run_benchmark(const Benchmark& benchmark, const BenchmarkOptions& options, const Model& model, Device& device,
                   ThreadPool& pool, RunFolder& folder, const TraceOfFirst& trace_of_first = {});

}  // namespace tandem::eval
