#include "eval/reproduce/reproduce.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>
#include <mutex>
#include <set>

#include "engine/common/error.h"
#include "engine/common/paths.h"
#include "engine/kernels/thread_pool.h"
#include "engine/runtime/forward.h"

namespace tandem::eval {
namespace {

constexpr int kMostTrials = 12;          // per free parameter
constexpr double kCloseEnough = 0.0025;  // to a published idle ratio, which has two digits

Workload read_workload(const std::string& name) {
  const std::filesystem::path file = data_path("hardware/workloads") / (name + ".json");
  std::ifstream in(file, std::ios::binary);
  if (!in) throw_input_error("The workload '{}' cannot be read.", file.string());
  return parse_workload({std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()}, file.string());
}

double idle_ratio(const TargetRow& row) {
  return row.idle_ms / row.step_ms;
}

using Values = std::map<std::string, double>;  // of free parameters, by name

/// Simulates runs, any number at a time, each on one thread.
class Laboratory {
 public:
  Laboratory(const Experiment& experiment, const ReproduceOptions& options)
      : experiment_(experiment),
        options_(options),
        shape_(load_shape(experiment.model)),
        hardware_(load_profile(experiment.hardware)),
        workload_(read_workload(experiment.workload)) {
    // Longer contexts than the model's own positions take scaled ones (YaRN), which cost nothing.
    for (const ExperimentRun& run : experiment.runs)
      shape_.config.max_positions = std::max(shape_.config.max_positions, run.context + run.steps);
  }

  std::string clock() const { return "simulated for " + hardware_.title; }

  RunOutcome run(const ExperimentRun& run, const Values& values) {
    RunOutcome outcome{run.name, filled_in(run, values), run.batch, {}};
    if (run.as_many_as_fit) {
      const TargetRow one = simulate(outcome.method, run.context, 1, kStepsOfOne);
      outcome.row = one;
      if (!one.refused.empty()) return outcome;
      const double fit = device_kv_room(shape_, hardware_) / double(one.device_kv_bytes);
      outcome.batch = std::min(run.batch, static_cast<std::uint32_t>(fit));
    }
    outcome.row = simulate(outcome.method, run.context, outcome.batch, run.steps);
    const std::lock_guard lock(mutex_);
    ++done_;
    if (options_.progress) options_.progress(done_, std::max(total_, done_), run.name);
    return outcome;
  }

  void begin(std::uint64_t runs) { total_ = runs; }

 private:
  static constexpr double kPageOfTokens = 32;
  static constexpr std::uint32_t kStepsOfOne = 2;  // its memory is all that is asked for

  std::string filled_in(const ExperimentRun& run, const Values& values) {
    std::string method = run.method;
    for (const FreeParameter& p : experiment_.free) {
      const std::string place = '{' + p.name + '}';
      for (std::size_t at; (at = method.find(place)) != std::string::npos;) {
        double value = values.at(p.name);
        if (p.kind == FreeKind::salient) value = beta_for(value, run.context, p.window);
        if (p.kind == FreeKind::pages) value *= kPageOfTokens;
        method.replace(at, place.size(), fmt::format("{:.6g}", value));
      }
    }
    return method;
  }

  /// How far above the mean a weight must be for `tokens` tokens of a context to be salient, without its newest
  /// `window`; mean over layers and heads.
  double beta_for(double tokens, std::uint32_t context, std::uint32_t window) {
    constexpr std::uint32_t kLayers = 2, kSequences = 2;
    const ModelShape shape = shape_of(shape_.config);
    const ScoreProcess process(workload_, shape);
    const std::uint32_t old = context - std::min(window, context);
    const auto salient = [&](double beta) {
      double sum = 0;
      for (std::uint32_t layer = 0; layer < kLayers; ++layer) {
        for (std::uint32_t head = 0; head < shape.kv_heads; ++head) {
          for (std::uint32_t sequence = 0; sequence < kSequences; ++sequence)
            sum += process.salient_tokens({sequence, layer * shape.layers / kLayers, head, 0}, 0, old, beta);
        }
      }
      return sum / kLayers / kSequences / shape.kv_heads;
    };
    double low = 1e-3, high = 1e6;
    while (high / low > 1.001) {
      const double middle = std::sqrt(low * high);
      (salient(middle) > tokens ? low : high) = middle;
    }
    return std::sqrt(low * high);
  }

  TargetRow simulate(const std::string& method, std::uint32_t context, std::uint32_t batch, std::uint32_t steps) {
    TargetOptions target;
    target.methods = {method};
    target.batch = batch;
    target.context = context;
    target.steps = steps;
    target.threads = 1;
    target.interrupted = options_.interrupted;
    return simulate_target(shape_, hardware_, workload_, target).rows.at(0);
  }

  const Experiment& experiment_;
  const ReproduceOptions& options_;
  Model shape_;
  HardwareProfile hardware_;
  Workload workload_;
  std::mutex mutex_;  // of the progress
  std::uint64_t done_ = 0, total_ = 0;
};

/// False position (Illinois) on the parameter's logarithm; which way the cell goes is seen at the ends.
FittedValue fit(const Experiment& e, const FreeParameter& p, Laboratory& laboratory) {
  const Cell& cell = e.cell(p.cell);
  const ExperimentRun& run = e.run(cell.run);
  const bool whole = p.kind == FreeKind::whole || p.kind == FreeKind::pages;
  FittedValue best{p.name, 0, HUGE_VAL};
  const auto at = [&](double value) {  // how far above what is published
    const RunOutcome outcome = laboratory.run(run, {{p.name, value}});
    if (!outcome.row.refused.empty()) {
      throw_input_error("{}: at {} = {:.4g} the run '{}' is refused: {}.", e.name, p.name, value, run.name,
                        outcome.row.refused);
    }
    const double reached = idle_ratio(outcome.row);
    if (std::abs(reached - cell.published) < std::abs(best.reached - cell.published)) best = {p.name, value, reached};
    return reached - cell.published;
  };
  double low = p.low, high = p.high, below = at(low), above = at(high);
  if ((below < 0) == (above < 0)) {
    throw_input_error("{}: '{}' is published as {:.3g}, but goes from {:.3g} to {:.3g} for {} from {:.4g} to {:.4g}.",
                      e.name, cell.name, cell.published, cell.published + below, cell.published + above, p.name, p.low,
                      p.high);
  }
  for (int trial = 2; trial < kMostTrials && std::abs(best.reached - cell.published) > kCloseEnough; ++trial) {
    double middle = std::exp((std::log(low) * above - std::log(high) * below) / (above - below));
    if (whole) middle = std::round(middle);
    if (middle == low || middle == high) {  // rounded back to an end, or nothing between two whole numbers
      middle = whole ? std::round(std::sqrt(low * high)) : std::sqrt(low * high);
      if (middle == low || middle == high) break;
    }
    const double reached = at(middle);
    if ((reached < 0) == (below < 0)) {
      low = middle;
      below = reached;
      above /= 2;  // an end that stays counts less, or it would stay for good
    } else {
      high = middle;
      above = reached;
      below /= 2;
    }
  }
  return best;
}

}  // namespace

double CellOutcome::error() const {
  return cell.quantity == Quantity::idle_ratio ? ours - cell.published : ours / cell.published - 1;
}

bool CellOutcome::within_aim() const {
  if (!known || std::abs(error()) > cell.aim) return false;
  // A gain that came out as a loss is no good prediction, however near.
  return cell.quantity != Quantity::speed_up || (ours > 1) == (cell.published > 1);
}

Reproduction reproduce(const Experiment& experiment, const ReproduceOptions& options) {
  const auto figures = experiment.figures();
  if (!options.figure.empty() && std::find(figures.begin(), figures.end(), options.figure) == figures.end())
    throw_input_error("The experiment '{}' has no figure '{}'.", experiment.name, options.figure);
  const auto wanted = [&](const std::string& figure) { return options.figure.empty() || figure == options.figure; };
  std::set<std::string> needed;
  for (const Cell& cell : experiment.cells) {
    if (!wanted(cell.figure) && !experiment.fitted(cell)) continue;
    needed.insert(cell.run);
    if (cell.quantity == Quantity::speed_up) needed.insert(cell.over);
  }
  for (const Order& order : experiment.orders)
    if (wanted(order.figure)) needed.insert(order.runs.begin(), order.runs.end());

  Laboratory laboratory(experiment, options);
  constexpr int kUsualTrials = 6;
  laboratory.begin(experiment.free.size() * kUsualTrials + needed.size());
  Reproduction result;
  result.experiment = experiment;
  result.clock = laboratory.clock();
  ThreadPool pool(options.threads);
  result.fitted.resize(experiment.free.size());
  pool.parallel_for(experiment.free.size(),
                    [&](std::size_t i) { result.fitted[i] = fit(experiment, experiment.free[i], laboratory); });
  Values values;
  for (const FittedValue& fitted : result.fitted) values[fitted.name] = fitted.value;

  std::vector<const ExperimentRun*> runs;
  for (const ExperimentRun& run : experiment.runs)
    if (needed.contains(run.name)) runs.push_back(&run);
  result.runs.resize(runs.size());
  pool.parallel_for(runs.size(), [&](std::size_t i) { result.runs[i] = laboratory.run(*runs[i], values); });
  std::map<std::string, const TargetRow*> rows;
  std::map<std::string, double> tokens_per_second;
  for (const RunOutcome& outcome : result.runs) {
    if (!outcome.row.refused.empty()) continue;
    rows[outcome.name] = &outcome.row;
    tokens_per_second[outcome.name] = 1e3 * outcome.batch / outcome.row.step_ms;
  }
  for (const Cell& cell : experiment.cells) {
    if (!wanted(cell.figure) && !experiment.fitted(cell)) continue;
    CellOutcome outcome{cell, experiment.fitted(cell), false, 0};
    if (cell.quantity == Quantity::idle_ratio) {
      outcome.known = rows.contains(cell.run);
      if (outcome.known) outcome.ours = idle_ratio(*rows.at(cell.run));
    } else {
      outcome.known = rows.contains(cell.run) && rows.contains(cell.over);
      if (outcome.known) outcome.ours = tokens_per_second.at(cell.run) / tokens_per_second.at(cell.over);
    }
    result.cells.push_back(std::move(outcome));
  }
  for (const Order& order : experiment.orders) {
    if (!wanted(order.figure)) continue;
    OrderOutcome outcome{order, {}, true};
    for (const std::string& run : order.runs) {
      const double rate = rows.contains(run) ? tokens_per_second.at(run) : 0;  // what does not fit is slower than all
      if (!outcome.tokens_per_second.empty() && rate <= outcome.tokens_per_second.back()) outcome.holds = false;
      outcome.tokens_per_second.push_back(rate);
    }
    result.orders.push_back(std::move(outcome));
  }
  return result;
}

}  // namespace tandem::eval
