#include "eval/predict/sweep.h"

#include <algorithm>
#include <chrono>
#include <fmt/core.h>
#include <mutex>
#include <optional>
#include <utility>

#include "engine/common/error.h"
#include "engine/kernels/thread_pool.h"
#include "engine/runtime/forward.h"
#include "eval/predict/ranges.h"
#include "eval/predict/schedule_check.h"
#include "methods/registry.h"

namespace tandem::eval {
namespace {

constexpr std::chrono::seconds kKeptEvery{20};

/// How much work a point is beside others.
std::uint64_t weight_of(const SweepOptions& options, std::uint32_t batch, std::uint32_t context) {
  return std::uint64_t{context} * (batch == kAsManyAsFit ? options.most_sequences : batch);
}

/// Where a method's schedule is checked, once for each machine.
bool is_lightest(const SweepOptions& options, const SweepPoint& point) {
  std::uint64_t least = UINT64_MAX;
  for (const std::uint32_t batch : options.batches)
    for (const std::uint32_t context : options.contexts) least = std::min(least, weight_of(options, batch, context));
  return weight_of(options, point.batch, point.context) == least;
}

PredictionOptions target_of(const SweepOptions& options, const SweepPoint& point, std::uint32_t sequences) {
  PredictionOptions target;
  target.checked = false;
  target.methods = {point.method};
  target.batch = sequences;
  target.context = point.context;
  target.steps = options.steps;
  target.prefill_chunk = options.prefill_chunk;
  target.drawn_sequences = options.drawn_sequences;
  target.ranges = point.batch != kAsManyAsFit;
  target.threads = 1;
  target.interrupted = options.interrupted;
  return target;
}

/// The conditions that a point is simulated under.
struct Setting {
  const Model& shape;
  const Workload& workload;
  const SweepOptions& options;
  HardwareProfile hardware;  // at the sweep's level

  PredictedRow simulate(const PredictionOptions& target) const {
    return predict(shape, hardware, workload, target).rows.at(0);
  }
  PredictedRow simulate(const SweepPoint& point, std::uint32_t sequences) const {
    return simulate(target_of(options, point, sequences));
  }
};

/// As many sequences as fit beside each other, in `point`; returns what one takes alone, which is what each takes,
/// within a page or two that several share: so the number is tried, and one fewer where it is too many.
PredictedRow fill_memory(const Setting& with, SweepPoint& point) {
  const PredictedRow one = with.simulate(point, 1);
  point.row = one;
  if (!one.refused.empty()) return one;
  point.sequences = sequences_that_fit(with.shape, with.hardware, one, with.options.most_sequences);
  while (point.sequences > 1) {
    point.row = with.simulate(point, point.sequences);
    if (!point.row.too_large) return one;
    --point.sequences;
  }
  point.sequences = 1;
  point.row = one;
  return one;
}

/// The most sequences whose step takes no longer than is asked for, where those of `point`, which fit, take longer. A
/// step of more sequences is taken to be no shorter. `one`: what one sequence takes.
void keep_pace(const Setting& with, const PredictedRow& one, SweepPoint& point) {
  const double most_ms = with.options.tpot_ms;
  const auto keeps = [&](const PredictedRow& row) { return row.refused.empty() && row.step_ms <= most_ms; };
  if (!point.row.refused.empty() || keeps(point.row)) return;
  if (!keeps(one)) {
    PredictedRow refused;
    refused.method = point.method;
    refused.too_slow = true;
    refused.refused =
        fmt::format("a step of one sequence takes {:.4g} ms, and --tpot asks for {:.4g} ms", one.step_ms, most_ms);
    point.row = std::move(refused);
    point.sequences = 0;
    return;
  }
  // Steps grow nearly evenly, so that a straight line finds the place in a few tries; each third halves what is left.
  std::uint32_t high = std::exchange(point.sequences, 1);
  PredictedRow slower = std::exchange(point.row, one);
  for (int tries = 1; high - point.sequences > 1; ++tries) {
    const double part = (most_ms - point.row.step_ms) / (slower.step_ms - point.row.step_ms),
                 share = tries % 3 == 0 || !slower.refused.empty() ? 0.5 : part;
    const auto next = static_cast<std::uint32_t>(point.sequences + share * (high - point.sequences));
    const std::uint32_t tried = std::clamp(next, point.sequences + 1, high - 1);
    PredictedRow row = with.simulate(point, tried);
    if (keeps(row)) {
      point.sequences = tried;
      point.row = std::move(row);
    } else {
      high = tried;
      slower = std::move(row);
    }
  }
}

/// The range of a point whose batch had to be found: of a few steps, at the batch that it came to.
void add_range(const Setting& with, SweepPoint& point) {
  if (!point.row.refused.empty()) return;
  PredictionOptions few = target_of(with.options, point, point.sequences);
  few.steps = std::min(with.options.steps, kRangeSteps);
  few.ranges = true;
  const PredictedRow row = with.simulate(few);
  if (row.step_high_ms == 0) return;
  point.row.step_low_ms = point.row.step_ms * row.step_low_ms / row.step_ms;
  point.row.step_high_ms = point.row.step_ms * row.step_high_ms / row.step_ms;
  point.row.widest_range = row.widest_range;
}

void simulate_one(const Model& shape, const Workload& workload, const SweepOptions& options,
                  const HardwareProfile& machine, SweepPoint& point) {
  point.lossless = is_lossless(point.method, shape);
  point.sequences = point.batch;  // 0 where not even one fits
  Setting with{shape, workload, options, {}};
  try {
    with.hardware = at_level(machine, options.level, point.method);
  } catch (const InputError& e) {
    point.row.method = point.method;
    point.row.refused = e.what();
    return;
  }
  if (std::string problem = what_of_weights_is_too_large(shape, with.hardware); !problem.empty()) {
    point.row.method = point.method;
    point.row.too_large = true;
    point.row.refused = std::move(problem);
    return;
  }
  if (is_lightest(options, point)) {
    // Conflicts between sequences show with two of them, even where the lightest point has one.
    const std::uint32_t most = *std::ranges::max_element(options.batches),
                        sequences =
                            std::ranges::count(options.batches, kAsManyAsFit) > 0 ? options.most_sequences : most;
    check_schedule(shape, with.hardware, workload, target_of(options, point, sequences), point.method);
  }
  if (point.batch == kAsManyAsFit) {
    const PredictedRow one = fill_memory(with, point);
    if (options.tpot_ms > 0) keep_pace(with, one, point);
    add_range(with, point);
  } else {
    point.row = with.simulate(point, point.sequences);
  }
}

void check_sweep(const SweepOptions& options) {
  TANDEM_CHECK(options.steps >= 2, "the first step is no other's measure");
  for (const std::string& spec : options.methods) make_method(spec);
}

}  // namespace

const SweepPoint* Sweep::find(const std::string& hardware, std::uint32_t batch, std::uint32_t context,
                              const std::string& method) const {
  const auto found = std::ranges::find_if(points, [&](const SweepPoint& p) {
    return p.hardware == hardware && p.batch == batch && p.context == context && p.method == method;
  });
  return found == points.end() ? nullptr : &*found;
}

bool Sweep::complete() const {
  for (const HardwareProfile& hardware : options.hardware)
    for (const std::uint32_t batch : options.batches)
      for (const std::uint32_t context : options.contexts)
        for (const std::string& method : options.methods)
          if (find(hardware.name, batch, context, method) == nullptr) return false;
  return true;
}

Sweep empty_sweep(const Model& shape, const SweepOptions& options, const Workload& workload) {
  const ModelConfig& c = shape.config;
  Sweep sweep{shape.name, c.layers, c.max_positions, "", options, workload, {}};
  sweep.shape =
      fmt::format("hidden {}, {} query heads, {} KV heads of {}, intermediate {}, vocabulary {}, weights {} bytes",
                  c.hidden, c.q_heads, c.kv_heads, c.head_dim, c.intermediate, c.vocab, shape.weights.bytes());
  return sweep;
}

Sweep simulate_sweep(Model shape, const Workload& workload, const SweepOptions& options, std::vector<SweepPoint> known,
                     const std::function<void(const Sweep&)>& keep) {
  check_sweep(options);
  Sweep sweep = empty_sweep(shape, options, workload);
  const std::uint32_t longest = *std::ranges::max_element(options.contexts);
  shape.config.max_positions = std::max(shape.config.max_positions, longest + options.steps);

  struct Task {
    SweepPoint point;
    const HardwareProfile* hardware = nullptr;
    bool done = false;
  };
  Sweep before;
  before.points = std::move(known);
  std::vector<Task> tasks;
  for (const HardwareProfile& hardware : options.hardware) {
    for (const std::uint32_t batch : options.batches) {
      for (const std::uint32_t context : options.contexts) {
        for (const std::string& method : options.methods) {
          const SweepPoint* there = before.find(hardware.name, batch, context, method);
          const SweepPoint fresh{hardware.name, method, context, batch, 0, false, {}};
          tasks.push_back({there != nullptr ? *there : fresh, &hardware, there != nullptr});
        }
      }
    }
  }
  std::vector<std::size_t> open;
  for (std::size_t i = 0; i < tasks.size(); ++i)
    if (!tasks[i].done) open.push_back(i);
  // The longest first, so that no thread ends with one alone.
  const auto weight = [&](std::size_t i) { return weight_of(options, tasks[i].point.batch, tasks[i].point.context); };
  std::ranges::stable_sort(open, [&](std::size_t a, std::size_t b) { return weight(a) > weight(b); });
  const auto finished = [&] {
    sweep.points.clear();
    for (const Task& task : tasks)
      if (task.done) sweep.points.push_back(task.point);
    return sweep;
  };

  std::mutex mutex;
  std::uint64_t done = tasks.size() - open.size();
  std::optional<std::chrono::steady_clock::time_point> kept;  // the first point at once
  if (options.progress) options.progress(done, tasks.size(), "");
  ThreadPool pool(options.threads);
  try {
    pool.parallel_for(open.size(), [&](std::size_t i) {
      if (options.interrupted && options.interrupted()) throw Interrupted();
      SweepPoint point = tasks[open[i]].point;
      simulate_one(shape, workload, options, *tasks[open[i]].hardware, point);
      const std::lock_guard lock(mutex);
      const std::string method = point.method;
      tasks[open[i]].point = std::move(point);
      tasks[open[i]].done = true;
      ++done;
      if (options.progress) options.progress(done, tasks.size(), method);
      if (keep && (!kept || std::chrono::steady_clock::now() - *kept > kKeptEvery)) {
        keep(finished());
        kept = std::chrono::steady_clock::now();
      }
    });
  } catch (const Interrupted&) {  // complete() says so
  }
  return finished();
}

}  // namespace tandem::eval
