#include "eval/predict/sweep.h"

#include <algorithm>
#include <chrono>
#include <fmt/core.h>
#include <iterator>
#include <mutex>
#include <utility>

#include "engine/common/error.h"
#include "engine/kernels/thread_pool.h"
#include "methods/registry.h"

namespace tandem::eval {
namespace {

constexpr std::chrono::seconds kKeptEvery{20};

constexpr std::uint32_t kEqualSteps = 16;  // whose bytes equal_at_shape() compares, except the first's

/// At most, where as many as fit are asked for.
std::uint32_t sequences_of(const SweepOptions& options, std::uint32_t batch) {
  return batch == kAsManyAsFit ? options.most_sequences : batch;
}

/// How much work a point is beside others.
std::uint64_t weight_of(const SweepOptions& options, const SweepPoint& point) {
  return std::uint64_t{point.context} * sequences_of(options, point.batch);
}

/// Where a method's schedule is checked, once for each machine.
bool is_lightest(const SweepOptions& options, const SweepPoint& point) {
  const std::uint32_t own = sequences_of(options, point.batch);
  return point.context == std::ranges::min(options.contexts) &&
         std::ranges::all_of(options.batches, [&](std::uint32_t b) { return own <= sequences_of(options, b); });
}

PredictionOptions target_of(const SweepOptions& options, const SweepPoint& point, std::uint32_t sequences) {
  return {.methods = {point.method},
          .batch = sequences,
          .context = point.context,
          .steps = options.steps,
          .prefill_chunk = options.prefill_chunk,
          .precision = options.precision,
          .threads = 1,
          .checked = false,
          .drawn_sequences = options.drawn_sequences,
          .prefill = options.recordings == nullptr,
          .ranges = options.recordings == nullptr && point.batch != kAsManyAsFit,
          .interrupted = options.interrupted};
}

const HardwareProfile& machine_of(const SweepOptions& options, const SweepPoint& point) {
  return *std::ranges::find(options.hardware, point.hardware, &HardwareProfile::name);
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
  point.sequences =
      sequences_that_fit(with.shape, with.hardware, one, with.options.most_sequences, with.options.precision);
  for (; point.sequences > 1; --point.sequences) {
    point.row = with.simulate(point, point.sequences);
    if (!point.row.too_large) return one;
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
    point.row = refused_row(
        point.method,
        fmt::format("a step of one sequence takes {:.4g} ms, and --tpot asks for {:.4g} ms", one.step_ms, most_ms));
    point.row.too_slow = true;
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

void simulate_one(const Model& shape, const Workload& workload, const SweepOptions& options, SweepPoint& point) {
  point.lossless = is_lossless(point.method, shape);
  point.sequences = point.batch;  // 0 where not even one fits
  Setting with{shape, workload, options, {}};
  try {
    with.hardware = at_level(machine_of(options, point), options.level, point.method);
  } catch (const InputError& e) {
    point.row = refused_row(point.method, e.what());
    return;
  }
  if (std::string problem = what_of_weights_is_too_large(shape, with.hardware, options.precision); !problem.empty()) {
    point.row = refused_row(point.method, std::move(problem));
    point.row.too_large = true;
    return;
  }
  if (options.checked && is_lightest(options, point)) {
    // Conflicts between sequences show with two of them, even where the lightest point has one.
    std::uint32_t most = 0;
    for (const std::uint32_t batch : options.batches) most = std::max(most, sequences_of(options, batch));
    check_schedule(shape, with.hardware, workload, target_of(options, point, most), point.method);
  }
  if (point.batch == kAsManyAsFit) {
    const PredictedRow one = fill_memory(with, point);
    if (options.tpot_ms > 0) keep_pace(with, one, point);
    add_range(with, point);
  } else if (options.recordings == nullptr) {
    point.row = with.simulate(point, point.sequences);
  } else {
    PredictionOptions target = target_of(options, point, point.sequences);
    target.record = [&](Recording recording) { options.recordings->add(point, std::move(recording)); };
    const Recording* const recorded = options.recordings->find(point);
    point.row = recorded != nullptr ? replayed_row(shape, with.hardware, *recorded, target) : with.simulate(target);
  }
}

}  // namespace

const Recording* Recordings::find(const SweepPoint& point) const {
  const std::lock_guard lock(mutex_);
  const auto found = recordings_.find(key_of(point));
  return found == recordings_.end() ? nullptr : &found->second;
}

void Recordings::add(const SweepPoint& point, Recording recording) {
  if (recording.calls.times_decide) return;
  const std::lock_guard lock(mutex_);
  recordings_.insert_or_assign(key_of(point), std::move(recording));
}

void Recordings::remove(const SweepPoint& point) {
  const std::lock_guard lock(mutex_);
  recordings_.erase(key_of(point));
}

void add_ranges(const SweepOptions& options, const std::vector<SweepPoint*>& points) {
  ThreadPool pool(options.threads);
  pool.parallel_for(points.size(), [&](std::size_t i) {
    SweepPoint& point = *points[i];
    const Recording* const recorded = options.recordings->find(point);
    if (recorded == nullptr || !point.row.refused.empty()) return;
    const HardwareProfile machine = at_level(machine_of(options, point), options.level, point.method);
    add_range(machine, options.precision, recorded->calls, point.row);
  });
}

const SweepPoint* Sweep::find(const std::string& hardware, std::uint32_t batch, std::uint32_t context,
                              const std::string& method) const {
  const auto found = std::ranges::find_if(points, [&](const SweepPoint& p) {
    return p.hardware == hardware && p.batch == batch && p.context == context && p.method == method;
  });
  return found == points.end() ? nullptr : &*found;
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
  TANDEM_CHECK(options.steps >= 2, "the first step is no other's measure");
  for (const std::string& spec : options.methods) make_method(spec);
  Sweep sweep = empty_sweep(shape, options, workload);
  shape.config.max_positions = std::max(shape.config.max_positions, std::ranges::max(options.contexts) + options.steps);

  sweep.points = std::move(known);
  std::vector<SweepPoint> points;  // without a row until they are simulated
  for (const HardwareProfile& hardware : options.hardware) {
    for (const std::uint32_t batch : options.batches) {
      for (const std::uint32_t context : options.contexts) {
        for (const std::string& method : options.methods) {
          const SweepPoint* there = sweep.find(hardware.name, batch, context, method);
          points.push_back(there != nullptr ? *there : SweepPoint{hardware.name, method, context, batch, 0, false, {}});
        }
      }
    }
  }
  const auto is_done = [](const SweepPoint& point) { return !point.row.method.empty(); };
  std::vector<SweepPoint*> open;
  for (SweepPoint& point : points)
    if (!is_done(point)) open.push_back(&point);
  // The longest first, so that no thread ends with one alone.
  std::ranges::stable_sort(open, std::greater(), [&](const SweepPoint* point) { return weight_of(options, *point); });
  const auto finished = [&] {
    sweep.points.clear();
    std::ranges::copy_if(points, std::back_inserter(sweep.points), is_done);
    return sweep;
  };

  std::mutex mutex;
  std::uint64_t done = points.size() - open.size();
  std::optional<std::chrono::steady_clock::time_point> kept;  // the first point at once
  if (options.progress) options.progress(done, points.size(), "");
  ThreadPool pool(options.threads);
  try {
    pool.parallel_for(open.size(), [&](std::size_t i) {
      if (options.interrupted && options.interrupted()) throw Interrupted();
      SweepPoint point = *open[i];
      simulate_one(shape, workload, options, point);
      const std::lock_guard lock(mutex);
      *open[i] = std::move(point);
      if (options.progress) options.progress(++done, points.size(), open[i]->method);
      if (keep && (!kept || std::chrono::steady_clock::now() - *kept > kKeptEvery)) {
        keep(finished());
        kept = std::chrono::steady_clock::now();
      }
    });
  } catch (const Interrupted&) {  // complete() says so
  }
  return finished();
}

bool is_lossless(const std::string& spec, const Model& shape) {
  try {
    return make_method(spec)->needs(shape_of(shape.config)).lossless;
  } catch (const InputError&) {
    return false;
  }
}

Equal equal_at_shape(Model shape, const Workload& workload, const EqualBytes& asked, const SweepOptions& options) {
  HardwareProfile roomy = options.hardware.front();
  roomy.device.memory_gb = 1e6;  // more than any sequence takes
  roomy.host.memory_gb = 0;      // no limit
  // Unchecked: the points that are simulated afterwards are.
  PredictionOptions target{.context = options.contexts.front(),
                           .steps = kEqualSteps,
                           .prefill_chunk = options.prefill_chunk,
                           .threads = options.threads,
                           .checked = false,
                           .interrupted = options.interrupted};
  const std::uint32_t most_tokens = target.context + target.steps;
  shape.config.max_positions = std::max(shape.config.max_positions, most_tokens);
  const std::uint64_t most = most_questions(asked, options.methods, most_tokens);
  std::uint64_t done = 0;
  return find_equal(asked, options.methods, most_tokens, [&](const std::string& spec) {
    if (options.progress) options.progress(done++, most, spec);
    target.methods = {spec};
    const PredictedRow row = predict(shape, roomy, workload, target).rows.at(0);
    const bool touched = asked.measure == Measure::touched;
    return Bytes{touched ? row.touched_bytes : static_cast<double>(row.device_kv_bytes), row.refused};
  });
}

}  // namespace tandem::eval
