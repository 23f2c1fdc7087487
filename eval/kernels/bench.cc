#include "eval/kernels/bench.h"

#include <algorithm>
#include <chrono>
#include <fmt/core.h>
#include <nlohmann/json.hpp>
#include <set>

#include "engine/kernels/convert.h"
#include "engine/kernels/isa.h"
#include "engine/kernels/linear_gpu.h"
#include "eval/kernels/bandwidth.h"
#include "eval/kernels/neighbours.h"
#include "eval/kernels/peak.h"
#include "eval/report/json_text.h"
#include "eval/report/schema.h"

namespace tandem::eval {
namespace {

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
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
  std::vector<double> seconds, shares;
  const Neighbours neighbours;
  for (unsigned round = 0; round < options.rounds; ++round) {
    if (options.interrupted && options.interrupted()) throw Interrupted();
    const double limit = with_share ? limits.of(one) : 0;
    seconds.push_back(watch.round());
    if (limit > 0) shares.push_back(amount / seconds.back() / limit);
  }
  KernelTime time;
  time.kernel = one.kernel;
  time.shape = one.shape;
  time.bytes = bytes;
  time.flops = one.flops;
  time.median_us = median(seconds) * 1e6;
  time.least_us = *std::min_element(seconds.begin(), seconds.end()) * 1e6;
  time.most_us = *std::max_element(seconds.begin(), seconds.end()) * 1e6;
  if (options.target == Target::cpu) time.disturbed = neighbours.disturbance();
  if (!shares.empty() && time.disturbed.empty()) time.share = median(shares);
  return time;
}

std::vector<KernelCase> chosen_cases(const KernelBenchOptions& options) {
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

}  // namespace

KernelBench measure_kernels(const KernelBenchOptions& options) {
  const std::vector<KernelCase> cases = chosen_cases(options);
  ThreadPool pool(options.threads);
  Limits limits(options.target, pool);
  KernelBench bench;
  bench.target = options.target;
  bench.machine = options.target == Target::cuda
                      ? cuda_device().name
                      : fmt::format("{}, {} thread{}, {}", this_machine().cpu_model, pool.size(),
                                    pool.size() == 1 ? "" : "s", to_string(active_isa()));
  bench.no_share = limits.disturbed();
  bench.times.reserve(cases.size());
  for (std::size_t i = 0; i < cases.size(); ++i) {
    bench.times.push_back(measure(cases[i], options, pool, limits, bench.no_share.empty()));
    if (options.progress) options.progress(i + 1, cases.size());
  }
  return bench;
}

std::vector<KernelCheck> check_kernels(const KernelBenchOptions& options) {
  const std::vector<KernelCase> cases = chosen_cases(options);
  ThreadPool pool(options.threads);
  std::vector<KernelCheck> checks(cases.size());
  // A case's inputs and results are a few hundred MB, its oracle may take a minute of one thread: as many cases at a
  // time as there are threads.
  for (std::size_t begin = 0; begin < cases.size(); begin += pool.size()) {
    const std::size_t some = std::min<std::size_t>(pool.size(), cases.size() - begin);
    std::vector<std::function<std::vector<double>()>> oracles(some);
    std::vector<std::vector<float>> results(some);
    for (std::size_t i = 0; i < some; ++i) {
      if (options.interrupted && options.interrupted()) throw Interrupted();
      CaseMemory memory(options.target, pool);
      const PreparedCase prepared = cases[begin + i].prepare(memory);
      prepared.run();
      memory.wait();
      results[i] = prepared.result();
      oracles[i] = prepared.expected;
    }
    pool.parallel_for(some, [&](std::size_t i) {
      if (options.interrupted && options.interrupted()) throw Interrupted();
      const KernelCase& one = cases[begin + i];
      checks[begin + i] = {one.kernel, one.shape, wrong_result(one, results[i], oracles[i]())};
    });
    if (options.progress) options.progress(begin + some, cases.size());
  }
  return checks;
}

std::string kernel_check_text(std::span<const KernelCheck> checks) {
  std::string text;
  for (const KernelCheck& one : checks)
    text += fmt::format("{:<18} {:<70} {}\n", one.kernel, one.shape, one.wrong.empty() ? "right" : one.wrong);
  return text;
}

std::string kernel_check_json(std::span<const KernelCheck> checks) {
  nlohmann::ordered_json json = nlohmann::ordered_json::array();
  for (const KernelCheck& one : checks)
    json.push_back({{"kernel", one.kernel}, {"shape", one.shape}, {"wrong", one.wrong}});
  return json_text(json, 2) + "\n";
}

std::string kernel_bench_text(const KernelBench& bench) {
  std::string text = fmt::format("measured on {}\n\n", bench.machine);
  text += fmt::format("{:<18} {:<48} {:>10} {:>10} {:>10} {:>8} {:>9} {:>6}\n", "kernel", "shape", "us", "least",
                      "most", "GB/s", "GFLOP/s", "share");
  for (const KernelTime& time : bench.times) {
    const auto rate = [&](double amount) {
      return amount > 0 ? fmt::format("{:.4g}", amount / time.median_us * 1e-3) : std::string();
    };
    text += fmt::format("{:<18} {:<48} {:>10.2f} {:>10.2f} {:>10.2f} {:>8} {:>9} {:>6}{}\n", time.kernel, time.shape,
                        time.median_us, time.least_us, time.most_us, rate(time.bytes), rate(time.flops),
                        time.share >= 0 ? fmt::format("{:.2f}", time.share) : std::string(),
                        time.disturbed.empty() ? "" : " *");
  }
  text +=
      bench.target == Target::cpu
          ? "\nshare: of pure reads of memory by as many threads, in the same rounds; of multiply-adds in registers "
            "for\nmatrix kernels. What fits a cache can be above 1.\n"
          : "\nshare: of a copy within device memory (bytes read and written), in the same rounds; of a bf16 product "
            "of 8192 x 8192 x 8192\nfor matrix kernels; of a copy of 256 MiB between pinned and device memory, the "
            "same way, for what crosses the\nlink (gather, scatter_to_host, offload_pages, offload_tokens, "
            "merge_from_host), the bytes that cross it counted once.\nWhat fits the cache can be above 1. A time of a "
            "few us is the rate at which the host starts kernels.\n";
  const auto disturbed = std::find_if(bench.times.begin(), bench.times.end(),
                                      [](const KernelTime& time) { return !time.disturbed.empty(); });
  if (disturbed != bench.times.end())
    text += fmt::format("*: a neighbour was busy ({}), so the times are too long and there is no share.\n",
                        disturbed->disturbed);
  if (!bench.no_share.empty()) text += fmt::format("No shares: {}. Run it again on a quiet machine.\n", bench.no_share);
  return text;
}

std::string kernel_bench_json(const KernelBench& bench) {
  nlohmann::ordered_json json;
  json["device"] = to_string(bench.target);
  json["measured_on"] = bench.machine;
  if (!bench.no_share.empty()) json["no_share"] = bench.no_share;
  json["kernels"] = nlohmann::ordered_json::array();
  for (const KernelTime& time : bench.times) {
    nlohmann::ordered_json row;
    row["kernel"] = time.kernel;
    row["shape"] = time.shape;
    row["us"] = time.median_us;
    row["least_us"] = time.least_us;
    row["most_us"] = time.most_us;
    row["bytes"] = time.bytes;
    row["flops"] = time.flops;
    if (time.share >= 0) row["share"] = time.share;
    if (!time.disturbed.empty()) row["disturbed"] = time.disturbed;
    json["kernels"].push_back(std::move(row));
  }
  return json_text(json, 2) + "\n";
}

}  // namespace tandem::eval
