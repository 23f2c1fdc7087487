#include "eval/reproduce/experiment_runner.h"

#include <algorithm>
#include <cmath>
#include <fmt/core.h>
#include <functional>
#include <string_view>

#include "engine/common/error.h"
#include "engine/runtime/forward.h"
#include "engine/runtime/score_process.h"
#include "methods/fluxion/schedule.h"

namespace tandem::eval {
namespace {

constexpr std::uint32_t kChunk = 32768;  // of the prompts, whose time nobody asks for
constexpr double kPageOfTokens = 32;
constexpr std::uint32_t kStepsOfOne = 2;  // its memory is all that is asked for

/// The tasks of one layer and step.
struct LayerTasks {
  Makespan times;
  std::uint64_t bytes = 0;
  Nanos begin = 0, end = 0;
};

TaskTimes task_times(const Trace& trace, const HardwareProfile& hardware) {
  const HardwareProfile::HostRates& host = hardware.host;
  const double link_gbps = std::ranges::max(hardware.link.h2d_curve, {}, &LinkPoint::gbps).gbps;  // or bytes per ns
  const auto later = [](const StepMark& s) { return s.step != 0 && s.step != Device::kSetupStep; };
  const auto first = std::ranges::find_if(trace.steps, later);
  const auto steps = std::ranges::count_if(trace.steps, later);
  TaskTimes out;
  if (steps == 0) return out;
  double predict = 0;
  bool estimated = false;  // else what the host selects and attends are no tasks
  Nanos predicted = 0;     // until when the layer's estimate, its way and the choice are counted
  std::map<std::pair<std::size_t, std::uint32_t>, LayerTasks> layers;  // [step][layer]
  for (const TraceRecord& r : trace.records) {
    if (r.start < first->begin) continue;
    const std::string_view name = r.name;
    estimated |= name == "estimate heads";
    if (name == "estimate heads") predicted = r.start;
    if (name == "estimate heads" || name == "head estimates to host" || name == "choose tasks") {
      predict += double(std::max(r.end, predicted) - predicted);
      predicted = std::max(r.end, predicted);
    }
    const bool select = name == "select blocks", attend = name == "host attention",
               device = name == "attend over the link";
    if (!select && !attend && !device) continue;
    const auto step = std::upper_bound(trace.steps.begin(), trace.steps.end(), r.start,
                                       [](Nanos start, const StepMark& s) { return start < s.end; });
    LayerTasks& layer = layers[{static_cast<std::size_t>(step - trace.steps.begin()), r.layer}];
    if (layer.times.cpu.empty()) layer.begin = r.start;
    layer.begin = std::min(layer.begin, r.start);
    layer.end = std::max(layer.end, r.end);
    if (attend && layer.times.cpu.empty()) continue;
    if (!attend) {  // the host's selection and attention of a task follow each other
      layer.times.cpu.push_back(0);
      layer.times.device.push_back(0);
    }
    // Nobody has told the digests of a task on the device apart from the rest.
    const double efficiency = device   ? std::max(host.select_efficiency, host.attention_efficiency)
                              : select ? host.select_efficiency
                                       : host.attention_efficiency;
    const std::uint64_t bytes = device ? r.cost.h2d : r.cost.dram;
    layer.times.cpu.back() += double(bytes) / (host.dram_gbps * efficiency);
    layer.times.device.back() += double(bytes) / link_gbps;
    layer.bytes += bytes;
  }
  if (!estimated) return out;
  double tasks = 0, bound = 0;
  for (const auto& [where, layer] : layers) {
    tasks += double(layer.end - layer.begin);
    bound += std::max(lower_bound(layer.times), double(layer.bytes) / host.dram_gbps);
  }
  const double scale = 1e-6 / double(steps);
  return {predict * scale, tasks * scale, bound * scale};
}

/// Lengths of the batch of a seed.
void set_lengths(const Mixed& mixed, std::uint32_t seed, PredictionOptions& target) {
  target.contexts = mixed_lengths(mixed, target.batch, seed);
  target.context = std::ranges::max(target.contexts);
}

/// Means over the seeds, or a refusal where one does not fit; the calls of the first.
RunOutcome average(std::vector<RunOutcome> seeds) {
  SimCalls calls = std::move(seeds.front().calls);
  RunOutcome out = seeds.back();
  out.calls = std::move(calls);
  out.step_ms.clear();
  for (const RunOutcome& seed : seeds)
    if (seed.row.refused.empty()) out.step_ms.push_back(seed.row.step_ms);
  if (seeds.size() == 1 || !out.row.refused.empty()) return out;
  const auto mean = [&](auto of) {
    double sum = 0;
    for (const RunOutcome& seed : seeds) sum += of(seed);
    return sum / double(seeds.size());
  };
  for (double PredictedRow::*field :
       {&PredictedRow::prefill_ms, &PredictedRow::setup_ms, &PredictedRow::first_step_ms, &PredictedRow::step_ms,
        &PredictedRow::busy_ms, &PredictedRow::idle_ms, &PredictedRow::layer0_idle_ms, &PredictedRow::attended_device,
        &PredictedRow::attended_host})
    out.row.*field = mean([&](const RunOutcome& seed) { return seed.row.*field; });
  for (std::size_t c = 0; c < out.row.idle_ms_by_cause.size(); ++c)
    out.row.idle_ms_by_cause[c] = mean([&](const RunOutcome& seed) { return seed.row.idle_ms_by_cause[c]; });
  for (double TaskTimes::*field : {&TaskTimes::predict_ms, &TaskTimes::tasks_ms, &TaskTimes::bound_ms})
    out.tasks.*field = mean([&](const RunOutcome& seed) { return seed.tasks.*field; });
  for (std::size_t PredictedRow::*field :
       {&PredictedRow::device_kv_bytes, &PredictedRow::host_kv_bytes, &PredictedRow::peer_kv_bytes})
    for (const RunOutcome& seed : seeds) out.row.*field = std::max(out.row.*field, seed.row.*field);
  return out;
}

}  // namespace

ExperimentRunner::ExperimentRunner(const Experiment& experiment, const ReproduceOptions& options)
    : experiment_(experiment),
      options_(options),
      hardware_(load_profile(experiment.hardware)),
      workload_(shipped_workload(experiment.workload)) {
  for (const ExperimentRun& run : experiment.runs) {
    const std::string& name = model_of(run);
    if (!shapes_.contains(name)) shapes_.emplace(name, load_shape(name));
    Model& shape = shapes_.at(name);
    // Longer contexts than the model's own positions take scaled ones (YaRN), which cost nothing.
    shape.config.max_positions = std::max(shape.config.max_positions, run.context + run.steps);
  }
}

RunOutcome ExperimentRunner::run(const ExperimentRun& run, const Values& values, bool for_ranges) {
  const HardwareProfile hardware = machine_of(run, values);
  PredictionOptions target = target_of(run, values);
  if (run.as_many_as_fit) {
    PredictionOptions alone = target;
    alone.batch = 1;
    alone.steps = kStepsOfOne;
    RunOutcome one = simulate(run, hardware, alone);
    one.batch = run.batch;
    one.steps = run.steps;
    if (!one.row.refused.empty()) return one;
    target.batch = sequences_that_fit(shapes_.at(model_of(run)), hardware, one.row, run.batch);
  }
  std::vector<RunOutcome> seeds;
  for (std::uint32_t seed = 0; seed < std::max(run.mixed.seeds, 1u); ++seed) {
    if (run.mixed.seeds > 0) set_lengths(run.mixed, seed, target);
    target.checked = seed == 0;  // the others' schedules are alike
    seeds.push_back(simulate(run, hardware, target, for_ranges && seed == 0));
    if (!seeds.back().row.refused.empty()) break;
  }
  one_more(run.name);
  return average(std::move(seeds));
}

double ExperimentRunner::step_of(const ExperimentRun& run, const Values& values, std::uint32_t seed) {
  PredictionOptions target = target_of(run, values);
  target.checked = false;
  set_lengths(run.mixed, seed, target);
  const RunOutcome outcome = simulate(run, machine_of(run, values), target);
  if (!outcome.row.refused.empty())
    throw_input_error("{}: '{}' is calibrated with {}, which is refused: {}.", experiment_.name, run.name,
                      outcome.method, outcome.row.refused);
  one_more(run.name);
  return outcome.row.step_ms;
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

HardwareProfile ExperimentRunner::machine_of(const ExperimentRun& run, const Values& values) const {
  HardwareProfile hardware = machine(values);
  hardware.device.memory_gb *= run.devices;
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
      for (std::uint32_t head = 0; head < shape.kv_heads; ++head)
        for (std::uint32_t sequence = 0; sequence < kSequences; ++sequence)
          sum += process.salient_tokens({sequence, layer * shape.layers / kLayers, head, 0}, 0, old, beta);
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

PredictionOptions ExperimentRunner::target_of(const ExperimentRun& run, const Values& values) {
  return {.methods = {filled_in(run, values)},
          .batch = run.batch,
          .context = run.context,
          .steps = run.steps,
          .prefill_chunk = kChunk,
          .threads = 1,
          .drawn_sequences = 0,
          .interrupted = options_.interrupted};
}

RunOutcome ExperimentRunner::simulate(const ExperimentRun& run, const HardwareProfile& hardware,
                                      PredictionOptions target, bool recorded) {
  const Model& shape = shapes_.at(model_of(run));
  RunOutcome out{run.name, target.methods.at(0), target.batch, shape.config.layers, target.steps, {}, {}, {}, {}};
  target.look = [&](const DecodeResult& result) { out.tasks = task_times(result.trace, hardware); };
  if (recorded) target.record = [&](Recording recording) { out.calls = std::move(recording.calls); };
  out.row = predict(shape, hardware, workload_, target).rows.at(0);
  return out;
}

RunOutcome ExperimentRunner::replayed(const RunOutcome& outcome, const HardwareProfile& hardware) const {
  RunOutcome out{outcome.name, outcome.method, outcome.batch, outcome.layers, outcome.steps, {}, {}, {}, {}};
  std::vector<StepIdle> steps;
  for (const Trace& trace : replay(outcome.calls, hardware)) {
    if (steps.empty()) out.tasks = task_times(trace, hardware);
    for (StepIdle& step : account_idle(trace).steps) steps.push_back(std::move(step));
  }
  fill_times(steps, out.batch, out.row);
  out.step_ms = {out.row.step_ms};
  return out;
}

}  // namespace tandem::eval
