#include "eval/here/here.h"

#include <algorithm>
#include <cmath>
#include <fmt/core.h>
#include <utility>

#include "engine/common/cpus.h"
#include "engine/common/error.h"
#include "engine/device/emu_device.h"
#include "engine/device/sim_device.h"
#include "engine/kernels/isa.h"
#include "eval/kernels/cpu_limits.h"
#include "eval/report/statistics.h"
#include "eval/report/table.h"
#include "eval/run/prefix_cache.h"
#include "methods/registry.h"

namespace tandem::eval {
namespace {

constexpr std::uint64_t kSeed = 1;

/// Relative to what was measured; of a part that takes no time there is no error.
double relative(double predicted, double measured) {
  return measured > 0 ? predicted / measured - 1 : 0;
}

HereValidation::Errors of(std::vector<double> errors) {
  for (double& error : errors) error = std::abs(error);
  if (errors.empty()) return {};
  return {percentile(errors, 0.5), *std::ranges::max_element(errors)};
}

double products_share(const HereRow& row) {
  double products = 0;
  for (const OperationTime& o : row.measured_operations)
    if (o.name == "qkv" || o.name == "output and mlp" || o.name == "logits and arg max") products += o.ms;
  return products / row.measured_ms;
}

/// KV room for a prompt on both tiers: methods keep forks of it on either.
KvBudget room_for(const Model& model, DType precision, std::uint32_t context) {
  const ModelConfig& c = model.config;
  const std::size_t token = std::size_t{2} * c.layers * c.kv_heads * c.head_dim * size_of(precision);
  KvBudget budget;
  budget.device_bytes = token * (3 * std::size_t{context} + 8192);
  budget.host_bytes = token * (2 * std::size_t{context} + 8192);
  return budget;
}

class Runner {
 public:
  Runner(const HereOptions& options, HereValidation& validation)
      : options_(options), result_(validation), model_(here_model()) {}

  void run() {
    const bool measures = !options_.profile.has_value();
    total_ = measures ? kMachineUnits * (options_.contexts.size() + 1) : 0;
    for (const std::uint32_t context : options_.contexts)
      total_ += prompt_units(context) + options_.methods.size() * (2 + options_.rounds + 1);
    const ModelConfig& c = model_.config;
    result_.model = fmt::format(
        "{} layers of {} query and {} KV heads of {}, {} MB of random bf16 weights, KV in bf16, one sequence", c.layers,
        c.q_heads, c.kv_heads, c.head_dim, model_.weights.bytes() / 1'000'000);
    result_.sides = two_cores();
    result_.cpu = fmt::format("{}, {}", cpu_model_name(), to_string(active_isa()));
    std::vector<MachineFigures> passes;
    std::vector<Latency> measured;
    if (measures) passes.push_back(measure_machine());
    for (const std::uint32_t context : options_.contexts) {
      measured.push_back(measure(context));
      if (measures) passes.push_back(measure_machine());
    }
    if (measures) {
      result_.figures = medians_of(passes);
      result_.profile = profile_of(result_.figures, result_.cpu, result_.warnings);
    } else {
      result_.profile = *options_.profile;
    }
    for (const Latency& own : measured)
      for (HereRow& row : here_rows(own, predict(own.context))) result_.rows.push_back(std::move(row));
  }

 private:
  // Units of progress: about a quarter of a second each. A prompt's chunks take longer the more tokens are before them.
  static constexpr std::uint64_t kMachineUnits = 60;
  static std::uint64_t chunk_units(std::uint64_t chunks) { return chunks * (chunks + 1) / 4; }
  static std::uint64_t prompt_units(std::uint32_t context) {
    return chunk_units(context / EngineOptions().prefill_chunk) + 1;
  }

  void tell(const std::string& what) {
    if (options_.progress) options_.progress(done_, total_, what);
  }

  LatencyOptions latency(std::uint32_t context) const {
    LatencyOptions options;
    options.methods = options_.methods;
    options.context = context;
    options.steps = options_.steps;
    options.engine.precision = DType::bf16;
    options.engine.kv = room_for(model_, options.engine.precision, context);
    options.engine.max_batch = 1;
    options.engine.interrupted = options_.interrupted;
    return options;
  }

  MachineFigures measure_machine() {
    const std::uint64_t before = done_;
    const auto told = [&](const std::string& what) {
      done_ = std::min(done_ + 2, before + kMachineUnits);
      tell(what);
    };
    MachineFigures figures = measure_figures(model_, result_.sides, {told, options_.interrupted});
    done_ = before + kMachineUnits;
    return figures;
  }

  void prefill(EngineOptions engine, std::span<const std::int32_t> prompt, const PrefixCache& cache) {
    const OnCpus both({result_.sides.host, result_.sides.device});
    ThreadPool pool(2);
    const std::unique_ptr<Device> device = make_emu_device({.host_worker_threads = 2});
    const std::uint64_t before = done_;
    const auto tokens = static_cast<std::uint32_t>(prompt.size() - 1);
    engine.interrupted = [&, asked = std::uint64_t{0}]() mutable {  // once a layer
      done_ = before + std::min(chunk_units(asked++ / model_.config.layers), prompt_units(tokens));
      tell(fmt::format("prefill of {}", length_text(tokens)));
      return options_.interrupted && options_.interrupted();
    };
    Engine fast(model_, *device, pool, engine);
    fast.release(*cache.prefill(fast, prompt));
    done_ = before + prompt_units(tokens);
  }

  Latency measure(std::uint32_t context) {
    const OnCpus host({result_.sides.host});
    const std::unique_ptr<Device> device = device_on(result_.sides);
    LatencyOptions options = latency(context);
    options.rounds = options_.rounds;
    const CpuContention neighbours;
    Latency measured = run_on_device(options, *device, "measuring");
    result_.others_cpus = std::max(result_.others_cpus, neighbours.cpus());
    return measured;
  }

  Latency predict(std::uint32_t context) {
    const std::unique_ptr<Device> device = make_sim_device(result_.profile, {.checked = false});
    LatencyOptions options = latency(context);
    options.rounds = 1;
    options.engine.policy_ns = result_.profile.control.policy_ns;
    return run_on_device(options, *device, "predicting");
  }

  Latency run_on_device(LatencyOptions& options, Device& device, const char* what) {
    EngineOptions engine = options.engine;
    keep_what_methods_need(engine, options.methods, model_);
    const PrefixCache cache({options_.prompts, fmt::format("seed {}, context {}", kSeed, options.context)}, engine);
    options.prefill = [&](Engine& to, std::span<const std::int32_t> prompt) {
      // Both cores prefill: neither device could, and both decode behind the same bytes.
      if (!device.simulated()) prefill(engine, prompt, cache);
      return cache.prefill(to, prompt);
    };
    options.progress = [&](std::uint64_t done, std::uint64_t) {
      if (done > 1) ++done_;  // the prompt counts by itself
      tell(fmt::format("{} at {}", what, length_text(options.context)));
    };
    ThreadPool pool(1);
    return measure_decode(options, model_, device, pool);
  }

  const HereOptions& options_;
  HereValidation& result_;
  Model model_;
  std::uint64_t done_ = 0, total_ = 0;
};

}  // namespace

std::vector<std::string> here_methods() {
  return {kHereBase,   "full", "full-host", "full-offload",   "quest",  "hybrid-fixed",
          "gpu-fetch", "h2o",  "hgca",      "scoutattention", "fluxion"};
}

Model here_model() {
  Model model;
  model.name = "random";
  model.synthetic = true;
  ModelConfig& c = model.config;
  c.architecture = "llama";
  c.layers = 4;
  c.hidden = 512;
  c.intermediate = 1024;
  c.q_heads = 32;
  c.kv_heads = 8;
  c.head_dim = 128;
  c.vocab = 2048;
  c.max_positions = 131072;
  c.rms_eps = 1e-5f;
  c.rope.theta = 5e5;
  model.weights = random_weights(c, DType::bf16, kSeed);
  return model;
}

bool HereRow::is_base() const {
  return method == kHereBase || method.starts_with(std::string(kHereBase) + ":");
}
double HereRow::error() const {
  return relative(predicted_ms, measured_ms);
}
double HereRow::beyond_error() const {
  return relative(predicted_beyond_ms, measured_beyond_ms);
}

std::vector<WrongOrder> HereValidation::wrong_orders() const {
  std::vector<WrongOrder> wrong;
  for (const HereRow& a : rows) {
    for (const HereRow& b : rows) {
      if (a.context != b.context || b.measured_ms <= a.measured_ms * (1 + kOrderGap)) continue;
      if (b.predicted_ms <= a.predicted_ms) wrong.push_back({a.context, a.method, b.method});
    }
  }
  return wrong;
}

HereValidation::Errors HereValidation::errors() const {
  std::vector<double> all(rows.size());
  std::ranges::transform(rows, all.begin(), [](const HereRow& row) { return row.error(); });
  return of(all);
}

HereValidation::Errors HereValidation::beyond_errors() const {
  std::vector<double> all;
  for (const HereRow& row : rows)
    if (!row.is_base()) all.push_back(row.beyond_error());
  return of(all);
}

std::vector<HereRow> here_rows(const Latency& measured, const Latency& predicted) {
  TANDEM_CHECK(measured.rows.size() == predicted.rows.size() && !measured.rows.empty(), "{} methods beside {}",
               measured.rows.size(), predicted.rows.size());
  const LatencyRow &base = measured.rows.front(), &base_predicted = predicted.rows.front();
  std::vector<HereRow> rows;
  for (std::size_t i = 0; i < measured.rows.size(); ++i) {
    const LatencyRow &m = measured.rows[i], &p = predicted.rows[i];
    HereRow& row = rows.emplace_back();
    row.method = m.label;
    row.context = measured.context;
    row.round_ms = m.round_ms;
    row.measured_ms = m.median_ms;
    row.predicted_ms = p.median_ms;
    for (std::size_t round = 0; round < m.round_ms.size(); ++round)
      row.beyond_ms.push_back(m.round_ms[round] - base.round_ms[round]);
    row.measured_beyond_ms = percentile(row.beyond_ms, 0.5);
    row.predicted_beyond_ms = p.median_ms - base_predicted.median_ms;
    row.measured_operations = m.operations;
    row.predicted_operations = p.operations;
  }
  return rows;
}

HereValidation validate_here(const HereOptions& asked) {
  HereOptions options = asked;
  const auto is_base = [](const std::string& spec) { return parse_method_spec(spec).name == kHereBase; };
  const auto base = std::ranges::find_if(options.methods, is_base);
  if (base == options.methods.end()) {
    options.methods.insert(options.methods.begin(), kHereBase);
  } else {
    std::rotate(options.methods.begin(), base, base + 1);
  }
  HereValidation validation;
  validation.rounds = options.rounds;
  validation.steps = options.steps;
  Runner(options, validation).run();
  std::vector<double> shares(validation.rows.size());
  std::ranges::transform(validation.rows, shares.begin(), products_share);
  validation.weights_share = percentile(shares, 0.5);
  return validation;
}

}  // namespace tandem::eval
