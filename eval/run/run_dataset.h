// Runs methods on a dataset: each prompt is prefilled once and decoded with every method.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/device/device.h"
#include "engine/model/model.h"
#include "engine/runtime/engine.h"
#include "eval/run/dataset.h"

namespace tandem::eval {

inline constexpr std::uint32_t kPositionStretches = 8;  // of a window's scored tokens; fewer where fewer are scored

/// A part of a run, so that several processes or machines share one: each fills a folder of its own with some batches
/// of the same run, and merge_runs() (eval/report/run_folder.h) puts them together.
struct Shard {
  std::uint32_t number = 1, of = 1;  // 1 .. of
  /// Batches in the run's order, from 0, dealt out in turn: as many to each as can be.
  bool has(std::uint64_t batch) const { return batch % of == number - 1; }
};

struct DatasetRunOptions {
  std::vector<std::string> methods;  // specs; the first is the baseline
  std::uint32_t batch = 1;           // sequences decoded together
  Shard shard = {};                  // of the run's batches, those that are decoded here
  EngineOptions engine;
  std::function<std::unique_ptr<Method>(const std::string& spec)> make;  // empty: make_method
  /// A method has decoded a batch, whose results are kept; the key of the batch's first sample.
  std::function<void(const SampleKey& first)> decoded;
  /// Whether what `decoded` keeps about such a batch is missing, though its results are there: it is decoded again.
  std::function<bool(const SampleKey& first)> lacks;
  /// Called once per method (by index) with the trace of its first decode in this process; `resumed`: samples of it had
  /// been finished before.
  std::function<void(std::size_t method, bool resumed, const Trace&)> trace_of_first;
  /// In decoded samples, all methods: called first with what the folder had, then after each method's batch.
  std::function<void(std::uint64_t done, std::uint64_t total)> progress;
};

/// The engine that decodes these batches with these methods.
EngineOptions engine_options_of(const DatasetRunOptions& options, const Model& model);

/// Runs what the folder does not hold yet of its manifest's tasks, lengths and samples, and puts its lines in order:
/// each prompt is prefilled once and decoded with every method. Throws Interrupted between batches when
/// options.engine.interrupted says so; finished samples are in the folder then.
void run_dataset(const Dataset& dataset, const DatasetRunOptions& options, const Model& model, Device& device,
                 ThreadPool& pool, RunFolder& folder);

}  // namespace tandem::eval
