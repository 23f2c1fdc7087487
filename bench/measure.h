// What the kernel benches share: numbers to compute on, and a kernel's share of what the machine attains. The argument
// of each bench is the number of threads. A share is left out, and a warning says why, where another process keeps the
// machine busy.
#pragma once

#include <algorithm>
#include <array>
#include <benchmark/benchmark.h>
#include <chrono>
#include <cstddef>
#include <fmt/core.h>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "eval/kernels/cpu_limits.h"

namespace tandem {

inline std::vector<float> normals(std::size_t n) {
  std::mt19937 engine(1);
  std::normal_distribution<float> normal;
  std::vector<float> block(1 << 16), values(n);  // one block repeated: drawing gigabytes of them takes minutes
  for (float& value : block) value = normal(engine);
  for (std::size_t i = 0; i < n; ++i) values[i] = block[i % block.size()];
  return values;
}

// Whether shares mean something; says once per thread count why not.
inline bool machine_is_quiet(ThreadPool& pool) {
  static std::set<unsigned> said;
  const std::string& busy = busy_machine(pool);
  if (!busy.empty() && said.insert(pool.size()).second)
    fmt::print(stderr, "No shares with {} threads: {}. Run it again on a quiet machine.\n", pool.size(), busy);
  return busy.empty();
}

/// Seconds per call, of as many as take 20 ms.
template <class Kernel>
double seconds_of(const Kernel& kernel) {
  int runs = 0;
  const auto begin = std::chrono::steady_clock::now();
  std::chrono::duration<double> seconds{};
  do {
    kernel();
    ++runs;
    seconds = std::chrono::steady_clock::now() - begin;
  } while (seconds.count() < 0.02);
  return seconds.count() / runs;
}

// Counter `share`: the median of seven ratios of the kernel's rate to that of the machine, measured in turn, because
// what a machine attains changes within a run. None where others used the CPUs meanwhile.
template <class Limit, class Kernel>
void report_share(benchmark::State& state, double amount, ThreadPool& pool, const Limit& limit, const Kernel& kernel) {
  if (!machine_is_quiet(pool)) return;
  const CpuContention neighbours;
  std::array<double, 7> ratios{};
  for (double& ratio : ratios) {
    const double attainable = limit();
    ratio = amount / seconds_of(kernel) / attainable;
  }
  std::nth_element(ratios.begin(), ratios.begin() + 3, ratios.end());
  if (const std::string disturbed = neighbours.disturbance(); !disturbed.empty())
    state.SetLabel("no share: " + disturbed);
  else
    state.counters["share"] = ratios[3];
}

inline void report_flops(benchmark::State& state, double flops) {
  state.counters["GFLOP/s"] =
      benchmark::Counter(flops * static_cast<double>(state.iterations()) / 1e9, benchmark::Counter::kIsRate);
}
inline unsigned threads_of(const benchmark::State& state) {
  return static_cast<unsigned>(state.range(0));
}
inline void each_thread_count(benchmark::internal::Benchmark* bench) {
  bench->UseRealTime()->ArgName("threads")->Arg(1);
  if (usable_threads() > 1) bench->Arg(usable_threads());
}

/// GB/s of what a kernel that has just run state.iterations() times reads.
inline void report_rate(benchmark::State& state, double bytes) {
  state.counters["GB/s"] =
      benchmark::Counter(bytes * static_cast<double>(state.iterations()) / 1e9, benchmark::Counter::kIsRate);
}
/// The same, and its share of a pure read.
template <class Kernel>
void report_read(benchmark::State& state, double bytes, ThreadPool& pool, const Kernel& kernel) {
  report_rate(state, bytes);
  report_share(
      state, bytes, pool, [&] { return read_bandwidth_now(pool); }, kernel);
}

}  // namespace tandem
