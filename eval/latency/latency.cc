#include "eval/latency/latency.h"

#include <algorithm>
#include <random>
#include <span>

#include "engine/common/error.h"
#include "engine/kernels/isa.h"
#include "engine/runtime/limits.h"
#include "eval/report/statistics.h"
#include "methods/registry.h"

namespace tandem::eval {
namespace {

std::vector<std::int32_t> random_tokens(std::uint32_t n, std::uint32_t vocab) {
  std::mt19937 engine(1);  // NOLINT(cert-msc51-cpp): the same prompt in every run
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
      const auto of_name = [&](const OperationTime& o) { return o.name == record.name; };
      auto found = std::find_if(operations_.begin(), operations_.end(), of_name);
      if (found == operations_.end()) found = operations_.insert(found, {.name = record.name});
      found->ms += double(record.end - record.start) * 1e-6;
      const Cost& cost = record.cost;
      found->gigabytes += double(cost.hbm + cost.dram + cost.h2d + cost.d2h + cost.peer) * 1e-9;
      found->gigaflops += double(cost.flops + cost.solved) * 1e-9;
      if (lane == LaneKind::device_compute) busy_ += record.end - record.start;
    }
    window_ += window;
  }

  void finish(Latency& result, double units) {
    for (OperationTime& o : operations_) {
      o.ms /= units;
      o.gigabytes /= units;
      o.gigaflops /= units;
    }
    std::sort(operations_.begin(), operations_.end(),
              [](const OperationTime& a, const OperationTime& b) { return a.ms > b.ms; });
    result.operations = std::move(operations_);
    result.compute_lane_idle_ms = double(window_ - busy_) * 1e-6 / units;
  }

 private:
  std::vector<OperationTime> operations_;
  Nanos window_ = 0, busy_ = 0;
};

void check(const LatencyOptions& options) {
  if (options.context == 0 || options.steps == 0 || options.rounds == 0)
    throw_input_error("A measurement needs at least one token, one step and one round.");
}

Latency described(const LatencyOptions& options, const Model& model, const Device& device, const ThreadPool& pool) {
  Latency result;
  result.model = model.name;
  result.weights_hash = model.weights_hash;
  result.clock = device.clock_name();
  result.isa = to_string(active_isa());
  result.precision = to_string(options.engine.precision);
  result.threads = pool.size();
  result.context = options.context;
  result.prefill_chunk = options.engine.prefill_chunk;
  result.round_ms.reserve(options.rounds);
  return result;
}

void summarise(Latency& result, double tokens_per_unit) {
  const auto [low, high] = std::minmax_element(result.round_ms.begin(), result.round_ms.end());
  result.min_ms = *low;
  result.max_ms = *high;
  result.median_ms = percentile(result.round_ms, 0.5);
  result.tokens_per_second = ratio(1e3 * tokens_per_unit, result.median_ms);
}

/// Pages of a prefix go back when the round ends.
class Held {
 public:
  Held(Engine& engine, std::unique_ptr<Prefix> prefix) : engine_(engine), prefix_(std::move(prefix)) {}
  ~Held() { engine_.release(*prefix_); }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;
  const Prefix& prefix() const { return *prefix_; }

 private:
  Engine& engine_;
  std::unique_ptr<Prefix> prefix_;
};

EngineOptions for_one_sequence(const LatencyOptions& options) {
  EngineOptions engine = options.engine;
  engine.max_batch = 1;
  return engine;
}

}  // namespace

Latency measure_decode(const LatencyOptions& options, const Model& model, Device& device, ThreadPool& pool) {
  check(options);
  const auto method = make_method(options.method);
  const std::uint64_t rounds = options.rounds, total = rounds + 2;
  const auto tell = [&](std::uint64_t done) {
    if (options.progress) options.progress(done, total);
  };
  Latency result = described(options, model, device, pool);
  result.method = method->spelled_out();
  result.steps = options.steps;
  EngineOptions engine_options = for_one_sequence(options);
  keep_what_methods_need(engine_options, {&options.method, 1}, model);
  Engine engine(model, device, pool, engine_options);
  const std::vector<std::int32_t> prompt = random_tokens(options.context + 1, model.config.vocab);
  check_positions(model, prompt.size(), options.steps + 1);
  tell(0);
  const Held held(engine, engine.prefill(prompt));
  // The steps are fed random tokens too, so that no stop token ends a round.
  const std::vector<std::vector<std::int32_t>> fed = {random_tokens(options.steps + 1, model.config.vocab)};
  DecodeOptions feed;
  feed.forced = fed;
  feed.trace_steps = options.steps + 2;  // nothing is drained in between
  Times times;
  for (std::uint64_t round = 0; round <= rounds; ++round) {
    tell(round + 1);
    const DecodeRequest request{&held.prefix(), options.steps + 1};
    const DecodeResult decoded = engine.decode(*method, {&request, 1}, feed);
    const std::vector<StepMark>& marks = decoded.trace.steps;  // the set-up, the first step, the measured ones
    TANDEM_CHECK(marks.size() == std::size_t{options.steps} + 2, "{} steps were asked for, {} windows came",
                 options.steps, marks.size());
    if (round == 0) continue;
    const Nanos begin = marks[2].begin, window = marks.back().end - begin;
    result.round_ms.push_back(double(window) * 1e-6 / options.steps);
    times.add(decoded.trace, begin, window);
  }
  tell(total);
  times.finish(result, double(rounds) * options.steps);
  summarise(result, 1);
  return result;
}

Latency measure_prefill(const LatencyOptions& options, const Model& model, Device& device, ThreadPool& pool) {
  check(options);
  const std::uint64_t rounds = options.rounds;
  Latency result = described(options, model, device, pool);
  Engine engine(model, device, pool, for_one_sequence(options));
  // A prompt's last token is the first decode step's.
  const std::vector<std::int32_t> prompt = random_tokens(options.context + 1, model.config.vocab);
  check_positions(model, prompt.size(), 0);
  Times times;
  for (std::uint64_t round = 0; round <= rounds; ++round) {
    if (options.progress) options.progress(round, rounds + 1);
    const Held held(engine, engine.prefill(prompt));
    if (round == 0) continue;
    result.round_ms.push_back(double(held.prefix().prefill_ns) * 1e-6);
    times.add(held.prefix().trace, 0, held.prefix().prefill_ns);
  }
  if (options.progress) options.progress(rounds + 1, rounds + 1);
  times.finish(result, double(rounds));
  summarise(result, options.context);
  return result;
}

}  // namespace tandem::eval
