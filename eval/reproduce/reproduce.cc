#include "eval/reproduce/reproduce.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>
#include <set>

#include "engine/common/error.h"
#include "engine/common/paths.h"

namespace tandem::eval {
namespace {

constexpr int kMostTrials = 12;          // per free parameter: a range of 1 : 4096 to one part in a thousand
constexpr double kCloseEnough = 0.0025;  // to a published idle ratio, which has two digits

std::string filled_in(std::string method, const std::map<std::string, double>& values) {
  for (const auto& [name, value] : values) {
    const std::string place = '{' + name + '}';
    for (std::size_t at; (at = method.find(place)) != std::string::npos;)
      method.replace(at, place.size(), fmt::format("{:.6g}", value));
  }
  return method;
}

Workload read_workload(const std::string& name) {
  const std::filesystem::path file = data_path("hardware/workloads") / (name + ".json");
  std::ifstream in(file, std::ios::binary);
  if (!in) throw_input_error("The workload '{}' cannot be read.", file.string());
  return parse_workload({std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()}, file.string());
}

double idle_ratio(const TargetRow& row) {
  return row.idle_ms / row.step_ms;
}

/// Simulates runs once each, at the values found so far.
class Laboratory {
 public:
  Laboratory(const Experiment& experiment, const ReproduceOptions& options)
      : experiment_(experiment),
        options_(options),
        shape_(load_shape(experiment.model)),
        hardware_(load_profile(experiment.hardware)),
        workload_(read_workload(experiment.workload)) {}

  std::string clock() const { return "simulated for " + hardware_.title; }

  RunOutcome run(const ExperimentRun& run, const std::map<std::string, double>& values) {
    RunOutcome outcome{run.name, filled_in(run.method, values), run.batch, {}};
    if (run.as_many_as_fit) {
      const TargetRow one = simulate(outcome.method, run.context, 1);
      outcome.row = one;
      if (!one.refused.empty()) return outcome;
      const double fit = device_kv_room(shape_, hardware_) / double(one.device_kv_bytes);
      outcome.batch = std::min(run.batch, static_cast<std::uint32_t>(fit));
      if (outcome.batch == 1) return outcome;
    }
    outcome.row = simulate(outcome.method, run.context, outcome.batch);
    return outcome;
  }

  void begin(std::uint64_t runs) { total_ = runs; }

 private:
  TargetRow simulate(const std::string& method, std::uint32_t context, std::uint32_t batch) {
    if (options_.progress) options_.progress(done_, std::max(total_, done_ + 1), method);
    TargetOptions target;
    target.methods = {method};
    target.batch = batch;
    target.context = context;
    target.steps = experiment_.steps;
    target.threads = options_.threads;
    target.interrupted = options_.interrupted;
    TargetRow row = simulate_target(shape_, hardware_, workload_, target).rows.at(0);
    ++done_;
    return row;
  }

  const Experiment& experiment_;
  const ReproduceOptions& options_;
  Model shape_;
  HardwareProfile hardware_;
  Workload workload_;
  std::uint64_t done_ = 0, total_ = 0;
};

/// Bisection of the parameter's logarithm; which way the cell goes is seen at the ends.
FittedValue fit(const Experiment& e, const FreeParameter& p, Laboratory& laboratory,
                std::map<std::string, double>& values) {
  const Cell& cell = e.cell(p.cell);
  const ExperimentRun& run = e.run(cell.run);
  const auto at = [&](double value) {
    values[p.name] = value;
    const RunOutcome outcome = laboratory.run(run, values);
    if (!outcome.row.refused.empty()) {
      throw_input_error("{}: at {} = {:.4g} the run '{}' is refused: {}.", e.name, p.name, value, run.name,
                        outcome.row.refused);
    }
    return idle_ratio(outcome.row);
  };
  const auto rounded = [&](double value) { return p.whole ? std::round(value) : value; };
  double low = p.low, high = p.high, below = at(low), above = at(high);
  const bool rising = above > below;
  FittedValue best{p.name, low, below};
  const auto consider = [&](double value, double reached) {
    if (std::abs(reached - cell.published) < std::abs(best.reached - cell.published)) best = {p.name, value, reached};
  };
  consider(high, above);
  if (cell.published < std::min(below, above) || cell.published > std::max(below, above)) {
    throw_input_error("{}: '{}' is published as {:.3g}, but goes from {:.3g} to {:.3g} for {} from {:.4g} to {:.4g}.",
                      e.name, cell.name, cell.published, below, above, p.name, p.low, p.high);
  }
  for (int trial = 2; trial < kMostTrials && std::abs(best.reached - cell.published) > kCloseEnough; ++trial) {
    const double middle = rounded(std::sqrt(low * high));
    if (middle == low || middle == high) break;
    const double reached = at(middle);
    consider(middle, reached);
    ((reached < cell.published) == rising ? low : high) = middle;
  }
  values[p.name] = best.value;
  return best;
}

}  // namespace

double CellOutcome::error() const {
  return cell.quantity == Quantity::idle_ratio ? ours - cell.published : ours / cell.published - 1;
}

bool CellOutcome::within_aim() const {
  return known && std::abs(error()) <= cell.aim;
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
  laboratory.begin(experiment.free.size() * kMostTrials / 2 + needed.size());
  Reproduction result;
  result.experiment = experiment;
  result.clock = laboratory.clock();
  std::map<std::string, double> values;
  for (const FreeParameter& p : experiment.free) values[p.name] = p.low;
  for (const FreeParameter& p : experiment.free) result.fitted.push_back(fit(experiment, p, laboratory, values));

  std::map<std::string, const TargetRow*> rows;
  std::map<std::string, double> tokens_per_second;
  result.runs.reserve(needed.size());
  for (const ExperimentRun& run : experiment.runs) {
    if (!needed.contains(run.name)) continue;
    result.runs.push_back(laboratory.run(run, values));
    const RunOutcome& outcome = result.runs.back();
    if (!outcome.row.refused.empty()) continue;
    rows[run.name] = &outcome.row;
    tokens_per_second[run.name] = 1e3 * outcome.batch / outcome.row.step_ms;
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
