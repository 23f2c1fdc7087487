#include "eval/reproduce/asyncspade.h"

#include <cmath>
#include <map>
#include <mutex>

#include "engine/common/error.h"
#include "engine/kernels/thread_pool.h"

namespace tandem::eval {
namespace {

// Where the cache rank is slower than the step its delay grows over the first steps: only the last ones count.
constexpr std::uint32_t kSteps = 48, kCounted = 8;
// Without a cache rank each step is like the one before it.
constexpr std::uint32_t kStepsAlike = 12;
constexpr double kMs = 1e-6;  // of a nanosecond

/// Selections of asyncspade and tova do not depend on what is chosen, quest's on how many pages: any workload serves.
Workload plain_workload(const Model& shape) {
  Workload workload;
  workload.name = "all heads alike";
  workload.source = "no time here depends on it";
  workload.layers.assign(shape.config.layers, std::vector<HeadWorkload>(shape.config.q_heads));
  return workload;
}

PredictionOptions target_options(const ReproduceOptions& options, std::string method, std::uint32_t batch,
                                 std::uint32_t context) {
  return {.methods = {std::move(method)},
          .batch = batch,
          .context = context,
          .steps = kSteps,
          .threads = 1,
          .drawn_sequences = 0,
          .interrupted = options.interrupted};
}

SpadeTimes times_of(const DecodeResult& result, const SpadePack& pack, std::uint32_t layers) {
  const double packs = double(layers) / pack.layers;
  Nanos busy = 0, management = 0, transfer = 0;
  for (const LayerIdle& layer : result.idle.decode.layers) busy += layer.layer < layers ? layer.busy : 0;
  std::vector<Nanos> choices;
  double messages = 0;
  for (const TraceRecord& r : result.trace.records) {
    if (r.start < result.trace.steps.front().end) continue;  // setup, one sequence at a time
    const std::string_view name = r.name;
    if (name == "select ahead") choices.push_back(r.end - r.start);
    if (name != "selection from peer") continue;
    transfer += r.end - r.start;
    ++messages;
  }
  // The last step's queries are sent, and nothing is chosen any more.
  for (std::size_t i = 0; i < choices.size() && double(i) < messages; ++i) management += choices[i];
  return {double(busy) * kMs / kSteps / packs, double(management) * kMs / messages, double(transfer) * kMs / messages};
}

/// Adds the means over the last steps.
void add_last_steps(const DecodeResult& result, double& step_ms, double& idle_ms) {
  const std::uint32_t end = result.idle.steps.back().step + 1;
  for (const StepIdle& step : result.idle.steps) {
    if (step.step == Device::kSetupStep || step.step < end - kCounted) continue;
    step_ms += double(step.window) * kMs / kCounted;
    idle_ms += double(step.idle) * kMs / kCounted;
  }
}

/// Bytes over bandwidth, as the profile's datasheet has it.
SpadeTimes roofline_of(const SpadeBytes& bytes, const HardwareProfile& hardware) {
  const double per_ms = hardware.device.hbm_gbps * 1e6;
  return {bytes.inference() / per_ms, (bytes.keys + bytes.choice) / per_ms,
          bytes.selected / (hardware.peer.gbps * 1e6)};
}

/// The same of a whole step of Figure 10's methods: weights, the vocabulary's matrix, and the KV that is read.
void add_roofline(SpadeBar& bar, const SpadePack& whole, const ModelConfig& model, const HardwareProfile& hardware) {
  const double per_ms = hardware.device.hbm_gbps * 1e6, page = 16;
  const SpadeBytes bytes = spade_bytes(whole, model);
  double read = bytes.weights + 2.0 * model.hidden * model.vocab;
  if (bar.method.starts_with("full"))
    read += 2 * bytes.keys;
  else if (bar.method.starts_with("quest"))
    read += bytes.selected + 2 * bytes.keys / page;
  else if (bar.method.starts_with("tova"))
    read += bytes.selected + bytes.keys;
  else
    read += bytes.selected;
  bar.roofline_ms = read / per_ms;
  if (!bar.method.starts_with("asyncspade")) return;
  bar.rank_ms = (bytes.keys + bytes.choice) / per_ms;
  bar.peer_room_gb = peer_kv_room(hardware) * 1e-9;
}

/// Calls run(i) for each of n, options.threads at a time, and says which of them is done, of `total` behind `before`.
void run_all(std::size_t n, const ReproduceOptions& options, const std::function<std::string(std::size_t)>& run,
             std::uint64_t before, std::uint64_t total) {
  ThreadPool pool(options.threads);
  std::mutex mutex;
  pool.parallel_for(n, [&](std::size_t i) {
    const std::string what = run(i);
    const std::lock_guard lock(mutex);
    if (options.progress) options.progress(++before, total, what);
  });
}

}  // namespace

const std::vector<SpadePack>& spade_table2() {
  static const std::vector<SpadePack> rows = {{"qwen3-8b", 8, 32768, 2048, "a100", 6, 7.13, 6.42, 107.71},
                                              {"qwen3-8b", 8, 32768, 2048, "a100", 12, 14.26, 12.75, 107.71},
                                              {"qwen3-8b", 8, 32768, 2048, "h100", 6, 5.47, 3.92, 140.40},
                                              {"qwen3-8b", 8, 32768, 2048, "h100", 12, 10.94, 7.85, 140.40},
                                              {"qwen3-8b", 16, 16384, 1024, "a100", 6, 7.30, 7.02, 105.20},
                                              {"qwen3-8b", 16, 16384, 1024, "a100", 12, 14.60, 14.43, 105.20},
                                              {"qwen3-8b", 16, 16384, 1024, "h100", 6, 5.91, 5.18, 129.94},
                                              {"qwen3-8b", 16, 16384, 1024, "h100", 12, 11.82, 11.14, 129.94},
                                              {"qwen3-32b", 8, 32768, 2048, "a100", 4, 6.30, 5.16, 159.49},
                                              {"qwen3-32b", 8, 32768, 2048, "a100", 8, 12.60, 8.32, 159.49},
                                              {"qwen3-32b", 8, 32768, 2048, "h100", 4, 4.39, 3.74, 228.88},
                                              {"qwen3-32b", 8, 32768, 2048, "h100", 8, 8.78, 7.48, 228.88},
                                              {"qwen3-32b", 16, 16384, 1024, "a100", 4, 7.77, 7.02, 129.32},
                                              {"qwen3-32b", 16, 16384, 1024, "a100", 8, 15.54, 14.01, 129.32},
                                              {"qwen3-32b", 16, 16384, 1024, "h100", 4, 4.37, 3.72, 229.93},
                                              {"qwen3-32b", 16, 16384, 1024, "h100", 8, 8.74, 7.48, 229.93}};
  return rows;
}

SpadeBytes spade_bytes(const SpadePack& pack, const ModelConfig& c, std::uint32_t window) {
  const double h = c.hidden, q = double(c.q_heads) * c.head_dim, kv = double(c.kv_heads) * c.head_dim;
  const double rows = double(pack.layers) * pack.batch, kBf16 = 2, kF32 = 4;
  SpadeBytes bytes;
  bytes.weights = pack.layers * kBf16 * (2 * h * q + 2 * h * kv + 3 * h * c.intermediate);
  bytes.selected = rows * 2 * kBf16 * kv * pack.selected;
  bytes.keys = rows * kBf16 * kv * pack.context;
  bytes.choice = 2 * bytes.selected;
  bytes.scores = rows * 2 * kF32 * c.kv_heads * pack.context;
  bytes.queries = rows * kF32 * q * (window + 3);  // the window, and the newest query in and out
  return bytes;
}

bool sets_framework(const SpadePack& pack) {
  return pack.model == "qwen3-8b" && pack.batch == 8 && pack.layers == 6;
}

SpadeRun simulate_spade_pack(const SpadePack& pack, double framework_ms, const ReproduceOptions& options) {
  const Model shape = load_shape(pack.model);
  HardwareProfile hardware = load_profile("asyncspade-" + pack.gpu);
  hardware.device.layer_ns += static_cast<Nanos>(std::llround(framework_ms / kMs));
  SpadeRun run;
  PredictionOptions target =
      target_options(options, fmt::format("asyncspade:place=peer,budget={},pack={}", pack.selected, pack.layers),
                     pack.batch, pack.context);
  target.look = [&](const DecodeResult& result) {
    run.times = times_of(result, pack, shape.config.layers);
    add_last_steps(result, run.step_ms, run.idle_ms);
  };
  const PredictedRow found = predict(shape, hardware, plain_workload(shape), target).rows.at(0);
  if (!found.refused.empty()) throw_run_error("{} on {}: {}", pack.model, pack.gpu, found.refused);
  return run;
}

std::vector<SpadeRow> reproduce_spade_table2(const ReproduceOptions& options) {
  std::vector<SpadeRow> rows;
  for (const SpadePack& pack : spade_table2()) {
    const HardwareProfile hardware = load_profile("asyncspade-" + pack.gpu);
    const SpadeBytes bytes = spade_bytes(pack, load_shape(pack.model).config);
    rows.push_back({.pack = pack,
                    .roofline = roofline_of(bytes, hardware),
                    .fitted = sets_framework(pack),
                    .bytes = bytes,
                    .hbm_gbps = hardware.device.hbm_gbps});
  }
  const auto simulate = [&](std::size_t i) {
    rows[i].ours = simulate_spade_pack(rows[i].pack, 0, options);
    return fmt::format("{} on {}", rows[i].pack.model, rows[i].pack.gpu);
  };
  run_all(rows.size(), options, simulate, 0, 2 * rows.size());
  std::map<std::string, double> framework_ms;  // by GPU
  for (const SpadeRow& r : rows)
    if (r.fitted) framework_ms[r.pack.gpu] = (r.pack.inference_ms - r.ours.times.inference_ms) / r.pack.layers;
  const auto simulate_framework = [&](std::size_t i) {
    SpadeRow& row = rows[i];
    row.framework_ms = framework_ms.at(row.pack.gpu);
    row.with_framework = simulate_spade_pack(row.pack, row.framework_ms, options);
    return fmt::format("{} on {} with the framework", row.pack.model, row.pack.gpu);
  };
  run_all(rows.size(), options, simulate_framework, rows.size(), 2 * rows.size());
  return rows;
}

SpadeBar simulate_spade_bar(SpadeBar bar, const ReproduceOptions& options) {
  constexpr std::uint32_t kBatch = 8, kContext = 32768, kSelected = 2048;
  const Model shape = load_shape(bar.model);
  const HardwareProfile hardware = load_profile("asyncspade-" + bar.gpu);
  add_roofline(bar, {bar.model, kBatch, kContext, kSelected, bar.gpu, shape.config.layers}, shape.config, hardware);
  bar.room_gb = device_kv_room(shape, hardware) * 1e-9;
  PredictionOptions target = target_options(options, bar.method, kBatch, kContext);
  if (bar.rank_ms == 0) target.steps = kStepsAlike;
  target.look = [&bar](const DecodeResult& result) {
    add_last_steps(result, bar.tpot_ms, bar.idle_ms);
    for (const DecodedSequence& s : result.sequences) {
      bar.kv_gb += double(s.peak_kv_bytes[static_cast<int>(Tier::device)]) * 1e-9;
      bar.peer_gb += double(s.peak_peer_bytes) * 1e-9;
    }
  };
  const PredictedRow found = predict(shape, hardware, plain_workload(shape), target).rows.at(0);
  if (bar.tpot_ms == 0) throw_run_error("{} of {} on {}: {}", bar.method, bar.model, bar.gpu, found.refused);
  return bar;
}

std::vector<SpadeBar> reproduce_spade_fig10(const ReproduceOptions& options) {
  std::vector<SpadeBar> bars;
  for (const char* gpu : {"a100", "h100"})
    for (const char* model : {"qwen3-8b", "qwen3-32b"})
      for (const char* method :
           {"full", "quest:budget=2048,page=16", "tova:budget=2048", "asyncspade:budget=2048,place=peer"})
        bars.push_back({model, gpu, method});
  const auto simulate = [&](std::size_t i) {
    bars[i] = simulate_spade_bar(bars[i], options);
    return fmt::format("{} of {} on {}", bars[i].method, bars[i].model, bars[i].gpu);
  };
  run_all(bars.size(), options, simulate, 0, bars.size());
  return bars;
}

}  // namespace tandem::eval
