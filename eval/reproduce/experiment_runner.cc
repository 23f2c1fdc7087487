#include "eval/reproduce/experiment_runner.h"

#include <algorithm>
#include <cmath>
#include <fmt/core.h>
#include <functional>

#include "engine/common/error.h"
#include "engine/common/paths.h"
#include "engine/common/read_file.h"
#include "engine/runtime/forward.h"
#include "engine/runtime/score_process.h"

namespace tandem::eval {
namespace {

constexpr std::uint32_t kChunk = 32768;  // of the prompts, whose time nobody asks for
constexpr double kPageOfTokens = 32;
constexpr std::uint32_t kStepsOfOne = 2;  // its memory is all that is asked for

Workload read_workload(const std::string& name) {
  const std::filesystem::path file = data_path("hardware/workloads") / (name + ".json");
  return parse_workload(read_file(file), file.string());
}

}  // namespace

ExperimentRunner::ExperimentRunner(const Experiment& experiment, const ReproduceOptions& options)
    : experiment_(experiment),
      options_(options),
      hardware_(load_profile(experiment.hardware)),
      workload_(read_workload(experiment.workload)) {
  for (const ExperimentRun& run : experiment.runs) {
    const std::string& name = model_of(run);
    if (!shapes_.contains(name)) shapes_.emplace(name, load_shape(name));
    Model& shape = shapes_.at(name);
    // Longer contexts than the model's own positions take scaled ones (YaRN), which cost nothing.
    shape.config.max_positions = std::max(shape.config.max_positions, run.context + run.steps);
  }
}

RunOutcome ExperimentRunner::run(const ExperimentRun& run, const Values& values, bool for_ranges) {
  const HardwareProfile hardware = machine(values);
  const Model& shape = shapes_.at(model_of(run));
  RunOutcome outcome{run.name, filled_in(run, values), run.batch, shape.config.layers, {}, {}, {}, {}};
  Place place{outcome, shape, hardware, run.context, run.steps, {}, true};
  if (run.as_many_as_fit) {
    Place alone = place;
    alone.steps = kStepsOfOne;
    const PredictedRow one = simulate(alone, 1).row;
    outcome.row = one;
    if (!one.refused.empty()) return outcome;
    outcome.batch = sequences_that_fit(shape, hardware, one, run.batch);
  }
  const std::uint32_t seeds = std::max(run.mixed.seeds, 1u);
  std::vector<Simulated> results;
  for (std::uint32_t seed = 0; seed < seeds; ++seed) {
    if (run.mixed.seeds > 0) {
      place.contexts = mixed_lengths(run.mixed, outcome.batch, seed);
      place.checked = seed == 0;  // the others' schedules are alike
      place.context = *std::ranges::max_element(place.contexts);
    }
    place.recorded = for_ranges && seed == 0;
    results.push_back(simulate(place, outcome.batch));
    if (!results.back().row.refused.empty()) break;
    outcome.step_ms.push_back(results.back().row.step_ms);
  }
  average(results, outcome);
  outcome.calls = std::move(results.front().calls);
  one_more(run.name);
  return outcome;
}

double ExperimentRunner::step_of(const ExperimentRun& run, const Values& values, std::uint32_t seed) {
  const HardwareProfile hardware = machine(values);
  const Model& shape = shapes_.at(model_of(run));
  const RunOutcome named{run.name, filled_in(run, values), run.batch, shape.config.layers, {}, {}, {}, {}};
  const std::vector<std::uint32_t> contexts = mixed_lengths(run.mixed, run.batch, seed);
  const std::uint32_t longest = *std::ranges::max_element(contexts);
  const PredictedRow row = simulate({named, shape, hardware, longest, run.steps, contexts, false}, run.batch).row;
  if (!row.refused.empty())
    throw_input_error("{}: '{}' is calibrated with {}, which is refused: {}.", experiment_.name, run.name, named.method,
                      row.refused);
  one_more(run.name);
  return row.step_ms;
}

void ExperimentRunner::one_more(const std::string& name) {
  const std::lock_guard lock(mutex_);
  ++done_;
  if (options_.progress) options_.progress(done_, std::max(total_, done_), name);
}

const std::string& ExperimentRunner::model_of(const ExperimentRun& run) const {
  return run.model.empty() ? experiment_.model : run.model;
}

/// The profile with what was fitted of the machine; what was not yet stands at its low end.
HardwareProfile ExperimentRunner::machine(const Values& values) const {
  HardwareProfile hardware = hardware_;
  for (const FreeParameter& p : experiment_.free) {
    const auto found = values.find(p.name);
    const double value = found != values.end() ? found->second : p.low;
    if (p.kind == FreeKind::cpu_efficiency) {  // one share for all that the CPU reads
      hardware.host.attention_efficiency = hardware.host.select_efficiency = std::min(value, 1.0);
      hardware.host.attention_contiguous_efficiency = 0;
      for (const char* field : {"attention_efficiency", "select_efficiency", "attention_contiguous_efficiency"})
        hardware.ranges.erase(std::string("host.") + field);
    }
    if (p.kind == FreeKind::layer_overhead) hardware.device.layer_ns = static_cast<Nanos>(std::llround(value * 1e6));
  }
  return hardware;
}

std::string ExperimentRunner::filled_in(const ExperimentRun& run, const Values& values) {
  std::string method = run.method;
  const auto replace = [&](const std::string& name, const std::function<double()>& value) {
    const std::string place = '{' + name + '}';
    for (std::size_t at; (at = method.find(place)) != std::string::npos;)
      method.replace(at, place.size(), fmt::format("{:.6g}", value()));
  };
  for (const Calibration& c : experiment_.calibrations) replace(c.name, [&] { return values.at(c.name); });
  for (const FreeParameter& p : experiment_.free) {
    replace(p.name, [&] {
      const double value = values.at(p.name);
      if (p.kind == FreeKind::salient) return beta_for(value, run, p.window);
      return p.kind == FreeKind::pages ? value * kPageOfTokens : value;
    });
  }
  return method;
}

/// How far above the mean a weight must be for `tokens` tokens of a context to be salient, without its newest
/// `window`; mean over layers and heads.
double ExperimentRunner::beta_for(double tokens, const ExperimentRun& run, std::uint32_t window) {
  constexpr std::uint32_t kLayers = 2, kSequences = 2;
  const ModelShape shape = shape_of(shapes_.at(model_of(run)).config);
  const ScoreProcess process(workload_, shape);
  const std::uint32_t old = run.context - std::min(window, run.context);
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

ExperimentRunner::Simulated ExperimentRunner::simulate(const Place& place, std::uint32_t batch) {
  PredictionOptions target;
  target.methods = {place.run.method};
  target.batch = batch;
  target.context = place.context;
  target.contexts = place.contexts;
  target.checked = place.checked;
  target.steps = place.steps;
  target.prefill_chunk = kChunk;
  target.threads = 1;
  target.drawn_sequences = 0;
  target.interrupted = options_.interrupted;
  Simulated out;
  target.look = [&](const DecodeResult& result) { out.tasks = task_times(result.trace, place.hardware); };
  if (place.recorded) target.calls = [&](SimCalls calls) { out.calls = std::move(calls); };
  out.row = predict(place.shape, place.hardware, workload_, target).rows.at(0);
  return out;
}

RunOutcome ExperimentRunner::replayed(const RunOutcome& outcome, const HardwareProfile& hardware) const {
  RunOutcome out{outcome.name, outcome.method, outcome.batch, outcome.layers, {}, {}, {}, {}};
  std::vector<StepIdle> steps;
  for (const Trace& trace : replay(outcome.calls, hardware)) {
    if (steps.empty()) out.tasks = task_times(trace, hardware);
    for (StepIdle& step : account_idle(trace).steps) steps.push_back(std::move(step));
  }
  fill_times(steps, out.row);
  out.step_ms = {out.row.step_ms};
  return out;
}

/// Means over the seeds, or a refusal where one does not fit.
void ExperimentRunner::average(const std::vector<Simulated>& results, RunOutcome& outcome) {
  outcome.row = results.back().row;
  outcome.tasks = results.back().tasks;
  if (results.size() == 1 || !outcome.row.refused.empty()) return;
  const auto mean = [&](auto of) {
    double sum = 0;
    for (const Simulated& r : results) sum += of(r);
    return sum / double(results.size());
  };
  for (double PredictedRow::*field :
       {&PredictedRow::prefill_ms, &PredictedRow::setup_ms, &PredictedRow::first_step_ms, &PredictedRow::step_ms,
        &PredictedRow::busy_ms, &PredictedRow::idle_ms, &PredictedRow::layer0_idle_ms, &PredictedRow::attended_device,
        &PredictedRow::attended_host})
    outcome.row.*field = mean([&](const Simulated& r) { return r.row.*field; });
  for (std::size_t c = 0; c < outcome.row.idle_ms_by_cause.size(); ++c)
    outcome.row.idle_ms_by_cause[c] = mean([&](const Simulated& r) { return r.row.idle_ms_by_cause[c]; });
  for (double TaskTimes::*field : {&TaskTimes::predict_ms, &TaskTimes::tasks_ms, &TaskTimes::bound_ms})
    outcome.tasks.*field = mean([&](const Simulated& r) { return r.tasks.*field; });
  for (const Simulated& r : results) {
    outcome.row.device_kv_bytes = std::max(outcome.row.device_kv_bytes, r.row.device_kv_bytes);
    outcome.row.host_kv_bytes = std::max(outcome.row.host_kv_bytes, r.row.host_kv_bytes);
    outcome.row.peer_kv_bytes = std::max(outcome.row.peer_kv_bytes, r.row.peer_kv_bytes);
  }
}

}  // namespace tandem::eval
