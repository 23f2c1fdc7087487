#include "eval/reproduce/reproduce.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "engine/common/error.h"
#include "engine/kernels/thread_pool.h"
#include "eval/predict/ranges.h"
#include "eval/reproduce/experiment_runner.h"

namespace tandem::eval {
namespace {

constexpr int kMostTrials = 12;          // per free parameter
constexpr double kCloseEnough = 0.0025;  // to a published share, which has two digits
constexpr double kRatherClose = 0.005;   // to another published value, relative
constexpr std::uint32_t kParts = 8;      // of a calibration's range, then as many of the two parts at the best point

double idle_ratio(const PredictedRow& row) {
  return row.idle_ms / row.step_ms;
}

/// Of a run alone; nothing where it is a share of no time.
std::optional<double> measure(Quantity quantity, const RunOutcome& run) {
  const auto cause = [&](Cause c) { return run.row.idle_ms_by_cause[static_cast<std::size_t>(c)]; };
  switch (quantity) {
    case Quantity::idle_ratio:
      return idle_ratio(run.row);
    case Quantity::speed_up:
      break;
    case Quantity::idle_ms:
      return run.row.idle_ms / run.layers;
    case Quantity::tpot_ms:
      return run.row.step_ms / run.batch;
    case Quantity::selection_share:
      return ratio(cause(Cause::selection), cause(Cause::selection) + cause(Cause::host_attention));
    case Quantity::predictor_share:
      return run.tasks.predict_ms / run.row.step_ms;
  }
  TANDEM_CHECK(false, "a quantity of two runs");
}

/// False position (Illinois) on the parameter's logarithm; which way the cell goes is seen at the ends.
FittedValue fit(const Experiment& e, const FreeParameter& p, const Values& known, ExperimentRunner& runner) {
  const Cell& cell = e.cell(p.cell);
  const ExperimentRun& run = e.run(cell.run);
  const bool whole = p.kind == FreeKind::whole || p.kind == FreeKind::pages;
  FittedValue best{p.name, 0, HUGE_VAL};
  const auto at = [&](double value) {  // how far above what is published
    Values values = known;
    values[p.name] = value;
    const RunOutcome outcome = runner.run(run, values);
    if (!outcome.row.refused.empty()) {
      throw_input_error("{}: at {} = {:.4g} the run '{}' is refused: {}.", e.name, p.name, value, run.name,
                        outcome.row.refused);
    }
    const std::optional<double> reached = measure(cell.quantity, outcome);
    if (!reached)
      throw_input_error(
          "{}: at {} = {:.4g} the run '{}' waits for neither selection nor attention on the host: '{}' is a "
          "share of that and cannot be fitted.",
          e.name, p.name, value, run.name, cell.name);
    if (std::abs(*reached - cell.published) < std::abs(best.reached - cell.published)) best = {p.name, value, *reached};
    return *reached - cell.published;
  };
  const double close = cell.by_difference() ? kCloseEnough : kRatherClose * cell.published;
  double low = p.low, high = p.high, below = at(low), above = at(high);
  if ((below < 0) == (above < 0)) {
    throw_input_error("{}: '{}' is published as {:.3g}, but goes from {:.3g} to {:.3g} for {} from {:.4g} to {:.4g}.",
                      e.name, cell.name, cell.published, cell.published + below, cell.published + above, p.name, p.low,
                      p.high);
  }
  for (int trial = 2; trial < kMostTrials && std::abs(best.reached - cell.published) > close; ++trial) {
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

/// Shares on a grid, then on a finer one around the best: a step's time rises and falls a little with how tasks happen
/// to be dealt, so that no search by slopes would do. Only of what `needed` runs name.
std::vector<CalibratedValue> calibrate(const Experiment& e, const std::set<std::string>& needed, const Values& known,
                                       ExperimentRunner& runner, ThreadPool& pool) {
  std::vector<CalibratedValue> found;
  for (const Calibration& c : e.calibrations) {
    if (std::ranges::any_of(needed, [&](const std::string& name) {
          return e.run(name).method.find('{' + c.name + '}') != std::string::npos;
        }))
      found.push_back({c, 0, {}});
  }
  for (const double part : {1.0, 0.25}) {
    struct Task {
      CalibratedValue* of = nullptr;
      double share = 0, step_ms = 0;
    };
    std::vector<Task> tasks;
    for (CalibratedValue& c : found) {
      const double step = part * (c.calibration.high - c.calibration.low) / kParts;
      const double middle = c.trials.empty() ? (c.calibration.low + c.calibration.high) / 2 : c.value;
      for (int i = -static_cast<int>(kParts / 2); i <= static_cast<int>(kParts / 2); ++i) {
        const double share = middle + i * step;
        const bool tried = std::ranges::any_of(
            c.trials, [&](const CalibratedValue::Trial& t) { return std::abs(t.share - share) < step / 2; });
        if (!tried && share > 0 && share < 1) tasks.push_back({&c, share, 0});
      }
    }
    pool.parallel_for(tasks.size(), [&](std::size_t i) {
      const Calibration& c = tasks[i].of->calibration;
      Values values = known;
      values[c.name] = tasks[i].share;
      tasks[i].step_ms = runner.step_of(e.run(c.run), values, c.seed);
    });
    for (const Task& task : tasks) task.of->trials.push_back({task.share, task.step_ms});
    for (CalibratedValue& c : found) {
      std::ranges::sort(c.trials, {}, &CalibratedValue::Trial::share);
      c.value =
          std::ranges::min_element(c.trials, [](const auto& a, const auto& b) { return a.step_ms < b.step_ms; })->share;
    }
  }
  return found;
}

/// Tokens/s of a run over those of another: the median over the seeds.
double speed_up(const RunOutcome& run, const RunOutcome& over) {
  std::vector<double> ratios;
  ratios.reserve(run.step_ms.size());
  for (std::size_t i = 0; i < run.step_ms.size(); ++i)
    ratios.push_back(run.batch / run.step_ms[i] / (over.batch / over.step_ms.at(i)));
  return percentile(ratios, 0.5);
}

/// The runs that a cell is of, and its value.
struct CellRuns {
  const RunOutcome* run;
  const RunOutcome* over;  // of a speed-up; else nullptr
};

std::optional<double> value_of(const Cell& cell, const RunOutcome& run, const RunOutcome* over) {
  return over != nullptr ? speed_up(run, *over) : measure(cell.quantity, run);
}

bool is_share(Quantity quantity) {
  return quantity == Quantity::idle_ratio || quantity == Quantity::selection_share ||
         quantity == Quantity::predictor_share;
}

void add_range(CellOutcome& c, const CellRuns& runs, const ExperimentRunner& runner, const HardwareProfile& machine) {
  if (c.fitted || !c.ours || *c.ours <= 0 || machine.ranges.empty()) return;
  if (runs.run->calls.times_decide || (runs.over != nullptr && runs.over->calls.times_decide)) return;
  constexpr double kLeast = 1e-9;  // a share that has become nothing
  const TimeRange range = range_of(machine, [&](const HardwareProfile& hardware) {
    const RunOutcome run = runner.replayed(*runs.run, hardware);
    std::optional<RunOutcome> over;
    if (runs.over != nullptr) over = runner.replayed(*runs.over, hardware);
    return std::max(value_of(c.cell, run, over ? &*over : nullptr).value_or(0), kLeast);
  });
  const double most = is_share(c.cell.quantity) ? 1 : HUGE_VAL;
  c.range = Interval{*c.ours * range.low, std::min(*c.ours * range.high, most)};
  c.widest = range.widest;
}

}  // namespace

OrderOutcome judge(const Order& order, const std::map<std::string, const RunOutcome*>& known) {
  OrderOutcome outcome{order, {}, {}, true, {}};
  for (const std::string& name : order.runs) {
    const auto found = known.find(name);
    const RunOutcome* run = found == known.end() ? nullptr : found->second;
    std::optional<double> value;
    if (run != nullptr) value = order.by_idle ? idle_ratio(run->row) : run->tokens_per_second();
    if (!outcome.values.empty()) {
      const std::optional<double> before = outcome.values.back();  // what does not fit is slower than all
      if (order.by_idle ? !value || value >= before : value <= before) outcome.holds = false;
    }
    outcome.values.push_back(value);
    if (order.by_idle)
      outcome.idle_ms.push_back(run == nullptr ? std::nullopt : std::optional(run->row.idle_ms / run->layers));
  }
  const auto last = known.find(order.runs.back());
  if (last == known.end() || last->second->step_ms.size() < 2) return outcome;
  for (std::size_t i = 0; i + 1 < order.runs.size(); ++i) {
    const auto run = known.find(order.runs[i]);
    if (run == known.end() || run->second->step_ms.size() != last->second->step_ms.size()) return outcome;
    std::vector<double> ratios;
    ratios.reserve(last->second->step_ms.size());
    for (std::size_t seed = 0; seed < last->second->step_ms.size(); ++seed)
      ratios.push_back(run->second->step_ms[seed] / last->second->step_ms[seed]);
    outcome.over_last.push_back({mean(ratios), bootstrap_mean_interval(ratios)});
    if (outcome.over_last.back().interval.low <= 1) outcome.holds = false;
  }
  return outcome;
}

double CellOutcome::error_of(double value) const {
  return cell.by_difference() ? value - cell.published : value / cell.published - 1;
}

bool CellOutcome::within_aim() const {
  if (!ours || std::abs(error_of(*ours)) > cell.aim) return false;
  // A gain that came out as a loss is no good prediction, however near.
  return cell.quantity != Quantity::speed_up || (*ours > 1) == (cell.published > 1);
}

Reproduction reproduce(const Experiment& experiment, const ReproduceOptions& options) {
  const auto figures = experiment.figures();
  if (!options.figure.empty() && std::ranges::find(figures, options.figure) == figures.end())
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

  ExperimentRunner runner(experiment, options);
  constexpr int kUsualTrials = 6;
  runner.begin(experiment.free.size() * kUsualTrials + experiment.calibrations.size() * 2 * kParts + needed.size());
  Reproduction result;
  result.experiment = experiment;
  result.clock = runner.clock();
  const std::vector<FreeParameter>& free = experiment.free;
  if (std::ranges::any_of(free, [](const FreeParameter& p) { return p.of_machine(); }))
    result.clock += ", with what was fitted of it";  // not the machine that other commands simulate by this name
  ThreadPool pool(options.threads);
  result.fitted.resize(experiment.free.size());
  Values values;
  const auto fit_one = [&](std::size_t i) { result.fitted[i] = fit(experiment, experiment.free[i], values, runner); };
  for (std::size_t i = 0; i < experiment.free.size(); ++i) {  // every run is on the machine
    if (!experiment.free[i].of_machine()) continue;
    fit_one(i);
    values[experiment.free[i].name] = result.fitted[i].value;
  }
  pool.parallel_for(experiment.free.size(), [&](std::size_t i) {
    if (!experiment.free[i].of_machine()) fit_one(i);
  });
  for (const FittedValue& fitted : result.fitted) values[fitted.name] = fitted.value;
  result.calibrated = calibrate(experiment, needed, values, runner, pool);
  for (const CalibratedValue& c : result.calibrated) values[c.calibration.name] = c.value;

  std::vector<const ExperimentRun*> runs;
  for (const ExperimentRun& run : experiment.runs)
    if (needed.contains(run.name)) runs.push_back(&run);
  result.runs.resize(runs.size());
  std::set<std::string> predicted;  // runs of cells that get a range
  for (const Cell& cell : experiment.cells)
    if (wanted(cell.figure) && !experiment.fitted(cell)) predicted.insert({cell.run, cell.over});
  pool.parallel_for(runs.size(), [&](std::size_t i) {
    result.runs[i] = runner.run(*runs[i], values, predicted.contains(runs[i]->name));
  });
  std::map<std::string, const RunOutcome*> known;
  for (const RunOutcome& outcome : result.runs)
    if (outcome.row.refused.empty()) known[outcome.name] = &outcome;
  std::vector<CellRuns> cell_runs;  // by cell of the result
  for (const Cell& cell : experiment.cells) {
    if (!wanted(cell.figure) && !experiment.fitted(cell)) continue;
    CellOutcome outcome{cell, experiment.fitted(cell), known.contains(cell.run), {}, {}, {}};
    const bool compares = cell.quantity == Quantity::speed_up;
    outcome.fits = outcome.fits && (!compares || known.contains(cell.over));
    CellRuns of{nullptr, nullptr};
    if (outcome.fits) {
      of = {known.at(cell.run), compares ? known.at(cell.over) : nullptr};
      outcome.ours = value_of(cell, *of.run, of.over);
    }
    result.cells.push_back(std::move(outcome));
    cell_runs.push_back(of);
  }
  const HardwareProfile machine = runner.machine(values);
  pool.parallel_for(cell_runs.size(), [&](std::size_t i) {
    if (options.interrupted && options.interrupted()) throw Interrupted();
    if (cell_runs[i].run != nullptr) add_range(result.cells[i], cell_runs[i], runner, machine);
  });
  for (RunOutcome& run : result.runs) run.calls = {};
  for (const Order& order : experiment.orders)
    if (wanted(order.figure)) result.orders.push_back(judge(order, known));
  return result;
}

}  // namespace tandem::eval
