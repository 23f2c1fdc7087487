#include "eval/here/here.h"

#include <algorithm>
#include <cmath>
#include <fmt/core.h>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "engine/common/cpus.h"
#include "engine/common/error.h"
#include "engine/common/json.h"
#include "engine/device/emu_device.h"
#include "engine/device/sim_device.h"
#include "engine/kernels/isa.h"
#include "eval/kernels/cpu_limits.h"
#include "eval/report/statistics.h"
#include "eval/report/table.h"
#include "methods/registry.h"

namespace tandem::eval {
namespace {

constexpr std::uint64_t kSeed = 1;

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

  MachineFigures measure_machine() {
    const std::uint64_t before = done_;
    const auto told = [&](const std::string& what) {
      done_ = std::min(done_ + 2, before + kMachineUnits);
      tell(what);
    };
    MachineFigures figures = measure_figures(model_, result_.sides, told, options_.interrupted);
    done_ = before + kMachineUnits;
    return figures;
  }

  void prefill(EngineOptions engine, std::span<const std::int32_t> prompt) {
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
    fast.release(*fast.prefill(prompt));
    done_ = before + prompt_units(tokens);
  }

  Latency measure(std::uint32_t context) {
    const OnCpus host({result_.sides.host});
    const CpuContention neighbours;
    Latency measured = decode(*device_on(result_.sides), context, options_.rounds, "measuring");
    result_.others_cpus = std::max(result_.others_cpus, neighbours.cpus());
    return measured;
  }

  Latency predict(std::uint32_t context) {
    return decode(*make_sim_device(result_.profile, {.checked = false}), context, /*rounds=*/1, "predicting");
  }

  Latency decode(Device& device, std::uint32_t context, std::uint32_t rounds, const char* what) {
    LatencyOptions options;
    options.methods = options_.methods;
    options.context = context;
    options.steps = options_.steps;
    options.rounds = rounds;
    EngineOptions& engine = options.engine;
    engine.precision = DType::bf16;
    // KV room for a prompt on both tiers: methods keep forks of it on either.
    const ModelConfig& c = model_.config;
    const std::size_t token = std::size_t{2} * c.layers * c.kv_heads * c.head_dim * size_of(engine.precision);
    engine.kv.device_bytes = token * (3 * std::size_t{context} + 8192);
    engine.kv.host_bytes = token * (2 * std::size_t{context} + 8192);
    engine.max_batch = 1;
    engine.interrupted = options_.interrupted;
    engine.prefix_cache.bytes = options_.prompts.empty() ? 0 : std::numeric_limits<std::size_t>::max();
    engine.prefix_cache.folder = options_.prompts;
    engine.prefix_cache.identity = fmt::format("seed {}, context {}", kSeed, context);
    if (device.simulated()) engine.policy_ns = result_.profile.control.policy_ns;
    EngineOptions prefilling = engine;
    keep_what_methods_need(prefilling, options.methods, model_);
    options.prefill = [&](Engine& to, std::span<const std::int32_t> prompt) {
      // Both cores prefill: neither device could, and both decode behind the same bytes.
      if (!device.simulated()) prefill(prefilling, prompt);
      return to.prefill(prompt);
    };
    options.progress = [&](std::uint64_t done, std::uint64_t) {
      if (done > 1) ++done_;  // the prompt counts by itself
      tell(fmt::format("{} at {}", what, length_text(context)));
    };
    ThreadPool pool(1);
    return measure_decode(options, model_, device, pool);
  }

  const HereOptions& options_;
  HereValidation& result_;
  Model model_;
  std::uint64_t done_ = 0, total_ = 0;
};

std::string ms(double value) {
  return fmt::format("{:.2f}", value);
}

std::string rounds_text(const std::vector<double>& values) {
  const auto [low, high] = std::ranges::minmax_element(values);
  return fmt::format("{:.2f}-{:.2f}", *low, *high);
}

Table steps_table(const HereValidation& v, HereTime HereRow::*part) {
  Table table;
  table.leading = 2;
  table.head = {"method", "context", "measured", "its rounds", "predicted", "error\u00a0%"};
  for (const HereRow& row : v.rows) {
    if (part == &HereRow::beyond && row.is_base()) continue;
    const HereTime& time = row.*part;
    table.rows.push_back({row.method, length_text(row.context), ms(time.measured), rounds_text(time.rounds),
                          ms(time.predicted), signed_percent_text(time.error())});
  }
  return table;
}

std::string summary(const std::string& what, const HereValidation::Errors& errors) {
  return fmt::format("{}: median |error| {:.1f} %, worst {:.1f} %. ", what, 100 * errors.median, 100 * errors.worst);
}

std::string order_text(const HereValidation& v) {
  const std::vector<WrongOrder> wrong = v.wrong_orders();
  if (wrong.empty())
    return fmt::format("The order is right wherever measured steps differ by more than {:.0f} %.", 100 * kOrderGap);
  std::string text = "Predicted in the wrong order:";
  for (const WrongOrder& w : wrong)
    text += fmt::format(" {} before {} at {};", w.slower, w.faster, length_text(w.context));
  text.back() = '.';
  return text;
}

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

/// 0 for a part that takes no time.
double HereTime::error() const {
  return measured > 0 ? predicted / measured - 1 : 0;
}

std::vector<WrongOrder> HereValidation::wrong_orders() const {
  std::vector<WrongOrder> wrong;
  for (const HereRow& a : rows) {
    for (const HereRow& b : rows) {
      if (a.context != b.context || b.step.measured <= a.step.measured * (1 + kOrderGap)) continue;
      if (b.step.predicted <= a.step.predicted) wrong.push_back({a.context, a.method, b.method});
    }
  }
  return wrong;
}

HereValidation::Errors HereValidation::errors(HereTime HereRow::*part) const {
  std::vector<double> errors;
  for (const HereRow& row : rows)
    if (part == &HereRow::step || !row.is_base()) errors.push_back(std::abs((row.*part).error()));
  if (errors.empty()) return {};
  return {percentile(errors, 0.5), std::ranges::max(errors)};
}

std::vector<HereRow> here_rows(const Latency& measured, const Latency& predicted) {
  TANDEM_CHECK(measured.rows.size() == predicted.rows.size() && !measured.rows.empty(), "{} methods beside {}",
               measured.rows.size(), predicted.rows.size());
  const LatencyRow &base = measured.rows.front(), &base_predicted = predicted.rows.front();
  std::vector<HereRow> rows;
  for (std::size_t i = 0; i < measured.rows.size(); ++i) {
    const LatencyRow &m = measured.rows[i], &p = predicted.rows[i];
    HereTime beyond{m.round_ms, 0, p.median_ms - base_predicted.median_ms};
    for (std::size_t round = 0; round < beyond.rounds.size(); ++round) beyond.rounds[round] -= base.round_ms[round];
    beyond.measured = percentile(beyond.rounds, 0.5);
    rows.push_back({m.label,
                    measured.context,
                    {m.round_ms, m.median_ms, p.median_ms},
                    std::move(beyond),
                    m.operations,
                    p.operations});
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
  std::vector<double> shares;  // of products with weights
  for (const HereRow& row : validation.rows) {
    double products = 0;
    for (const OperationTime& o : row.measured_operations)
      if (o.name == "qkv" || o.name == "output and mlp" || o.name == "logits and arg max") products += o.ms;
    shares.push_back(products / row.step.measured);
  }
  validation.weights_share = percentile(shares, 0.5);
  return validation;
}

std::string here_text(const HereValidation& v, bool markdown) {
  std::string text = note(
      fmt::format("Level: this machine ({}). One core plays the device, another one the host; memcpy is the link. The "
                  "simulated device predicts a decode step from kernels, copies and hand-offs measured here; the "
                  "emulated device runs the same step in real time. Model: {}. {} of {}.",
                  v.cpu, v.model, counted(v.rounds, "round"), counted(v.steps, "step")),
      markdown);
  text += section("Decode step, ms", markdown) + text_of(steps_table(v, &HereRow::step), markdown);
  text += section(fmt::format("Part beyond {}, ms", kHereBase), markdown) +
          text_of(steps_table(v, &HereRow::beyond), markdown);
  text += note(summary("Step", v.errors(&HereRow::step)) +
                   summary(fmt::format("Beyond {}", kHereBase), v.errors(&HereRow::beyond)) + order_text(v),
               markdown);
  text += note(fmt::format("Products with weights take {:.0f} % of a step (median). Other processes used {:.2f} CPUs "
                           "while steps were measured; the rounds show how much that matters.",
                           100 * v.weights_share, v.others_cpus),
               markdown);
  for (const std::string& warning : v.warnings) text += note(warning, markdown);
  return text;
}

std::string here_operations_text(const HereValidation& v) {
  Table table;
  table.leading = 3;
  table.head = {"method", "context", "operation", "measured", "predicted", "error\u00a0%"};
  for (const HereRow& row : v.rows) {
    for (const OperationTime& o : row.measured_operations) {
      const auto found = std::ranges::find(row.predicted_operations, o.name, &OperationTime::name);
      if (found == row.predicted_operations.end() || o.ms < 0.005 * row.step.measured) continue;
      table.rows.push_back({row.method, length_text(row.context), o.name, fmt::format("{:.3f}", o.ms),
                            fmt::format("{:.3f}", found->ms),
                            o.ms > 0 ? signed_percent_text(found->ms / o.ms - 1) : "-"});
    }
  }
  return section("Operations, ms per step", false) + table.text();
}

static void to_json(nlohmann::ordered_json& json, const WrongOrder& w) {
  json = {{"context", w.context}, {"faster", w.faster}, {"slower", w.slower}};
}

static void to_json(nlohmann::ordered_json& json, const HereRow& row) {
  json = {{"method", row.method},
          {"context", row.context},
          {"measured_ms", row.step.measured},
          {"predicted_ms", row.step.predicted},
          {"error", row.step.error()},
          {"round_ms", row.step.rounds},
          {"beyond_measured_ms", row.beyond.measured},
          {"beyond_predicted_ms", row.beyond.predicted},
          {"beyond_error", row.beyond.error()},
          {"beyond_round_ms", row.beyond.rounds},
          {"measured_operations", row.measured_operations},
          {"predicted_operations", row.predicted_operations}};
}

static void to_json(nlohmann::ordered_json& json, const KernelTime& k) {
  json = {{"kernel", k.kernel},   {"shape", k.shape}, {"us", k.median_us},       {"least_us", k.least_us},
          {"most_us", k.most_us}, {"bytes", k.bytes}, {"disturbed", k.disturbed}};
}

std::string here_json(const HereValidation& v, const std::string& command, const std::string& program) {
  const HereValidation::Errors step = v.errors(&HereRow::step), beyond = v.errors(&HereRow::beyond);
  const nlohmann::ordered_json json = {
      {"command", command},
      {"program", program},
      {"level", "this machine"},
      {"machine", v.cpu},
      {"cpus", {{"device", v.sides.device}, {"host", v.sides.host}}},
      {"model", v.model},
      {"rounds", v.rounds},
      {"steps", v.steps},
      {"others_cpus", v.others_cpus},
      {"weights_share", v.weights_share},
      {"median_error", step.median},
      {"worst_error", step.worst},
      {"median_beyond_error", beyond.median},
      {"worst_beyond_error", beyond.worst},
      {"wrong_orders", v.wrong_orders()},
      {"rows", v.rows},
      {"kernels", {{"one_thread", v.figures.one_thread}, {"two_threads", v.figures.two_threads}}},
      {"profile", parse_ordered_json(profile_to_json(v.profile), "profile")}};
  return json_text(json, 2) + "\n";
}

}  // namespace tandem::eval
