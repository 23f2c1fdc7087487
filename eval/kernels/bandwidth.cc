#include "eval/kernels/bandwidth.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <map>

#include "eval/kernels/private_memory.h"

namespace tandem {
namespace {

constexpr std::size_t kBytes = std::size_t{512} << 20;
constexpr std::size_t kPart = std::size_t{1} << 20;

// XOR of everything in independent chains over four streams, so that memory is the limit. One stream alone reads less
// than the kernels do: the hardware prefetches each stream only so far ahead.
__attribute__((noinline)) std::uint64_t read_all(const std::uint64_t* from, std::size_t bytes) {
  constexpr std::size_t kStreams = 4;
  const std::size_t stream = bytes / 8 / kStreams;
  std::uint64_t chain[kStreams][8] = {};
  for (std::size_t i = 0; i < stream; i += 8)
    for (std::size_t s = 0; s < kStreams; ++s) {
      __builtin_prefetch(from + s * stream + i + 128);
      for (std::size_t j = 0; j < 8; ++j) chain[s][j] ^= from[s * stream + i + j];
    }
  std::uint64_t all = 0;
  for (const auto& lane : chain)
    for (const std::uint64_t value : lane) all ^= value;
  return all;
}

}  // namespace

double read_rate(ThreadPool& pool, std::span<const char> memory) {
  const auto begin = std::chrono::steady_clock::now();
  pool.parallel_for(memory.size() / kPart, [&](std::size_t part) {
    std::uint64_t all = read_all(reinterpret_cast<const std::uint64_t*>(memory.data() + part * kPart), kPart);
    asm volatile("" : "+r"(all));
  });
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  return static_cast<double>(memory.size()) / seconds.count();
}

double read_bandwidth_now(ThreadPool& pool) {
  static const PrivateMemory memory(kBytes);
  return read_rate(pool, {memory.data(), memory.bytes()});
}

double read_bandwidth(unsigned threads) {
  static std::map<unsigned, double> known;
  if (const auto found = known.find(threads); found != known.end()) return found->second;
  ThreadPool pool(threads);
  double best = 0;
  for (int round = 0; round < 16; ++round) best = std::max(best, read_bandwidth_now(pool));
  return known[threads] = best;
}

}  // namespace tandem
