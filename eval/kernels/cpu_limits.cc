#include "eval/kernels/cpu_limits.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdint>
#include <ctime>
#include <fmt/core.h>
#include <fstream>
#include <immintrin.h>
#include <map>
#include <numeric>
#include <sstream>
#include <unistd.h>
#include <vector>

#include "engine/kernels/isa.h"

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

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

constexpr int kChains = 16;  // latency of up to 8 cycles times two units
constexpr std::uint64_t kRounds = 20000;

// Each runs kRounds times kChains independent operations and returns their FLOPs.
#define TANDEM_PEAK(name, isa, vector, zero, operation, flops) \
  __attribute__((target(isa), noinline)) double name() {       \
    vector chain[kChains];                                     \
    for (auto& v : chain) v = zero();                          \
    vector a = zero(), b = zero();                             \
    for (std::uint64_t i = 0; i < kRounds; ++i) {              \
      asm volatile("" : "+v"(a), "+v"(b));                     \
      for (auto& v : chain) {                                  \
        v = operation;                                         \
        asm volatile("" : "+v"(v));                            \
      }                                                        \
    }                                                          \
    for (auto& v : chain) asm volatile("" : "+v"(v));          \
    return static_cast<double>(kRounds) * kChains * (flops);   \
  }
TANDEM_PEAK(avx512_rounds, "avx512f", __m512, _mm512_setzero_ps, _mm512_fmadd_ps(a, b, v), 32)
TANDEM_PEAK(avx2_rounds, "avx2,fma", __m256, _mm256_setzero_ps, _mm256_fmadd_ps(a, b, v), 16)
TANDEM_PEAK(sse_rounds, "sse4.2", __m128, _mm_setzero_ps, _mm_add_ps(_mm_mul_ps(a, b), v), 8)
TANDEM_PEAK(bf16_rounds, "avx512f,avx512bf16", __m512, _mm512_setzero_ps,
            _mm512_dpbf16_ps(v, reinterpret_cast<__m512bh>(a), reinterpret_cast<__m512bh>(b)), 64)
#undef TANDEM_PEAK

// Four sums of 16 x 16, each of products with 32 numbers: a tile's 16 cycles hide the latency of 52 with fewer.
__attribute__((target("amx-tile,amx-bf16"), noinline)) double amx_rounds() {
  struct {
    std::uint8_t palette = 1, start_row = 0, reserved[14] = {};
    std::uint16_t bytes[16] = {64, 64, 64, 64, 64, 64};
    std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16};
  } config;
  asm volatile("" : : "r"(&config) : "memory");  // GCC 12 does not know that it is read (pairs_cpu.h)
  _tile_loadconfig(&config);
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  _tile_zero(4);
  _tile_zero(5);
  for (std::uint64_t i = 0; i < kRounds; ++i) {
    _tile_dpbf16ps(0, 4, 5);
    _tile_dpbf16ps(1, 4, 5);
    _tile_dpbf16ps(2, 4, 5);
    _tile_dpbf16ps(3, 4, 5);
  }
  _tile_release();
  return static_cast<double>(kRounds) * 4 * (2 * 16 * 16 * 32);
}

using Rounds = double (*)();
Rounds rounds_of(Arithmetic arithmetic) {
  constexpr std::pair<Rounds, Rounds> kRoundsOf[] = {{sse_rounds, sse_rounds},  // of each Isa: f32, bf16_pairs
                                                     {avx2_rounds, avx2_rounds},
                                                     {avx512_rounds, avx512_rounds},
                                                     {avx512_rounds, bf16_rounds},
                                                     {avx512_rounds, amx_rounds}};
  const auto& [f32, pairs] = kRoundsOf[static_cast<std::size_t>(active_isa())];
  return arithmetic == Arithmetic::bf16_pairs ? pairs : f32;
}

double rate(Rounds rounds, ThreadPool& pool, double seconds) {
  const unsigned threads = pool.size();
  std::vector<double> flops(threads, 0.0);
  const auto begin = std::chrono::steady_clock::now();
  const auto passed = [&] { return seconds_since(begin); };
  // One index per thread, so that a thread that gets no CPU holds up the end.
  pool.parallel_for(threads, [&](std::size_t i) {
    double done = 0;
    while (passed() < seconds) done += rounds();
    flops[i] = done;
  });
  return std::accumulate(flops.begin(), flops.end(), 0.0) / passed();
}

std::string why_busy(ThreadPool& pool) {
  constexpr double kScaling = 0.9, kSpread = 0.15;
  const unsigned threads = pool.size();
  ThreadPool alone(1);
  const Rounds rounds = rounds_of(Arithmetic::f32);
  const double one = rate(rounds, alone, 0.2), all = rate(rounds, pool, 0.2);
  if (threads > 1 && all < kScaling * threads * one)
    return fmt::format("{} threads compute {:.2f} times as fast as one, so another process uses the CPUs", threads,
                       all / one);
  std::array<double, 15> reads{};
  for (double& read : reads) read = read_bandwidth_now(pool);
  std::sort(reads.begin(), reads.end());
  if (const double spread = 1 - reads[reads.size() / 2] / reads.back(); spread > kSpread)
    return fmt::format(
        "of {} reads of memory the median is {:.0f} % below the best, so another process uses the memory", reads.size(),
        100 * spread);
  return {};
}

double own_seconds() {
  return static_cast<double>(std::clock()) / CLOCKS_PER_SEC;
}

double busy_now(unsigned& cpus) {
  return busy_seconds(std::ifstream("/proc/stat"), cpus);
}

}  // namespace

double read_rate(ThreadPool& pool, std::span<const char> memory) {
  const auto begin = std::chrono::steady_clock::now();
  pool.parallel_for(memory.size() / kPart, [&](std::size_t part) {
    std::uint64_t all = read_all(reinterpret_cast<const std::uint64_t*>(memory.data() + part * kPart), kPart);
    asm volatile("" : "+r"(all));
  });
  return static_cast<double>(memory.size()) / seconds_since(begin);
}

double read_bandwidth_now(ThreadPool& pool) {
  static const PrivateMemory memory(kBytes);
  return read_rate(pool, {memory.data(), memory.bytes()});
}

double arithmetic_rate(Arithmetic arithmetic, ThreadPool& pool) {
  return rate(rounds_of(arithmetic), pool, 0.01);
}

const std::string& busy_machine(ThreadPool& pool) {
  static std::map<unsigned, std::string> known;
  const auto found = known.find(pool.size());
  return found != known.end() ? found->second : known[pool.size()] = why_busy(pool);
}

double busy_seconds(std::istream&& proc_stat, unsigned& cpus) {
  cpus = 0;
  double busy = -1;
  for (std::string line; std::getline(proc_stat, line) && line.compare(0, 3, "cpu") == 0;) {
    if (line.size() > 3 && std::isdigit(static_cast<unsigned char>(line[3])) != 0) {
      ++cpus;
      continue;
    }
    std::istringstream fields(line.substr(3));
    double user = 0, nice = 0, system = 0, idle = 0, iowait = 0, irq = 0, softirq = 0, steal = 0;  // guests are in user
    if (fields >> user >> nice >> system >> idle >> iowait >> irq >> softirq >> steal)
      busy = (user + nice + system + irq + softirq + steal) / static_cast<double>(sysconf(_SC_CLK_TCK));
  }
  return cpus == 0 ? -1 : busy;
}

CpuContention::CpuContention() : begin_(std::chrono::steady_clock::now()), own_(own_seconds()) {
  unsigned cpus = 0;
  busy_ = busy_now(cpus);
}

double CpuContention::cpus() const {
  unsigned machine = 0;
  const double busy = busy_now(machine);
  const double wall = seconds_since(begin_);
  if (busy < 0 || busy_ < 0 || wall <= 0) return 0;
  return std::max(0.0, (busy - busy_ - (own_seconds() - own_)) / wall);
}

std::string CpuContention::disturbance() const {
  constexpr double kMostOfMachine = 0.1;
  unsigned machine = 0;
  const double others = busy_now(machine) < 0 ? 0 : cpus();
  if (others <= kMostOfMachine * machine) return {};
  return fmt::format("other processes used {:.2f} of {} CPUs", others, machine);
}

}  // namespace tandem
