#include "eval/kernels/bench.h"

#include <algorithm>
#include <chrono>
#include <fmt/core.h>
#include <map>
#include <mutex>
#include <new>
#include <set>

#include "engine/kernels/convert.h"
#include "engine/kernels/isa.h"
#include "engine/kernels/linear_gpu.h"
#include "eval/kernels/bandwidth.h"
#include "eval/kernels/neighbours.h"
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

/// What the target attains now, per second: bytes or FLOPs. A GPU's f32 and f64 rates are not measured.
class Limits {
 public:
  Limits(Target target, ThreadPool& pool) : target_(target), pool_(pool), alone_(1) {
    if (target == Target::cuda) {
      copy_ = CudaMemory(2 * kCopyBytes);
      stream_ = std::make_unique<OwnedStream>();
    }
  }
  /// 0: not known.
  double of(const KernelCase& one) {
    if (target_ == Target::cuda) {
      if (one.bound == Bound::bf16) return product_rate();
      if (one.bound != Bound::bytes) return 0;
      return one.link != Link::none ? link_rate(one.link) : copy_rate();
    }
    ThreadPool& pool = one.threaded ? pool_ : alone_;
    if (one.bound == Bound::bytes) return read_bandwidth_now(pool);
    // A vector holds half as many float64.
    return arithmetic_rate(one.bound == Bound::bf16 ? Arithmetic::bf16_pairs : Arithmetic::f32, pool) /
           (one.bound == Bound::f64 ? 2 : 1);
  }
  /// Empty, or why shares mean nothing now.
  std::string disturbed() {
    if (target_ == Target::cuda) return {};
    return busy_machine(pool_);
  }

 private:
  static constexpr std::size_t kCopyBytes = std::size_t{1} << 29, kLinkBytes = std::size_t{1} << 28;
  double copy_rate() {
    char* const at = copy_.as<char>();
    const double seconds = cuda_seconds(*stream_, [&] { cuda_copy(at, at + kCopyBytes, kCopyBytes, *stream_); });
    return 2.0 * static_cast<double>(kCopyBytes) / seconds;
  }
  /// Of one copy between pinned and device memory, in the direction of the case.
  double link_rate(Link link) {
    if (pinned_.bytes() == 0) {
      pinned_ = PinnedMemory(kLinkBytes);
      std::fill_n(pinned_.as<char>(), kLinkBytes, char{1});
    }
    void* const host = pinned_.as<>();
    void* const device = copy_.as<char>() + kCopyBytes;  // beyond the product's factors
    const bool up = link == Link::to_device;
    const double seconds =
        cuda_seconds(*stream_, [&] { cuda_copy(up ? device : host, up ? host : device, kLinkBytes, *stream_); });
    return static_cast<double>(kLinkBytes) / seconds;
  }
  /// The best that cuBLASLt reached on a large bf16 product so far.
  double product_rate() {
    constexpr std::uint32_t kSize = 8192;
    char* const at = copy_.as<char>();
    const std::size_t part = std::size_t{kSize} * kSize * 2;
    if (!product_) {  // all zero would be too fast
      product_ = std::make_unique<LinearCuda>();
      const auto numbers = case_normals(std::size_t{1} << 16, 1);
      std::vector<char> block(numbers.size() * 2);
      from_f32(numbers.data(), DType::bf16, numbers.size(), block.data());
      for (std::size_t i = 0; i < 2 * part; i += block.size()) cuda_copy(at + i, block.data(), block.size(), *stream_);
    }
    const MatrixView weights{at, DType::bf16, kSize, kSize};
    const double seconds = cuda_seconds(
        *stream_, [&] { (*product_)(at + part, weights, nullptr, at + 2 * part, DType::f32, kSize, *stream_); });
    return best_product_ = std::max(best_product_, 2.0 * kSize * kSize * kSize / seconds);
  }
  Target target_;
  ThreadPool& pool_;
  ThreadPool alone_;
  std::unique_ptr<LinearCuda> product_;
  double best_product_ = 0;
  CudaMemory copy_;
  PinnedMemory pinned_;
  std::unique_ptr<OwnedStream> stream_;
};

KernelTime measure(const KernelCase& one, const KernelBenchOptions& options, ThreadPool& pool, Limits& limits,
                   bool with_share) {
  CaseMemory memory(options.target, pool);
  const PreparedCase prepared = one.prepare(memory);
  Stopwatch watch(memory, prepared, options.round_seconds);
  const double bytes = options.target == Target::cpu && one.cpu_bytes > 0 ? one.cpu_bytes : one.bytes;
  const double amount = one.bound == Bound::bytes ? bytes : one.flops;
  KernelTime time;
  std::vector<double> seconds, shares;
  const Neighbours neighbours;
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
  if (options.target == Target::cpu) time.disturbed = neighbours.disturbance();
  if (!shares.empty() && time.no_share.empty() && time.disturbed.empty()) time.share = median(shares);
  return time;
}

std::string machine_of(Target target, const ThreadPool& pool) {
  if (target == Target::cuda) return cuda_device().name;
  return fmt::format("{}, {} thread{}, {}", this_machine().cpu_model, pool.size(), pool.size() == 1 ? "" : "s",
                     to_string(active_isa()));
}

}  // namespace

std::vector<KernelCase> bench_cases(const KernelBenchOptions& options) {
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
  if (options.target == Target::cuda && !cuda_missing().empty()) throw_input_error("--device cuda: {}", cuda_missing());
  return all;
}

KernelBench measure_kernels(const std::vector<KernelCase>& cases, const KernelBenchOptions& options,
                            const std::function<void(const KernelBench&)>& after_case) {
  ThreadPool pool(options.threads);
  Limits limits(options.target, pool);
  KernelBench bench{options.target,
                    machine_of(options.target, pool),
                    options.target == Target::cpu ? pool.size() : 0,
                    limits.disturbed(),
                    cases.size(),
                    {}};
  bench.rows.reserve(cases.size());
  for (const KernelCase& one : cases) {
    try {
      bench.rows.push_back(measure(one, options, pool, limits, bench.no_share.empty()));
    } catch (const Interrupted&) {
      break;
    } catch (const std::exception& error) {
      KernelTime& row = bench.rows.emplace_back();
      row.kernel = one.kernel;
      row.shape = one.shape;
      row.error = sentence_of(error);
    }
    if (after_case) after_case(bench);
  }
  return bench;
}

KernelChecks check_kernels(const std::vector<KernelCase>& cases, const KernelBenchOptions& options,
                           const std::function<void(const KernelChecks&)>& after_case) {
  ThreadPool pool(options.threads);
  KernelChecks checks{options.target, machine_of(options.target, pool), cases.size(), {}};
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
  for (std::size_t begin = 0; begin < cases.size() && !interrupted(); begin += pool.size()) {
    const std::size_t some = std::min<std::size_t>(pool.size(), cases.size() - begin);
    std::vector<std::function<std::vector<double>()>> oracles(some);
    std::vector<std::vector<float>> results(some);
    for (std::size_t i = 0; i < some && !interrupted(); ++i) {
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
