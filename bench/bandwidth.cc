#include "bench/bandwidth.h"

#include <algorithm>
#include <benchmark/benchmark.h>
#include <chrono>
#include <cstdint>
#include <map>
#include <vector>

#include "engine/kernels/thread_pool.h"

namespace tandem {
namespace {

constexpr std::size_t kBytes = std::size_t{512} << 20;
constexpr std::size_t kPart = std::size_t{1} << 20;

// XOR of everything in independent chains, so that memory is the limit.
__attribute__((noinline)) std::uint64_t read_all(const std::uint64_t* from, std::size_t bytes) {
  std::uint64_t chain[8] = {};
  for (std::size_t i = 0; i < bytes / 8; i += 8)
    for (std::size_t j = 0; j < 8; ++j) chain[j] ^= from[i + j];
  std::uint64_t all = 0;
  for (const std::uint64_t value : chain) all ^= value;
  return all;
}

}  // namespace

double read_bandwidth(unsigned threads) {
  static std::map<unsigned, double> known;
  if (const auto found = known.find(threads); found != known.end()) return found->second;
  static const std::vector<std::uint64_t> memory(kBytes / 8, 1);
  ThreadPool pool(threads);
  double best = 0;
  for (int round = 0; round < 8; ++round) {
    const auto begin = std::chrono::steady_clock::now();
    pool.parallel_for(kBytes / kPart, [&](std::size_t part) {
      benchmark::DoNotOptimize(read_all(memory.data() + part * kPart / 8, kPart));
    });
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    best = std::max(best, static_cast<double>(kBytes) / seconds.count());
  }
  return known[threads] = best;
}

}  // namespace tandem
