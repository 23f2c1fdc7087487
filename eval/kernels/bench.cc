#include "eval/kernels/bench.h"

#include <algorithm>
#include <chrono>
#include <fmt/format.h>
#include <iterator>
#include <map>
#include <mutex>
#include <new>
#include <set>

#include "engine/kernels/isa.h"
#include "eval/kernels/bandwidth.h"
#include "eval/kernels/cpu_contention.h"
#include "eval/kernels/gpu_limits.h"
#include "eval/kernels/peak.h"
#include "eval/report/schema.h"

namespace tandem::eval {
namespace {

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

/// What a case threw, as a sentence.
std::string sentence_of(const std::exception& error) {
  return dynamic_cast<const std::bad_alloc*>(&error) != nullptr ? "There is not enough memory for it." : error.what();
}

/// Why no other case can run after what this one threw, a sentence; empty where the next can: memory that was not there
/// costs a case, a kernel that failed costs the process its device.
std::string device_lost(const KernelCase& one, const std::exception& error) {
  if (dynamic_cast<const CudaError*>(&error) == nullptr) return {};
  try {
    cuda_wait({});
  } catch (const std::exception& lost) {
    return fmt::format("After {} ({}) the device answers no more: {}", one.kernel, one.shape, lost.what());
  }
  return {};
}

/// Seconds of one call, over as many calls as fill a round.
class Stopwatch {
 public:
  Stopwatch(CaseMemory& memory, const PreparedCase& prepared, double round_seconds)
      : memory_(memory), prepared_(prepared) {
    once();  // warms up
    const double one = once();
    calls_ = static_cast<unsigned>(std::clamp(round_seconds / std::max(one, 1e-7), 1.0, 20000.0));
  }
  double round() { return seconds(calls_) / calls_; }

 private:
  double once() { return seconds(1); }
  double seconds(unsigned calls) {
    const auto work = [&] {
      for (unsigned i = 0; i < calls; ++i) prepared_.run();
    };
    if (memory_.cuda()) return cuda_seconds(memory_.stream(), work);
    const auto begin = std::chrono::steady_clock::now();
    work();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  }
  CaseMemory& memory_;
  const PreparedCase& prepared_;
  unsigned calls_ = 1;
};

/// What the target attains now, per second: bytes or FLOPs.
class Limits {
 public:
  Limits(KernelTarget target, ThreadPool& pool) : pool_(pool), alone_(1) {
    if (target == KernelTarget::cuda) gpu_ = std::make_unique<GpuLimits>(pool);
  }
  /// 0: not known.
  double of(const KernelCase& one) {
    if (gpu_) return gpu_->of(one);
    ThreadPool& pool = one.threaded ? pool_ : alone_;
    if (one.bound == Bound::bytes) return read_bandwidth_now(pool);
    // A vector holds half as many float64.
    return arithmetic_rate(one.bound == Bound::bf16 ? Arithmetic::bf16_pairs : Arithmetic::f32, pool) /
           (one.bound == Bound::f64 ? 2 : 1);
  }
  /// Empty, or why shares mean nothing now.
  std::string disturbed() { return gpu_ ? std::string() : busy_machine(pool_); }

 private:
  ThreadPool& pool_;
  ThreadPool alone_;
  std::unique_ptr<GpuLimits> gpu_;
};

KernelTime measure(const KernelCase& one, const KernelBenchOptions& options, ThreadPool& pool, Limits& limits,
                   bool with_share) {
  CaseMemory memory(options.target, pool);
  const PreparedCase prepared = one.prepare(memory);
  Stopwatch watch(memory, prepared, options.round_seconds);
  const double bytes = options.target == KernelTarget::cpu && one.cpu_bytes > 0 ? one.cpu_bytes : one.bytes;
  const double amount = one.bound == Bound::bytes ? bytes : one.flops;
  KernelTime time;
  std::vector<double> seconds, shares;
  const CpuContention neighbours;
  for (unsigned round = 0; round < options.rounds; ++round) {
    if (options.interrupted && options.interrupted()) throw Interrupted();
    double limit = 0;
    if (with_share && time.no_share.empty()) {
      try {
        limit = limits.of(one);
      } catch (const std::exception& error) {  // such as a cuBLASLt that is missing
        time.no_share = sentence_of(error);
      }
    }
    seconds.push_back(watch.round());
    if (limit > 0) shares.push_back(amount / seconds.back() / limit);
  }
  time.kernel = one.kernel;
  time.shape = one.shape;
  time.bytes = bytes;
  time.flops = one.flops;
  time.median_us = median(seconds) * 1e6;
  time.least_us = *std::min_element(seconds.begin(), seconds.end()) * 1e6;
  time.most_us = *std::max_element(seconds.begin(), seconds.end()) * 1e6;
  if (options.target == KernelTarget::cpu) time.disturbed = neighbours.disturbance();
  if (!shares.empty() && time.no_share.empty() && time.disturbed.empty()) time.share = median(shares);
  return time;
}

std::string machine_of(KernelTarget target, const ThreadPool& pool) {
  if (target == KernelTarget::cuda) return cuda_device().name;
  return fmt::format("{}, {} thread{}, {}", this_machine().cpu_model, pool.size(), pool.size() == 1 ? "" : "s",
                     to_string(active_isa()));
}

/// Those that `options.cases` names, in that order.
std::vector<KernelCase> named_cases(const KernelBenchOptions& options) {
  std::vector<KernelCase> named;
  for (const std::string& text : options.cases) {
    const std::size_t colon = text.find(':');
    if (colon == std::string::npos || colon == 0 || colon + 1 == text.size())
      throw_input_error("--case is '{}': write KERNEL:SHAPE, for example 'swiglu:n 1,'.", text);
    KernelBenchOptions one;
    one.target = options.target;
    one.kernel = text.substr(0, colon);
    one.shape = text.substr(colon + 1);
    std::vector<KernelCase> found = bench_cases(one);
    const auto whole =
        std::find_if(found.begin(), found.end(), [&](const KernelCase& each) { return each.shape == one.shape; });
    if (whole != found.end()) {
      named.push_back(std::move(*whole));
    } else {
      std::move(found.begin(), found.end(), std::back_inserter(named));
    }
  }
  return named;
}

}  // namespace

std::vector<KernelCase> bench_cases(const KernelBenchOptions& options) {
  if (!options.cases.empty()) {
    if (!options.kernel.empty() || !options.shape.empty())
      throw_input_error("--case names kernel and shape: give neither --kernel nor --shape beside it.");
    return named_cases(options);
  }
  std::vector<KernelCase> all = kernel_cases(CaseSize::bench);
  std::set<std::string> names;
  for (const KernelCase& one : all) names.insert(one.kernel);
  const std::vector<std::string> list(names.begin(), names.end());
  if (!options.kernel.empty() && !names.contains(options.kernel))
    throw_input_error("--kernel: there is no kernel '{}'.{} There are {}.", options.kernel,
                      did_you_mean(options.kernel, list), join_names(list));
  std::erase_if(all, [&](const KernelCase& one) {
    return (!options.kernel.empty() && one.kernel != options.kernel) ||
           std::find(one.targets.begin(), one.targets.end(), options.target) == one.targets.end();
  });
  if (all.empty()) throw_input_error("--kernel: '{}' does not run on {}.", options.kernel, to_string(options.target));
  std::vector<std::string> shapes;
  for (const KernelCase& one : all)
    if (shapes.size() < 8) shapes.push_back("'" + one.shape + "'");
  const std::size_t more = all.size() - shapes.size();
  std::erase_if(all, [&](const KernelCase& one) { return one.shape.find(options.shape) == std::string::npos; });
  if (all.empty())
    throw_input_error("--shape: no shape{} on {} has '{}' in it. There {} {}{}.",
                      options.kernel.empty() ? "" : " of " + options.kernel, to_string(options.target), options.shape,
                      shapes.size() == 1 ? "is" : "are", fmt::join(shapes, "; "),
                      more > 0 ? fmt::format(" and {} more", more) : "");
  if (options.target == KernelTarget::cuda && !cuda_missing().empty())
    throw_input_error("--device cuda: {}", cuda_missing());
  return all;
}

KernelBench measure_kernels(const std::vector<KernelCase>& cases, const KernelBenchOptions& options,
                            const std::function<void(const KernelBench&)>& after_case) {
  ThreadPool pool(options.threads);
  Limits limits(options.target, pool);
  KernelBench bench{options.target,
                    machine_of(options.target, pool),
                    options.target == KernelTarget::cpu ? pool.size() : 0,
                    limits.disturbed(),
                    cases.size(),
                    {},
                    {}};
  bench.rows.reserve(cases.size());
  for (const KernelCase& one : cases) {
    if (!bench.stopped.empty()) break;
    try {
      bench.rows.push_back(measure(one, options, pool, limits, bench.no_share.empty()));
    } catch (const Interrupted&) {
      break;
    } catch (const std::exception& error) {
      KernelTime& row = bench.rows.emplace_back();
      row.kernel = one.kernel;
      row.shape = one.shape;
      row.error = sentence_of(error);
      bench.stopped = device_lost(one, error);
    }
    if (after_case) after_case(bench);
  }
  return bench;
}

KernelChecks check_kernels(const std::vector<KernelCase>& cases, const KernelBenchOptions& options,
                           const std::function<void(const KernelChecks&)>& after_case) {
  ThreadPool pool(options.threads);
  KernelChecks checks{options.target, machine_of(options.target, pool), cases.size(), {}, {}};
  std::map<std::size_t, KernelCheck> finished;
  std::mutex mutex;
  const auto finish = [&](std::size_t i, std::string error, std::string wrong) {
    const std::lock_guard lock(mutex);
    finished[i] = {cases[i].kernel, cases[i].shape, std::move(error), std::move(wrong)};
    checks.rows.clear();
    for (const auto& [index, row] : finished) checks.rows.push_back(row);
    if (after_case) after_case(checks);
  };
  const auto interrupted = [&] { return options.interrupted && options.interrupted(); };
  // A case's inputs and results are a few hundred MB, its oracle may take some 15 s of one thread: as many cases at
  // a time as there are threads.
  for (std::size_t begin = 0; begin < cases.size() && !interrupted() && checks.stopped.empty(); begin += pool.size()) {
    const std::size_t some = std::min<std::size_t>(pool.size(), cases.size() - begin);
    std::vector<std::function<std::vector<double>()>> oracles(some);
    std::vector<std::vector<float>> results(some);
    for (std::size_t i = 0; i < some && !interrupted() && checks.stopped.empty(); ++i) {
      std::string error;
      try {
        CaseMemory memory(options.target, pool);
        const PreparedCase prepared = cases[begin + i].prepare(memory);
        prepared.run();
        memory.wait();
        results[i] = prepared.result();
        oracles[i] = prepared.expected;
      } catch (const std::exception& thrown) {
        error = sentence_of(thrown);
        checks.stopped = device_lost(cases[begin + i], thrown);
      }
      if (!error.empty()) finish(begin + i, std::move(error), {});
    }
    pool.parallel_for(some, [&](std::size_t i) {
      if (!oracles[i] || interrupted()) return;
      std::string error, wrong;
      try {
        wrong = wrong_result(cases[begin + i], results[i], oracles[i]());
      } catch (const std::exception& thrown) {
        error = sentence_of(thrown);
      }
      finish(begin + i, std::move(error), std::move(wrong));
    });
  }
  return checks;
}

}  // namespace tandem::eval
