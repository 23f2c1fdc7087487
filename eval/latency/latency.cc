#include "eval/latency/latency.h"

#include <algorithm>
#include <fmt/core.h>
#include <random>

#include "engine/common/cgroup.h"
#include "engine/common/error.h"
#include "engine/kernels/isa.h"
#include "engine/runtime/limits.h"
#include "eval/report/statistics.h"
#include "eval/run/decoded.h"
#include "methods/registry.h"

namespace tandem::eval {
namespace {

/// `sequence`: each of a batch has tokens of its own.
std::vector<std::int32_t> random_tokens(std::uint32_t n, std::uint32_t vocab, std::uint32_t sequence = 0) {
  std::mt19937 engine(1 + sequence);  // NOLINT(cert-msc51-cpp): the same prompts in every run
  std::vector<std::int32_t> tokens(n);
  for (std::int32_t& token : tokens) token = static_cast<std::int32_t>(engine() % vocab);
  return tokens;
}

/// Sums over the measured part of traces.
class Times {
 public:
  /// What started at `begin` or later; `window`: how long that took.
  void add(const Trace& trace, Nanos begin, Nanos window) {
    for (const TraceRecord& record : trace.records) {
      const LaneKind lane = trace.lanes.at(record.lane).kind;
      if (record.start < begin || lane == LaneKind::control) continue;
      auto found = std::ranges::find(operations_, record.name, &OperationTime::name);
      if (found == operations_.end()) found = operations_.insert(found, {.name = record.name});
      found->ms += double(record.end - record.start) * 1e-6;
      const Cost& cost = record.cost;
      found->gigabytes += double(cost.hbm + cost.dram + cost.h2d + cost.d2h + cost.peer) * 1e-9;
      found->gigaflops += double(cost.flops + cost.solved) * 1e-9;
      if (lane == LaneKind::device_compute) busy_ += record.end - record.start;
    }
    window_ += window;
  }

  void finish(LatencyRow& result, double units) {
    for (OperationTime& o : operations_) {
      o.ms /= units;
      o.gigabytes /= units;
      o.gigaflops /= units;
    }
    std::ranges::sort(operations_, std::ranges::greater(), &OperationTime::ms);
    result.operations = std::move(operations_);
    result.compute_lane_idle_ms = double(window_ - busy_) * 1e-6 / units;
  }

 private:
  std::vector<OperationTime> operations_;
  Nanos window_ = 0, busy_ = 0;
};

Latency described(const LatencyOptions& options, const Model& model, const Device& device, const ThreadPool& pool) {
  if (options.context == 0 || options.steps == 0 || options.rounds == 0)
    throw_input_error("A measurement needs at least one token, one step and one round.");
  if (options.methods.empty() || options.batch == 0)
    throw_input_error("A measurement needs at least one method and one sequence.");
  return {.model = model.name,
          .weights_hash = model.weights_hash,
          .clock = device.clock_name(),
          .isa = to_string(active_isa()),
          .precision = to_string(options.engine.precision),
          .threads = pool.size(),
          .context = options.context,
          .rounds = options.rounds,
          .prefill_chunk = options.engine.prefill_chunk,
          .mapped_weights = model.weights.mapped};
}

void summarise(LatencyRow& result, double tokens_per_unit) {
  const auto [low, high] = std::ranges::minmax_element(result.round_ms);
  result.min_ms = *low;
  result.max_ms = *high;
  result.median_ms = percentile(result.round_ms, 0.5);
  result.tokens_per_second = ratio(1e3 * tokens_per_unit, result.median_ms);
}

/// A prefix whose pages go back to the engine at the end.
using Held = std::unique_ptr<Prefix, std::function<void(Prefix*)>>;

Held held_by(Engine& engine, std::unique_ptr<Prefix> prefix) {
  return {prefix.release(), [&engine](Prefix* p) { engine.release(*std::unique_ptr<Prefix>(p)); }};
}

MemoryUse memory_of(const Model& model, Engine& engine) {
  const ProcessMemory process = process_memory();
  return {.weight_bytes = model.weights.bytes(),
          .kv_bytes = {engine.kv().peak_bytes(Tier::device), engine.kv().peak_bytes(Tier::host)},
          .resident_bytes = process.resident,
          .peak_bytes = process.peak};
}

/// A method and what its rounds took.
struct Measured {
  std::unique_ptr<Method> method;
  LatencyRow row;
  Times times;
};

}  // namespace

Latency measure_decode(const LatencyOptions& options, const Model& model, Device& device, ThreadPool& pool) {
  Latency result = described(options, model, device, pool);
  std::vector<Measured> methods;
  for (const MethodEntry& entry : method_entries(options.methods)) {
    Measured& m = methods.emplace_back();
    m.method = make_method(entry.label);
    m.row.label = entry.label;
    m.row.method = m.method->spelled_out();
  }
  const std::uint32_t new_tokens = options.steps + 1;
  check_positions(model, std::size_t{options.context} + 1, new_tokens);
  check_device_room(options.engine, model, options.batch, options.context + new_tokens, "--context");
  const std::uint64_t rounds = options.rounds, total = options.batch + (rounds + 1) * methods.size();
  std::uint64_t done = 0;
  const auto tell = [&] {
    if (options.progress) options.progress(done++, total);
  };
  result.batch = options.batch;
  result.steps = options.steps;
  EngineOptions engine_options = options.engine;
  engine_options.max_batch = options.batch;
  keep_what_methods_need(engine_options, options.methods, model);
  Engine engine(model, device, pool, engine_options);
  std::vector<Held> held;
  std::vector<DecodeRequest> requests;
  std::vector<std::vector<std::int32_t>> fed;  // random tokens too, so that no stop token ends a round
  for (std::uint32_t s = 0; s < options.batch; ++s) {
    tell();
    const std::vector<std::int32_t> prompt = random_tokens(options.context + 1, model.config.vocab, s);
    held.push_back(held_by(engine, options.prefill ? options.prefill(engine, prompt) : engine.prefill(prompt)));
    requests.push_back({held.back().get(), new_tokens});
    fed.push_back(random_tokens(new_tokens, model.config.vocab, s));
  }
  DecodeOptions feed;
  feed.forced = fed;
  feed.trace_steps = options.steps + 2;  // nothing is drained in between
  const auto so_far = [&] {
    Latency now = result;
    std::size_t measured = 0;
    for (const Measured& m : methods) {
      const std::size_t own = m.row.round_ms.size();
      measured += own;
      if (own == 0) continue;
      LatencyRow& row = now.rows.emplace_back(m.row);
      Times(m.times).finish(row, double(own) * options.steps);
      summarise(row, options.batch);
    }
    const std::size_t all = rounds * methods.size();
    if (measured < all) now.unfinished = fmt::format("{} of {} rounds", measured, all);
    now.memory = memory_of(model, engine);
    return now;
  };
  for (std::uint64_t round = 0; round <= rounds; ++round) {
    for (std::size_t turn = 0; turn < methods.size(); ++turn) {
      tell();
      // No method is always the first. Round 1 begins with the first, which speed-ups are over.
      Measured& m = methods[(round + turn + methods.size() - 1) % methods.size()];
      const DecodeResult decoded = engine.decode(*m.method, requests, feed);
      if (round == 0) continue;
      // A mark for the set-up, one for the first step, then one for each measured step.
      const std::vector<StepMark>& marks = decoded.trace.steps;
      TANDEM_CHECK(marks.size() == std::size_t{options.steps} + 2, "{} steps were asked for, {} windows came",
                   options.steps, marks.size());
      const Nanos begin = marks[2].begin, window = marks.back().end - begin;
      m.row.round_ms.push_back(double(window) * 1e-6 / options.steps);
      m.times.add(decoded.trace, begin, window);
      if (options.after_round) options.after_round(so_far());
    }
  }
  tell();
  return so_far();
}

Latency measure_prefill(const LatencyOptions& options, const Model& model, Device& device, ThreadPool& pool) {
  const std::uint64_t rounds = options.rounds;
  Latency result = described(options, model, device, pool);
  LatencyRow& row = result.rows.emplace_back();
  EngineOptions engine_options = options.engine;
  engine_options.max_batch = 1;
  Engine engine(model, device, pool, engine_options);
  // A prompt's last token is the first decode step's.
  const std::vector<std::int32_t> prompt = random_tokens(options.context + 1, model.config.vocab);
  check_positions(model, prompt.size(), 0);
  Times times;
  for (std::uint64_t round = 0; round <= rounds; ++round) {
    if (options.progress) options.progress(round, rounds + 1);
    const Held held = held_by(engine, engine.prefill(prompt));
    if (round == 0) continue;
    row.round_ms.push_back(double(held->prefill_ns) * 1e-6);
    times.add(held->trace, 0, held->prefill_ns);
  }
  if (options.progress) options.progress(rounds + 1, rounds + 1);
  times.finish(row, double(rounds));
  summarise(row, options.context);
  result.memory = memory_of(model, engine);
  return result;
}

}  // namespace tandem::eval
