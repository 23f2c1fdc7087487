#include "eval/kernels/peak.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <fmt/core.h>
#include <immintrin.h>
#include <map>
#include <vector>

#include "engine/kernels/isa.h"
#include "eval/kernels/bandwidth.h"

namespace tandem {
namespace {

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
  switch (active_isa()) {
    case Isa::amx:
      return arithmetic == Arithmetic::bf16_pairs ? amx_rounds : avx512_rounds;
    case Isa::avx512_bf16:
      return arithmetic == Arithmetic::bf16_pairs ? bf16_rounds : avx512_rounds;
    case Isa::avx512:
      return avx512_rounds;
    case Isa::avx2:
      return avx2_rounds;
    case Isa::baseline:
      break;
  }
  return sse_rounds;
}

double rate(Rounds rounds, ThreadPool& pool, double seconds) {
  const unsigned threads = pool.size();
  std::vector<double> flops(threads, 0.0);
  const auto begin = std::chrono::steady_clock::now();
  const auto passed = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(); };
  // One index per thread, so that a thread that gets no CPU holds up the end.
  pool.parallel_for(threads, [&](std::size_t i) {
    double done = 0;
    while (passed() < seconds) done += rounds();
    flops[i] = done;
  });
  double all = 0;
  for (const double done : flops) all += done;
  return all / passed();
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

}  // namespace

double arithmetic_rate(Arithmetic arithmetic, ThreadPool& pool) {
  return rate(rounds_of(arithmetic), pool, 0.01);
}

const std::string& busy_machine(ThreadPool& pool) {
  static std::map<unsigned, std::string> known;
  const auto found = known.find(pool.size());
  return found != known.end() ? found->second : known[pool.size()] = why_busy(pool);
}

}  // namespace tandem
