// The runs of an experiment on its simulated machine, with values for what the source leaves free.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>

#include "eval/reproduce/reproduce.h"

namespace tandem::eval {

using Values = std::map<std::string, double>;  // of free parameters, by name

/// Simulates runs, any number at a time, each on one thread.
class ExperimentRunner {
 public:
  /// InputError where the experiment's profile, workload or a shape cannot be read.
  ExperimentRunner(const Experiment& experiment, const ReproduceOptions& options);

  std::string clock() const { return "simulated for " + hardware_.title; }
  void begin(std::uint64_t runs) { total_ = runs; }

  /// All seeds of a run; where one is refused, so is the outcome. `for_ranges`: keeps the calls of the first seed.
  RunOutcome run(const ExperimentRun& run, const Values& values, bool for_ranges = false);
  /// Replays an outcome's first seed on another profile, with the same decisions.
  RunOutcome replayed(const RunOutcome& outcome, const HardwareProfile& hardware) const;
  /// The profile with its fitted numbers, which then have no range.
  HardwareProfile machine(const Values& values) const;
  /// Step time of `run` on the batch of a seed that it does not have itself. InputError where it is refused.
  double step_of(const ExperimentRun& run, const Values& values, std::uint32_t seed);

 private:
  void one_more(const std::string& name);
  const std::string& model_of(const ExperimentRun& run) const;
  HardwareProfile machine_of(const ExperimentRun& run, const Values& values) const;  // with the memory of its devices
  std::string filled_in(const ExperimentRun& run, const Values& values);
  double beta_for(double tokens, const ExperimentRun& run, std::uint32_t window);
  /// Options of a run's simulation, for lengths that are not mixed.
  PredictionOptions target_of(const ExperimentRun& run, const Values& values);
  RunOutcome simulate(const ExperimentRun& run, const HardwareProfile& hardware, PredictionOptions target,
                      bool recorded = false);

  const Experiment& experiment_;
  const ReproduceOptions& options_;
  std::map<std::string, Model> shapes_;
  HardwareProfile hardware_;
  Workload workload_;
  std::mutex mutex_;  // of the progress
  std::uint64_t done_ = 0, total_ = 0;
};

}  // namespace tandem::eval
