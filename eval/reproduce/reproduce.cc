#include "eval/reproduce/reproduce.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "engine/common/error.h"
#include "engine/kernels/thread_pool.h"
#include "eval/reproduce/experiment_runner.h"

namespace tandem::eval {
namespace {

constexpr int kMostTrials = 12;          // per free parameter
constexpr double kCloseEnough = 0.0025;  // to a published share, which has two digits
constexpr double kRatherClose = 0.005;   // to another published value, relative
constexpr std::uint32_t kParts = 8;      // of a calibration's range, then as many of the two parts at the best point

/// Of a run alone; nothing where it is a share of no time.
std::optional<double> measure(Quantity quantity, const RunOutcome& run) {
  const auto cause = [&](Cause c) { return run.row.idle_ms_by_cause[static_cast<std::size_t>(c)]; };
  switch (quantity) {
    case Quantity::idle_ratio:
      return run.row.idle_ms / run.row.step_ms;
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
    if (!outcome.row.refused.empty())
      throw_input_error("{}: at {} = {:.4g} the run '{}' is refused: {}.", e.name, p.name, value, run.name,
                        outcome.row.refused);
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
  if ((below < 0) == (above < 0))
    throw_input_error("{}: '{}' is published as {:.3g}, but goes from {:.3g} to {:.3g} for {} from {:.4g} to {:.4g}.",
                      e.name, cell.name, cell.published, cell.published + below, cell.published + above, p.name, p.low,
                      p.high);
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
  for (const Calibration& c : e.calibrations)
    if (std::ranges::any_of(needed, [&](const std::string& name) { return e.run(name).contains(c.name); }))
      found.push_back({c, 0, {}});
  for (const double part : {1.0, 0.25}) {
    std::vector<std::pair<CalibratedValue*, CalibratedValue::Trial>> tasks;
    for (CalibratedValue& c : found) {
      const double step = part * (c.calibration.high - c.calibration.low) / kParts;
      const double middle = c.trials.empty() ? (c.calibration.low + c.calibration.high) / 2 : c.value;
      for (int i = -static_cast<int>(kParts / 2); i <= static_cast<int>(kParts / 2); ++i) {
        const double share = middle + i * step;
        const bool tried = std::ranges::any_of(
            c.trials, [&](const CalibratedValue::Trial& t) { return std::abs(t.share - share) < step / 2; });
        if (!tried && share > 0 && share < 1) tasks.push_back({&c, {share, 0}});
      }
    }
    pool.parallel_for(tasks.size(), [&](std::size_t i) {
      auto& [of, trial] = tasks[i];
      Values values = known;
      values[of->calibration.name] = trial.share;
      trial.step_ms = runner.step_of(e.run(of->calibration.run), values, of->calibration.seed);
    });
    for (const auto& [of, trial] : tasks) of->trials.push_back(trial);
    for (CalibratedValue& c : found) {
      std::ranges::sort(c.trials, {}, &CalibratedValue::Trial::share);
      c.value = std::ranges::min_element(c.trials, {}, &CalibratedValue::Trial::step_ms)->share;
    }
  }
  return found;
}

/// Tokens/s of a run over those of another: the median over the seeds.
double speed_up(const RunOutcome& run, const RunOutcome& over) {
  std::vector<double> ratios(run.step_ms.size());
  std::ranges::transform(run.step_ms, over.step_ms, ratios.begin(),
                         [&](double own, double other) { return run.batch / own / (over.batch / other); });
  return percentile(ratios, 0.5);
}

/// `over`: of a speed-up.
std::optional<double> value_of(const Cell& cell, const RunOutcome& run, const RunOutcome* over) {
  return over != nullptr ? speed_up(run, *over) : measure(cell.quantity, run);
}

void add_range(CellOutcome& c, const RunOutcome& run, const RunOutcome* over, const ExperimentRunner& runner,
               const HardwareProfile& machine) {
  if (c.fitted || !c.ours || *c.ours <= 0 || machine.ranges.empty()) return;
  if (run.calls.times_decide || (over != nullptr && over->calls.times_decide)) return;
  constexpr double kLeast = 1e-9;  // a share that has become nothing
  const TimeRange range = range_of(machine, [&](const HardwareProfile& hardware) {
    const RunOutcome replayed = runner.replayed(run, hardware);
    std::optional<RunOutcome> other;
    if (over != nullptr) other = runner.replayed(*over, hardware);
    return std::max(value_of(c.cell, replayed, other ? &*other : nullptr).value_or(0), kLeast);
  });
  const double most = is_share(c.cell.quantity) ? 1 : HUGE_VAL;
  c.range = Interval{*c.ours * range.low, std::min(*c.ours * range.high, most)};
  c.widest = range.widest;
}

/// nullptr: it does not fit.
const RunOutcome* find(const RunsByName& known, const std::string& name) {
  const auto found = known.find(name);
  return found == known.end() ? nullptr : found->second;
}

}  // namespace

OrderOutcome judge(const Order& order, const RunsByName& known) {
  OrderOutcome outcome{order, {}, {}, true, {}};
  for (std::size_t i = 0; i < order.runs.size(); ++i) {
    const RunOutcome* run = find(known, order.runs[i]);
    const RunOutcome* over = order.over.empty() ? nullptr : find(known, order.over[i]);
    std::optional<double> value, idle_ms;
    if (run != nullptr && (over != nullptr || order.over.empty())) {  // a speed-up over what does not fit is unknown
      const double own = order.by_idle ? run->row.idle_ms / run->row.step_ms : run->tokens_per_second();
      value = over != nullptr ? own / over->tokens_per_second() : own;
    }
    if (run != nullptr) idle_ms = run->row.idle_ms / run->layers;
    if (!outcome.values.empty()) {
      const std::optional<double> before = outcome.values.back();  // what does not fit is slower than all
      if (order.by_idle ? !value || value >= before : value <= before) outcome.holds = false;
    }
    outcome.values.push_back(value);
    if (order.by_idle) outcome.idle_ms.push_back(idle_ms);
  }
  const RunOutcome* last = order.over.empty() ? find(known, order.runs.back()) : nullptr;
  if (last == nullptr || last->step_ms.size() < 2) return outcome;
  for (std::size_t i = 0; i + 1 < order.runs.size(); ++i) {
    const RunOutcome* run = find(known, order.runs[i]);
    if (run == nullptr || run->step_ms.size() != last->step_ms.size()) return outcome;
    std::vector<double> ratios(run->step_ms.size());
    std::ranges::transform(run->step_ms, last->step_ms, ratios.begin(), std::divides());
    outcome.over_last.push_back(
        {ratios.size(), mean(ratios), bootstrap_mean_interval(ratios), IntervalKind::bootstrap});
    if (outcome.over_last.back().interval.low <= 1) outcome.holds = false;
  }
  return outcome;
}

bool CellOutcome::within_aim() const {
  if (!ours || std::abs(error_of(*ours)) > cell.aim) return false;
  // A gain that came out as a loss is no good prediction, however near. A published 1 is neither.
  return cell.quantity != Quantity::speed_up || cell.published == 1 || (*ours > 1) == (cell.published > 1);
}

Reproduction reproduce(const Experiment& experiment, const ReproduceOptions& options) {
  const auto figures = experiment.figures();
  if (!options.figure.empty() && std::ranges::find(figures, options.figure) == figures.end())
    throw_input_error("The experiment '{}' has no figure '{}'.", experiment.name, options.figure);
  const auto wanted = [&](const std::string& figure) { return options.figure.empty() || figure == options.figure; };
  Reproduction result;
  result.experiment = experiment;
  std::set<std::string> needed, predicted;  // runs; of cells that get a range
  for (const Cell& cell : experiment.cells) {
    const bool fitted = experiment.fitted(cell);
    if (!fitted && !wanted(cell.figure)) continue;
    result.cells.push_back({cell, fitted, false, {}, {}, {}});
    needed.insert({cell.run, cell.over});
    if (!fitted) predicted.insert({cell.run, cell.over});
  }
  for (const Order& order : experiment.orders)
    if (wanted(order.figure)) {
      needed.insert(order.runs.begin(), order.runs.end());
      needed.insert(order.over.begin(), order.over.end());
    }
  needed.erase("");  // `over` of cells that are no speed-ups

  ExperimentRunner runner(experiment, options);
  constexpr int kUsualTrials = 6;
  const std::vector<FreeParameter>& free = experiment.free;
  runner.begin(free.size() * kUsualTrials + experiment.calibrations.size() * 2 * kParts + needed.size());
  result.clock = runner.clock();
  if (std::ranges::any_of(free, &FreeParameter::of_machine))
    result.clock += ", with what was fitted of it";  // not the machine that other commands simulate by this name
  ThreadPool pool(options.threads);
  result.fitted.resize(free.size());
  Values values;
  const auto fit_one = [&](std::size_t i) { result.fitted[i] = fit(experiment, free[i], values, runner); };
  for (std::size_t i = 0; i < free.size(); ++i) {  // every run is on the machine
    if (!free[i].of_machine()) continue;
    fit_one(i);
    values[free[i].name] = result.fitted[i].value;
  }
  pool.parallel_for(free.size(), [&](std::size_t i) {
    if (!free[i].of_machine()) fit_one(i);
  });
  for (const FittedValue& fitted : result.fitted) values[fitted.name] = fitted.value;
  result.calibrated = calibrate(experiment, needed, values, runner, pool);
  for (const CalibratedValue& c : result.calibrated) values[c.calibration.name] = c.value;

  std::vector<const ExperimentRun*> runs;
  for (const ExperimentRun& run : experiment.runs)
    if (needed.contains(run.name)) runs.push_back(&run);
  result.runs.resize(runs.size());
  pool.parallel_for(runs.size(), [&](std::size_t i) {
    result.runs[i] = runner.run(*runs[i], values, predicted.contains(runs[i]->name));
  });
  RunsByName known;
  for (const RunOutcome& outcome : result.runs)
    if (outcome.row.refused.empty()) known[outcome.name] = &outcome;
  const HardwareProfile machine = runner.machine(values);
  pool.parallel_for(result.cells.size(), [&](std::size_t i) {
    if (options.interrupted && options.interrupted()) throw Interrupted();
    CellOutcome& c = result.cells[i];
    const RunOutcome *run = find(known, c.cell.run), *over = find(known, c.cell.over);
    c.fits = run != nullptr && (over != nullptr || c.cell.over.empty());
    if (!c.fits) return;
    c.ours = value_of(c.cell, *run, over);
    add_range(c, *run, over, runner, machine);
  });
  for (RunOutcome& run : result.runs) run.calls = {};
  for (const Order& order : experiment.orders)
    if (wanted(order.figure)) result.orders.push_back(judge(order, known));
  return result;
}

}  // namespace tandem::eval
