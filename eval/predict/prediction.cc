#include "eval/predict/prediction.h"

#include <algorithm>
#include <cmath>
#include <fmt/core.h>
#include <limits>
#include <map>

#include "engine/common/error.h"
#include "engine/device/sim_device.h"
#include "engine/runtime/engine.h"
#include "eval/predict/ranges.h"
#include "eval/predict/schedule_check.h"
#include "eval/run/decoded.h"
#include "methods/registry.h"

namespace tandem::eval {
namespace {

// Memory that is left for what is no weight and no KV: activations, scores, averages; the host's programs.
constexpr double kReserved = 0.05;
constexpr double kRoomyGb = 1e9;  // more than any batch takes
constexpr double kMs = 1e-6;      // of a nanosecond

/// Variance of what sequences of equal length attend together, beside the same if all of them were drawn: a drawn one
/// counts as often as others share its draws.
double sampling_variance(const std::vector<DecodedSequence>& sequences, const std::vector<std::size_t>& alike,
                         int side) {
  std::map<std::size_t, double> shares;  // by drawn sequence
  for (const std::size_t i : alike) shares[sequences[i].drawn_as] += 1;
  if (shares.size() < 2 || shares.size() == alike.size()) return 0;
  const auto of = [&](std::size_t i) { return double(sequences[i].attended[side]); };
  double mean = 0, spread = 0, weight = double(alike.size() - shares.size());
  for (const auto& [drawn, share] : shares) mean += of(drawn) / double(shares.size());
  for (const auto& [drawn, share] : shares) {
    spread += (of(drawn) - mean) * (of(drawn) - mean) / double(shares.size() - 1);
    weight += (share - 1) * (share - 1);
  }
  return spread * weight;
}

void fill_sampling(const DecodeResult& result, const PredictionOptions& options, PredictedRow& row) {
  std::map<std::uint32_t, std::vector<std::size_t>> alike;
  for (std::size_t i = 0; i < result.sequences.size(); ++i) {
    alike[options.contexts.empty() ? options.context : options.contexts[i]].push_back(i);
    row.drawn_sequences += result.sequences[i].drawn_as == i ? 1 : 0;
  }
  if (row.drawn_sequences == result.sequences.size()) row.drawn_sequences = 0;
  for (int side = 0; side < 2; ++side) {
    double all = 0, variance = 0;
    for (const DecodedSequence& s : result.sequences) all += double(s.attended[side]);
    for (const auto& [context, sequences] : alike) variance += sampling_variance(result.sequences, sequences, side);
    if (all > 0) row.sampling_error = std::max(row.sampling_error, std::sqrt(variance) / all);
  }
}

void fill_range(const SimCalls& calls, const HardwareProfile& hardware, PredictedRow& row) {
  const TimeRange range = range_of(hardware, [&](const HardwareProfile& h) { return replayed_step(calls, h); });
  row.step_low_ms = row.step_ms * range.low;
  row.step_high_ms = row.step_ms * range.high;
  row.widest_range = range.widest;
}

void fill_row(const DecodeResult& result, Nanos prefill, PredictedRow& row) {
  row.prefill_ms = double(prefill) * kMs;
  fill_times(result.idle.steps, row);
  std::uint64_t later = 0, touched = 0;
  for (const StepIdle& s : result.idle.steps) {
    if (s.step == Device::kSetupStep || s.step == 0) continue;
    ++later;
    touched += s.cost.touched;
  }
  row.touched_bytes = double(touched) / (double(later) * double(result.sequences.size()));
  for (const DecodedSequence& s : result.sequences) {
    const double steps = double(s.steps.size()) * double(result.sequences.size());
    row.attended_device += double(s.attended[static_cast<int>(Side::device)]) / steps;
    row.attended_host += double(s.attended[static_cast<int>(Side::host)]) / steps;
    row.device_kv_bytes += s.peak_kv_bytes[static_cast<int>(Tier::device)];
    row.host_kv_bytes += s.peak_kv_bytes[static_cast<int>(Tier::host)];
    row.peer_kv_bytes += s.peak_peer_bytes;
  }
}

PredictedRow refused_row(std::string method, std::string why, bool too_large = false) {
  PredictedRow row;
  row.method = std::move(method);
  row.refused = std::move(why);
  row.too_large = too_large;
  return row;
}

/// What of a row is more than its place holds, as the end of a sentence about the method; empty: nothing.
std::string what_is_too_large(const Model& shape, const HardwareProfile& hardware, const PredictedRow& row) {
  constexpr double kGb = 1e-9;
  if (double(row.device_kv_bytes) > device_kv_room(shape, hardware))
    return fmt::format("its KV takes {:.1f} GB of device memory, and beside the weights '{}' has {:.1f} GB",
                       double(row.device_kv_bytes) * kGb, hardware.name, device_kv_room(shape, hardware) * kGb);
  if (double(row.host_kv_bytes) > host_kv_room(hardware))
    return fmt::format("its KV takes {:.1f} GB of host memory, and '{}' has {:.1f} GB for it",
                       double(row.host_kv_bytes) * kGb, hardware.name, host_kv_room(hardware) * kGb);
  if (double(row.peer_kv_bytes) > peer_kv_room(hardware))
    return fmt::format(
        "its cache rank holds {:.1f} GB of KV, query windows and selections, and the peer, a device "
        "like that of '{}' without weights, has {:.1f} GB",
        double(row.peer_kv_bytes) * kGb, hardware.name, peer_kv_room(hardware) * kGb);
  return "";
}

EngineOptions engine_options(const Model& shape, const HardwareProfile& hardware, const Workload& workload,
                             const PredictionOptions& options) {
  EngineOptions engine;
  // Address space for the batch's prompts and, beside them, all that a method may add or keep; what fits is checked
  // here.
  const KvShape kv{shape.config.layers, shape.config.kv_heads, shape.config.head_dim, DType::bf16};
  const std::size_t pages = std::size_t{options.batch} * (blocks_for(options.context + options.steps) + 4);
  engine.kv.device_bytes = engine.kv.host_bytes = 2 * pages * kv.layers * kv.slot_bytes();
  engine.max_batch = options.batch;
  engine.prefill_chunk = options.prefill_chunk;
  engine.policy_ns = hardware.control.policy_ns;
  engine.layer_ns = hardware.device.layer_ns;
  engine.control_layer_ns = hardware.control.layer_ns;
  engine.precision = DType::bf16;
  engine.workload = std::make_shared<const Workload>(workload);
  engine.drawn_sequences = options.drawn_sequences;
  engine.interrupted = options.interrupted;
  for (const std::string& spec : options.methods) {
    try {
      keep_what_methods_need(engine, {&spec, 1}, shape);
    } catch (const InputError&) {
      continue;  // of this shape it needs nothing: its row will say why it is refused
    }
  }
  return engine;
}

Prediction simulate(const Model& shape, const HardwareProfile& hardware, const Workload& workload,
                    const PredictionOptions& options, bool checked);

}  // namespace

void fill_times(const std::vector<StepIdle>& steps, PredictedRow& row) {
  std::uint64_t later = 0;
  Nanos step = 0, busy = 0, idle = 0, layer0 = 0;
  CauseTimes by_cause{};
  for (const StepIdle& s : steps) {
    if (s.step == Device::kSetupStep) {
      row.setup_ms = double(s.window) * kMs;
    } else if (s.step == 0) {
      row.first_step_ms = double(s.window) * kMs;
    } else {
      ++later;
      step += s.window;
      busy += s.busy;
      idle += s.idle;
      for (std::size_t c = 0; c < s.by_cause.size(); ++c) by_cause[c] += s.by_cause[c];
      for (const LayerIdle& layer : s.layers) layer0 += layer.layer == 0 ? layer.idle : 0;
    }
  }
  TANDEM_CHECK(later > 0 && step > 0, "{} steps after the first took {} ns", later, step);
  row.step_ms = double(step) * kMs / double(later);
  row.busy_ms = double(busy) * kMs / double(later);
  row.idle_ms = double(idle) * kMs / double(later);
  for (std::size_t c = 0; c < by_cause.size(); ++c) row.idle_ms_by_cause[c] = double(by_cause[c]) * kMs / double(later);
  row.layer0_idle_ms = double(layer0) * kMs / double(later);
}

double device_kv_room(const Model& shape, const HardwareProfile& hardware) {
  return hardware.device.memory_gb * 1e9 * (1 - kReserved) - double(shape.weights.bytes());
}

double peer_kv_room(const HardwareProfile& hardware) {
  return hardware.device.memory_gb * 1e9 * (1 - kReserved);
}

double host_kv_room(const HardwareProfile& hardware) {
  if (hardware.host.memory_gb == 0) return std::numeric_limits<double>::infinity();
  return hardware.host.memory_gb * 1e9 * (1 - kReserved);
}

std::uint32_t sequences_that_fit(const Model& shape, const HardwareProfile& hardware, const PredictedRow& one,
                                 std::uint32_t most) {
  double fit = most;
  const auto limit = [&](double room, std::size_t bytes) {
    if (bytes > 0) fit = std::min(fit, room / double(bytes));
  };
  limit(device_kv_room(shape, hardware), one.device_kv_bytes);
  limit(host_kv_room(hardware), one.host_kv_bytes);
  limit(peer_kv_room(hardware), one.peer_kv_bytes);
  return static_cast<std::uint32_t>(std::max(fit, 0.0));
}

std::string what_of_weights_is_too_large(const Model& shape, const HardwareProfile& hardware) {
  if (device_kv_room(shape, hardware) > 0) return "";
  return fmt::format(
      "the weights take {:.1f} GB, and '{}' has {:.4g} GB of device memory, of which 5 % are kept for activations",
      double(shape.weights.bytes()) * 1e-9, hardware.name, hardware.device.memory_gb);
}

void check_target(const Model& shape, const HardwareProfile& hardware, const PredictionOptions& options) {
  if (const std::string problem = what_of_weights_is_too_large(shape, hardware); !problem.empty())
    throw_input_error("{}: {}.", shape.name, problem);
  if (options.context < 2) throw_input_error("--context is {}: give at least 2 tokens.", options.context);
  if (std::size_t{options.context} + options.steps > shape.config.max_positions) {
    throw_input_error("--context {} and {} decode steps exceed the {} positions of {} (max_position_embeddings).",
                      options.context, options.steps, shape.config.max_positions, shape.name);
  }
}

Prediction predict(const Model& shape, const HardwareProfile& hardware, const Workload& workload,
                   const PredictionOptions& options) {
  check_target(shape, hardware, options);
  for (const std::string& method : options.methods)
    if (options.checked) check_schedule(shape, hardware, workload, options, method);
  return simulate(shape, hardware, workload, options, /*checked=*/false);
}

Prediction predict_checked(const Model& shape, const HardwareProfile& hardware, const Workload& workload,
                           const PredictionOptions& options) {
  check_target(shape, hardware, options);
  return simulate(shape, hardware, workload, options, /*checked=*/true);
}

namespace {

Prediction simulate(const Model& shape, const HardwareProfile& hardware, const Workload& workload,
                    const PredictionOptions& options, bool checked) {
  Prediction target{shape.name,     hardware.name,
                    hardware.title, shape.config.layers,
                    options.batch,  options.context,
                    options.steps,  options.prefill_chunk,
                    workload,       {}};
  ThreadPool pool(options.threads);
  // As if a prompt's KV left the device layer by layer while it is prefilled, where a method keeps it elsewhere, as
  // other engines do: only what the method keeps on the device has to fit, which fill_row's peaks tell. Engine::prefill
  // itself has a prompt whole on the device, and DecodeSession::prepare those of the batch. kPrefillsElsewhere says so.
  HardwareProfile roomy = hardware;
  roomy.device.memory_gb = kRoomyGb;
  const auto device = make_sim_device(roomy, {.shapes_only = true, .checked = checked});
  std::vector<std::unique_ptr<Prefix>> prefixes;
  std::unique_ptr<Engine> engine;
  try {
    engine = std::make_unique<Engine>(shape, *device, pool, engine_options(shape, hardware, workload, options));
    prefixes.reserve(options.batch);
    for (std::uint32_t i = 0; i < options.batch; ++i) {
      const std::vector<std::int32_t> prompt(options.contexts.empty() ? options.context : options.contexts.at(i), 0);
      prefixes.push_back(engine->prefill(prompt));
    }
  } catch (const Interrupted&) {
    throw;
  } catch (const RunError& e) {  // address space or memory of the machine that simulates
    for (const std::string& method : options.methods) target.rows.push_back(refused_row(method, e.what()));
    return target;
  }
  std::vector<DecodeRequest> requests;
  requests.reserve(prefixes.size());
  for (const auto& prefix : prefixes) requests.push_back({prefix.get(), options.steps});
  const std::vector<std::vector<std::int32_t>> forced(options.batch, std::vector<std::int32_t>(options.steps, 0));
  const bool ranges = options.ranges && !hardware.ranges.empty(), records = ranges || options.calls;
  for (std::size_t m = 0; m < options.methods.size(); ++m) {
    PredictedRow row;
    row.method = options.methods[m];
    try {
      const auto method = make_method(row.method);
      if (records) record_calls(*device, options.calls ? options.steps : std::min(options.steps, kRangeSteps));
      const DecodeResult result = engine->decode(*method, requests, {.forced = forced});
      SimCalls calls = records ? take_calls(*device) : SimCalls{};
      fill_row(result, prefill_ns_of(requests, method->needs(engine->shape())), row);
      fill_sampling(result, options, row);
      if (options.look) options.look(result);
      if (std::string why = what_is_too_large(shape, hardware, row); !why.empty())
        row = refused_row(row.method, std::move(why), /*too_large=*/true);
      else if (ranges && !calls.times_decide)
        fill_range(calls, roomy, row);
      if (options.calls) options.calls(std::move(calls));
    } catch (const Interrupted&) {
      throw;
    } catch (const InputError& e) {
      row = refused_row(row.method, e.what());
    } catch (const RunError& e) {
      row = refused_row(row.method, e.what());
    }
    if (!options.compared.empty() && options.compared.at(m) != row.method) row.compared = options.compared[m];
    target.rows.push_back(std::move(row));
    if (options.progress) options.progress(m + 1, options.methods.size());
  }
  for (const auto& prefix : prefixes) engine->release(*prefix);
  return target;
}

}  // namespace

}  // namespace tandem::eval
