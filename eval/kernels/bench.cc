#include "eval/kernels/bench.h"

#include <algorithm>
#include <chrono>
#include <fmt/format.h>
#include <map>
#include <mutex>
#include <new>
#include <set>

#include "engine/kernels/isa.h"
#include "eval/kernels/cpu_limits.h"
#include "eval/kernels/gpu_limits.h"
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

double seconds_of(CaseMemory& memory, const PreparedCase& prepared, unsigned calls) {
  const auto work = [&] {
    for (unsigned i = 0; i < calls; ++i) prepared.run();
  };
  if (memory.cuda()) return cuda_seconds(memory.stream(), work);
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

/// What the target attains now, per second: bytes or FLOPs.
struct Limits {
  ThreadPool& pool;
  std::unique_ptr<GpuLimits> gpu;  // none: of the CPU
  ThreadPool alone = ThreadPool(1);

  /// 0: not known.
  double of(const KernelCase& one) {
    if (gpu) return gpu->of(one);
    ThreadPool& threads = one.threaded ? pool : alone;
    if (one.bound == Bound::bytes) return read_bandwidth_now(threads);
    // A vector holds half as many float64.
    return arithmetic_rate(one.bound == Bound::bf16 ? Arithmetic::bf16_pairs : Arithmetic::f32, threads) /
           (one.bound == Bound::f64 ? 2 : 1);
  }
  /// Empty, or why shares mean nothing now.
  std::string disturbed() { return gpu ? std::string() : busy_machine(pool); }
};

KernelTime measure(const KernelCase& one, const KernelBenchOptions& options, ThreadPool& pool, Limits& limits,
                   bool with_share) {
  CaseMemory memory(options.target, pool);
  const PreparedCase prepared = one.prepare(memory);
  seconds_of(memory, prepared, 1);  // warms up
  const double one_call = std::max(seconds_of(memory, prepared, 1), 1e-7);
  const auto calls = static_cast<unsigned>(std::clamp(options.round_seconds / one_call, 1.0, 20000.0));
  const double bytes = options.target == KernelTarget::cpu && one.cpu_bytes > 0 ? one.cpu_bytes : one.bytes;
  const double amount = one.bound == Bound::bytes ? bytes : one.flops;
  KernelTime time{.kernel = one.kernel, .shape = one.shape, .bytes = bytes, .flops = one.flops};
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
    seconds.push_back(seconds_of(memory, prepared, calls) / calls);
    if (limit > 0) shares.push_back(amount / seconds.back() / limit);
  }
  time.median_us = median(seconds) * 1e6;
  time.least_us = std::ranges::min(seconds) * 1e6;
  time.most_us = std::ranges::max(seconds) * 1e6;
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
    const std::string shape = text.substr(colon + 1);
    std::vector<KernelCase> found =
        bench_cases({.target = options.target, .kernel = text.substr(0, colon), .shape = shape});
    const auto whole = std::ranges::find(found, shape, &KernelCase::shape);
    if (whole != found.end()) found = {*whole};
    append(named, found);
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
           std::ranges::count(one.targets, options.target) == 0;
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
  Limits limits{pool, options.target == KernelTarget::cuda ? std::make_unique<GpuLimits>(pool) : nullptr};
  KernelBench bench{{options.target, machine_of(options.target, pool), cases.size(), {}, {}},
                    options.target == KernelTarget::cpu ? pool.size() : 0,
                    limits.disturbed()};
  bench.rows.reserve(cases.size());
  for (const KernelCase& one : cases) {
    if (!bench.stopped.empty()) break;
    try {
      bench.rows.push_back(measure(one, options, pool, limits, bench.no_share.empty()));
    } catch (const Interrupted&) {
      break;
    } catch (const std::exception& error) {
      bench.rows.push_back({.kernel = one.kernel, .shape = one.shape, .error = sentence_of(error)});
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
      try {
        CaseMemory memory(options.target, pool);
        const PreparedCase prepared = cases[begin + i].prepare(memory);
        prepared.run();
        memory.wait();
        results[i] = prepared.result();
        oracles[i] = prepared.expected;
      } catch (const std::exception& thrown) {
        checks.stopped = device_lost(cases[begin + i], thrown);
        finish(begin + i, sentence_of(thrown), {});
      }
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
