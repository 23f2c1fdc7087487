#include "eval/predict/prediction.h"

#include <algorithm>
#include <cmath>
#include <fmt/core.h>
#include <iterator>
#include <limits>
#include <map>

#include "engine/common/error.h"
#include "engine/common/paths.h"
#include "engine/common/read_file.h"
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

void fill_sampling(const std::vector<DecodedSequence>& all, const PredictionOptions& options, PredictedRow& row) {
  std::map<std::uint32_t, std::vector<std::size_t>> alike;
  for (std::size_t i = 0; i < all.size(); ++i) {
    alike[options.contexts.empty() ? options.context : options.contexts[i]].push_back(i);
    row.drawn_sequences += all[i].drawn_as == i ? 1 : 0;
  }
  if (row.drawn_sequences == all.size()) row.drawn_sequences = 0;
  for (int side = 0; side < 2; ++side) {
    double sum = 0, variance = 0;
    for (const DecodedSequence& s : all) sum += double(s.attended[side]);
    for (const auto& [context, sequences] : alike) variance += sampling_variance(all, sequences, side);
    if (sum > 0) row.sampling_error = std::max(row.sampling_error, std::sqrt(variance) / sum);
  }
}

void fill_row(const std::vector<DecodedSequence>& all, const std::vector<StepIdle>& times, const Precision& precision,
              PredictedRow& row) {
  fill_times(times, all.size(), row);
  for (double* bytes :
       {&row.touched_bytes, &row.looked_up_bytes, &row.missed_bytes, &row.late_bytes, &row.cancelled_bytes})
    *bytes *= precision.kv_bits / 16.0;
  for (const DecodedSequence& s : all) {
    const double steps = double(s.steps.size()) * double(all.size());
    row.attended_device += double(s.attended[static_cast<int>(Side::device)]) / steps;
    row.attended_host += double(s.attended[static_cast<int>(Side::host)]) / steps;
    row.device_kv_bytes += precision.kv(s.peak_kv_bytes[static_cast<int>(Tier::device)]);
    row.host_kv_bytes += precision.kv(s.peak_kv_bytes[static_cast<int>(Tier::host)]);
    row.peer_kv_bytes += precision.kv(s.peak_peer_bytes);
  }
}

struct Room {
  double bytes;
  std::size_t PredictedRow::*taken;
  const char* too_little;  // the end of a sentence about a method: GB taken, the machine, GB of room
};

std::array<Room, 3> rooms_of(const Model& shape, const HardwareProfile& hardware, const Precision& precision) {
  return {{{device_kv_room(shape, hardware, precision), &PredictedRow::device_kv_bytes,
            "its KV takes {:.1f} GB of device memory, and beside the weights '{}' has {:.1f} GB"},
           {host_kv_room(hardware), &PredictedRow::host_kv_bytes,
            "its KV takes {:.1f} GB of host memory, and '{}' has {:.1f} GB for it"},
           {peer_kv_room(hardware), &PredictedRow::peer_kv_bytes,
            "its cache rank holds {:.1f} GB of KV, query windows and selections, and the peer, a device like that of "
            "'{}' without weights, has {:.1f} GB"}}};
}

/// As if a prompt's KV left the device layer by layer while it is prefilled, where a method keeps it elsewhere, as
/// other engines do: only what the method keeps on the device has to fit, which fill_row's peaks tell. Engine::prefill
/// itself has a prompt whole on the device, and DecodeSession::prepare those of the batch. kPrefillsElsewhere says so.
HardwareProfile roomy_machine(const HardwareProfile& hardware, const Precision& precision) {
  HardwareProfile roomy = at_precision(hardware, precision);
  roomy.device.memory_gb = kRoomyGb;
  return roomy;
}

/// The row of a decode with these times; one that says so where memory ends.
PredictedRow row_of(const Model& shape, const HardwareProfile& hardware, const PredictionOptions& options,
                    const std::string& method, const std::vector<DecodedSequence>& all,
                    const std::vector<StepIdle>& times) {
  PredictedRow row;
  row.method = method;
  fill_row(all, times, options.precision, row);
  fill_sampling(all, options, row);
  const auto rooms = rooms_of(shape, hardware, options.precision);
  const auto* const too_little =
      std::ranges::find_if(rooms, [&](const Room& room) { return double(row.*room.taken) > room.bytes; });
  if (too_little == rooms.end()) return row;
  PredictedRow refused =
      refused_row(method, fmt::format(fmt::runtime(too_little->too_little), double(row.*too_little->taken) * 1e-9,
                                      hardware.name, too_little->bytes * 1e-9));
  refused.too_large = true;
  refused.attended_device = row.attended_device;  // its budget, which losses are looked up by
  refused.attended_host = row.attended_host;
  return refused;
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

}  // namespace

Workload shipped_workload(const std::string& name) {
  const std::string file = (data_path("hardware/workloads") / (name + ".json")).string();
  return parse_workload(read_file(file), file);
}

PredictedRow refused_row(std::string method, std::string why) {
  PredictedRow row;
  row.method = std::move(method);
  row.refused = std::move(why);
  return row;
}

void fill_times(const std::vector<StepIdle>& steps, std::size_t sequences, PredictedRow& row) {
  std::uint64_t later = 0;
  Nanos layer0 = 0;
  CostTotals cost;
  IdleTimes sum;
  for (const StepIdle& s : steps) {
    if (s.step == Device::kSetupStep) {
      row.setup_ms = double(s.window) * kMs;
    } else if (s.step == 0) {
      row.first_step_ms = double(s.window) * kMs;
    } else {
      ++later;
      sum.add(s);
      cost.add(s.cost);
      for (const LayerIdle& layer : s.layers) layer0 += layer.layer == 0 ? layer.idle : 0;
    }
  }
  const Nanos step = sum.busy + sum.idle;
  TANDEM_CHECK(later > 0 && step > 0, "{} steps after the first took {} ns", later, step);
  const auto mean_ms = [&](Nanos ns) { return double(ns) * kMs / double(later); };
  row.step_ms = mean_ms(step);
  row.busy_ms = mean_ms(sum.busy);
  row.idle_ms = mean_ms(sum.idle);
  std::ranges::transform(sum.by_cause, row.idle_ms_by_cause.begin(), mean_ms);
  row.layer0_idle_ms = mean_ms(layer0);
  const double rows = double(later) * double(sequences);
  row.touched_bytes = double(cost.touched) / rows;
  row.looked_up_bytes = double(cost.looked_up) / rows;
  row.missed_bytes = double(cost.missed) / rows;
  row.late_bytes = double(cost.late) / rows;
  row.cancelled_bytes = double(cost.cancelled) / rows;
  row.bringing_ms = mean_ms(cost.bringing);
  row.waited_ms = mean_ms(cost.waited);
}

double device_kv_room(const Model& shape, const HardwareProfile& hardware, const Precision& precision) {
  return peer_kv_room(hardware) - double(precision.weights(shape.weights.bytes()));
}

double peer_kv_room(const HardwareProfile& hardware) {
  return hardware.device.memory_gb * 1e9 * (1 - kReserved);
}

double host_kv_room(const HardwareProfile& hardware) {
  if (hardware.host.memory_gb == 0) return std::numeric_limits<double>::infinity();
  return hardware.host.memory_gb * 1e9 * (1 - kReserved);
}

std::uint32_t sequences_that_fit(const Model& shape, const HardwareProfile& hardware, const PredictedRow& one,
                                 std::uint32_t most, const Precision& precision) {
  double fit = most;
  for (const Room& room : rooms_of(shape, hardware, precision))
    if (one.*room.taken > 0) fit = std::min(fit, room.bytes / double(one.*room.taken));
  return static_cast<std::uint32_t>(std::max(fit, 0.0));
}

std::string what_of_weights_is_too_large(const Model& shape, const HardwareProfile& hardware,
                                         const Precision& precision) {
  if (device_kv_room(shape, hardware, precision) > 0) return "";
  return fmt::format(
      "the weights take {:.1f} GB, and '{}' has {:.4g} GB of device memory, of which 5 % are kept for activations",
      double(precision.weights(shape.weights.bytes())) * 1e-9, hardware.name, hardware.device.memory_gb);
}

void check_target(const Model& shape, const HardwareProfile& hardware, const PredictionOptions& options) {
  if (const std::string problem = what_of_weights_is_too_large(shape, hardware, options.precision); !problem.empty())
    throw_input_error("{}: {}.", shape.name, problem);
  if (options.context < 2) throw_input_error("--context is {}: give at least 2 tokens.", options.context);
  if (std::size_t{options.context} + options.steps > shape.config.max_positions)
    throw_input_error("--context {} and {} decode steps exceed the {} positions of {} (max_position_embeddings).",
                      options.context, options.steps, shape.config.max_positions, shape.name);
}

Prediction predict(const Model& shape, const HardwareProfile& hardware, const Workload& workload,
                   const PredictionOptions& options) {
  check_target(shape, hardware, options);
  for (const std::string& method : options.methods)
    if (options.checked) check_schedule(shape, hardware, workload, options, method);
  Prediction target{shape.name,     hardware.name,
                    hardware.title, shape.config.layers,
                    options.batch,  options.context,
                    options.steps,  options.prefill_chunk,
                    workload,       {}};
  ThreadPool pool(options.threads);
  const HardwareProfile roomy = roomy_machine(hardware, options.precision);
  const auto device = make_sim_device(roomy, {.shapes_only = true, .checked = options.all_checked});
  std::vector<std::unique_ptr<Prefix>> prefixes;
  std::unique_ptr<Engine> engine;
  try {
    engine = std::make_unique<Engine>(shape, *device, pool, engine_options(shape, hardware, workload, options));
    prefixes.reserve(options.batch);
    for (std::uint32_t i = 0; i < options.batch; ++i) {
      const std::vector<std::int32_t> prompt(options.contexts.empty() ? options.context : options.contexts.at(i), 0);
      const auto alike = std::ranges::find_if(prefixes, [&](const auto& p) { return p->prompt == prompt; });
      const Prefix* const like = alike == prefixes.end() ? nullptr : alike->get();
      prefixes.push_back(like == nullptr && options.prefill ? engine->prefill(prompt) : engine->lay_out(prompt));
      if (like == nullptr) continue;
      prefixes.back()->prefill_ns = like->prefill_ns;
      prefixes.back()->sums_ns = like->sums_ns;
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
  const bool ranges = options.ranges && !hardware.ranges.empty(), records = ranges || options.record;
  for (std::size_t m = 0; m < options.methods.size(); ++m) {
    PredictedRow row;
    row.method = options.methods[m];
    try {
      const auto method = make_method(row.method);
      if (records) record_calls(*device, options.record ? options.steps : std::min(options.steps, kRangeSteps));
      DecodeResult result = engine->decode(*method, requests, {.forced = forced});
      SimCalls calls = records ? take_calls(*device) : SimCalls{};
      row = row_of(shape, hardware, options, row.method, result.sequences, result.idle.steps);
      if (row.refused.empty()) row.prefill_ms = double(prefill_ns_of(requests, method->needs(engine->shape()))) * kMs;
      if (options.look) options.look(result);
      if (ranges && row.refused.empty()) add_range(hardware, options.precision, calls, row);
      if (options.record) options.record({std::move(result.sequences), std::move(calls)});
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
  return target;
}

double replayed_step(const SimCalls& calls, const HardwareProfile& profile, std::uint32_t steps) {
  Nanos sum = 0;
  std::uint32_t later = 0;
  for (const Trace& trace : replay(calls, profile, steps)) {
    for (const StepMark& step : trace.steps) {
      if (step.step == Device::kSetupStep || step.step == 0) continue;
      sum += step.end - step.begin;
      ++later;
    }
  }
  TANDEM_CHECK(later > 0 && sum > 0, "{} recorded steps after the first", later);
  return double(sum) / later;
}

PredictedRow replayed_row(const Model& shape, const HardwareProfile& hardware, const Recording& recording,
                          const PredictionOptions& options) {
  TANDEM_CHECK(!recording.calls.times_decide, "another machine would deal the tasks of {} anew", options.methods.at(0));
  std::vector<StepIdle> times;
  for (const Trace& trace : replay(recording.calls, roomy_machine(hardware, options.precision)))
    std::ranges::move(account_idle(trace).steps, std::back_inserter(times));
  return row_of(shape, hardware, options, options.methods.at(0), recording.sequences, times);
}

void add_range(const HardwareProfile& hardware, const Precision& precision, const SimCalls& calls, PredictedRow& row) {
  if (hardware.ranges.empty() || calls.times_decide) return;
  const TimeRange range = range_of(roomy_machine(hardware, precision),
                                   [&](const HardwareProfile& h) { return replayed_step(calls, h, kRangeSteps); });
  row.step_low_ms = row.step_ms * range.low;
  row.step_high_ms = row.step_ms * range.high;
  row.widest_range = range.widest;
}

TimeRange range_of(const HardwareProfile& profile, const std::function<double(const HardwareProfile&)>& time) {
  constexpr double kNothing = 1e-3;  // a change that is none
  struct Ends {
    std::string field;
    double slower, faster;
    bool has_faster, has_slower;  // not where both ends make a time longer, or both shorter
  };
  const double nominal = time(profile);
  double up = 0, down = 0, most = 0;  // squares of logs; a log
  std::vector<Ends> moving;           // fields that change the time at one end at least
  TimeRange range;
  for (const auto& [field, ends] : profile.ranges) {
    const double low = std::log(time(with_field(profile, field, ends.low)) / nominal),
                 high = std::log(time(with_field(profile, field, ends.high)) / nominal);
    const double longer = std::max({low, high, 0.0}), shorter = std::max({-low, -high, 0.0});
    up += longer * longer;
    down += shorter * shorter;
    if (std::max(longer, shorter) > kNothing)
      moving.push_back({field, low > high ? ends.low : ends.high, low > high ? ends.high : ends.low,
                        std::min(low, high) <= kNothing, std::max(low, high) >= -kNothing});
    if (std::max(longer, shorter) > most) {
      most = std::max(longer, shorter);
      range.widest = field;
    }
  }
  const auto together = [&](double Ends::*end, bool Ends::*has) {
    HardwareProfile moved = profile;
    for (const Ends& ends : moving)
      if (ends.*has) moved = with_field(std::move(moved), ends.field, ends.*end, 1 / std::sqrt(double(moving.size())));
    return time(moved) / nominal;
  };
  range.low = std::min(std::exp(-std::sqrt(down)), together(&Ends::faster, &Ends::has_faster));
  range.high = std::max(std::exp(std::sqrt(up)), together(&Ends::slower, &Ends::has_slower));
  return range;
}

void check_schedule(const Model& shape, const HardwareProfile& hardware, const Workload& workload,
                    const PredictionOptions& options, const std::string& method) {
  // Blocks of every size that methods offer fill up within these steps.
  constexpr std::uint32_t kSteps = 20, kLongestBlock = 128, kBeforeItFills = 3, kKvHeads = 2;
  PredictionOptions small{.methods = {method},
                          .batch = std::min(options.batch, 2u),
                          .context = options.context,
                          .contexts = {options.context},
                          .steps = std::min(options.steps, kSteps),
                          .prefill_chunk = options.prefill_chunk,
                          .threads = 1,
                          .checked = false,
                          .all_checked = true,
                          .interrupted = options.interrupted};
  const std::uint32_t whole = options.context / kLongestBlock * kLongestBlock;
  if (small.batch == 2) small.contexts.push_back(whole > 0 ? whole - kBeforeItFills : options.context - 1);
  Model few_heads;  // all layers, which options count; few heads, which they do not
  few_heads.name = shape.name;
  few_heads.config = shape.config;
  few_heads.config.kv_heads = std::min(shape.config.kv_heads, kKvHeads);
  few_heads.config.q_heads = shape.config.q_heads / shape.config.kv_heads * few_heads.config.kv_heads;
  few_heads.weights = shape_weights(few_heads.config, DType::bf16);
  const bool refused = !predict(few_heads, hardware, workload, small).rows.at(0).refused.empty();
  if (refused) predict(shape, hardware, workload, small);  // a predictor's file is of a model with all heads
}

}  // namespace tandem::eval
