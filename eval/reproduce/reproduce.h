// Runs an experiment on the simulated device and holds its outcome against what is published.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "eval/predict/prediction.h"
#include "eval/report/statistics.h"
#include "eval/reproduce/experiment.h"

namespace tandem::eval {

struct ReproduceOptions {
  std::string figure;    // only its cells and orders, beside those that are fitted; empty: all
  unsigned threads = 0;  // runs at a time; 0: as many as this process may use
  std::function<bool()> interrupted;
  /// Runs, about; never two calls at a time, from any thread.
  std::function<void(std::uint64_t done, std::uint64_t total, const std::string& what)> progress;
};

struct FittedValue {
  std::string name;
  double value = 0;
  double reached = 0;  // the cell's value there
};

struct CalibratedValue {
  Calibration calibration;
  double value = 0;
  struct Trial {
    double share = 0, step_ms = 0;
  };
  std::vector<Trial> trials;  // by share
};

/// Times of Fluxion's parts of a step: its predictor, and the tasks that CPU and device share. Means over the steps
/// after the first, summed over layers. 0 where the method has no such parts.
struct TaskTimes {
  /// From the begin of a layer's estimate of the heads to the end of the choice of tasks, with whatever lies between:
  /// the way to the host, and the hand-off that ends the device's segment. The launch of the next one is not in it.
  double predict_ms = 0;
  double tasks_ms = 0;  // from a layer's first task to the end of its last
  /// The least of that: the linear program over both sides' times, where a task takes the time of its bytes at the
  /// CPU's rates or at the link's best one, or all bytes at the host memory's bandwidth, whichever is longer.
  double bound_ms = 0;
};

struct RunOutcome {
  std::string name, method;
  std::uint32_t batch = 0, layers = 0, steps = 0;
  PredictedRow row;             // refused: does not fit; of mixed lengths the means over the seeds
  std::vector<double> step_ms;  // by seed; of one length a single one
  TaskTimes tasks;
  SimCalls calls;  // of the first seed, for ranges
  double tokens_per_second() const { return 1e3 * batch / row.step_ms; }
};

struct CellOutcome {
  Cell cell;
  bool fitted = false, fits = false;  // fits: all of its runs do
  std::optional<double> ours;         // none where a run does not fit, or has no time that it is a share of
  /// Low and high of `ours` by the ranges of the machine's unfitted numbers; none for a fitted cell, or where times
  /// decide who computes what.
  std::optional<Interval> range;
  std::string widest;  // the number that moves it most; empty: none does
  double error_of(double value) const {
    return cell.by_difference() ? value - cell.published : value / cell.published - 1;
  }
  bool within_aim() const;
  bool in_range() const { return range && range->low <= cell.published && cell.published <= range->high; }
  bool below_most() const { return ours && *ours <= cell.at_most; }
};

struct OrderOutcome {
  Order order;
  /// By run: tokens/s, the speed-up over another run, or the idle share; none where it does not fit.
  std::vector<std::optional<double>> values;
  std::vector<std::optional<double>> idle_ms;  // by run, per layer; of orders by idle share
  /// In every pair of neighbours, and of mixed lengths only where no interval below reaches 1.
  bool holds = false;
  /// By run but the last, of mixed lengths: step time over that of the order's last run, the mean over the seeds, with
  /// its 95 % interval over pairs of the same seed.
  std::vector<Estimate> over_last;
};

struct Reproduction {
  Experiment experiment;
  std::string clock;
  std::vector<FittedValue> fitted;
  std::vector<CalibratedValue> calibrated;
  std::vector<RunOutcome> runs;
  std::vector<CellOutcome> cells;
  std::vector<OrderOutcome> orders;
};

using RunsByName = std::map<std::string, const RunOutcome*>;
/// `known`: the order's runs, except those that do not fit.
OrderOutcome judge(const Order& order, const RunsByName& known);

/// InputError where the experiment names hardware, a model or methods that are not there, or where no value of a free
/// parameter meets its cell; Interrupted.
Reproduction reproduce(const Experiment& experiment, const ReproduceOptions& options);

std::string reproduction_text(const Reproduction& result, bool markdown);
std::string reproduction_json(const Reproduction& result);

}  // namespace tandem::eval
