// Kernels against the machine: GB/s of what must be read, GFLOP/s of what must be computed, and `share`, the part of
// the attainable read bandwidth. The argument of each bench is the number of threads. TANDEM_ISA chooses the build.
#include <algorithm>
#include <benchmark/benchmark.h>
#include <random>
#include <vector>

#include "bench/bandwidth.h"
#include "engine/kernels/convert.h"
#include "engine/kernels/linear.h"

namespace tandem {
namespace {

std::vector<float> normals(std::size_t n) {
  std::mt19937 engine(1);
  std::normal_distribution<float> normal;
  std::vector<float> block(1 << 16), values(n);  // one block repeated: drawing gigabytes of them takes minutes
  for (float& value : block) value = normal(engine);
  for (std::size_t i = 0; i < n; ++i) values[i] = block[i % block.size()];
  return values;
}

void report_bytes(benchmark::State& state, double bytes, unsigned threads) {
  const double total = bytes * static_cast<double>(state.iterations());
  state.counters["GB/s"] = benchmark::Counter(total / 1e9, benchmark::Counter::kIsRate);
  state.counters["share"] = benchmark::Counter(total / read_bandwidth(threads), benchmark::Counter::kIsRate);
}
void report_flops(benchmark::State& state, double flops) {
  state.counters["GFLOP/s"] =
      benchmark::Counter(flops * static_cast<double>(state.iterations()) / 1e9, benchmark::Counter::kIsRate);
}
unsigned threads_of(const benchmark::State& state) {
  return static_cast<unsigned>(state.range(0));
}
void each_thread_count(benchmark::internal::Benchmark* bench) {
  bench->UseRealTime()->ArgName("threads")->Arg(1);
  if (usable_threads() > 1) bench->Arg(usable_threads());
}

void pure_read(benchmark::State& state) {
  const double rate = read_bandwidth(threads_of(state));
  for (auto _ : state) state.SetIterationTime(1e9 / rate);  // one GB
  state.counters["GB/s"] = rate / 1e9;
}
BENCHMARK(pure_read)->ArgName("threads")->Arg(1)->Arg(usable_threads())->UseManualTime()->Iterations(1);

void linear_decode(benchmark::State& state, DType type, std::uint32_t n) {
  constexpr std::uint32_t kIn = 4096, kOut = 14336;  // the MLP of an 8B Llama
  ThreadPool pool(threads_of(state));
  std::vector<float> weights = normals(std::size_t{kIn} * kOut);
  if (type == DType::bf16) {
    auto* half = reinterpret_cast<char*>(weights.data());
    for (std::size_t i = 0; i < weights.size(); ++i) {
      const std::uint16_t bits = float_to_bf16(weights[i]);
      std::copy_n(reinterpret_cast<const char*>(&bits), 2, half + 2 * i);
    }
  }
  const MatrixView w{weights.data(), type, kOut, kIn};
  const auto x = normals(std::size_t{n} * kIn);
  std::vector<float> y(std::size_t{n} * kOut);
  for (auto _ : state) linear(pool, x.data(), w, nullptr, y.data(), n);
  report_bytes(state, static_cast<double>(w.bytes()), pool.size());
  report_flops(state, 2.0 * n * kIn * kOut);
}
BENCHMARK_CAPTURE(linear_decode, f32_n1, DType::f32, 1)->Apply(each_thread_count);
BENCHMARK_CAPTURE(linear_decode, bf16_n1, DType::bf16, 1)->Apply(each_thread_count);
BENCHMARK_CAPTURE(linear_decode, bf16_n8, DType::bf16, 8)->Apply(each_thread_count);

void linear_many_rows(benchmark::State& state, DType type, std::uint32_t n) {
  constexpr std::uint32_t kIn = 2048, kOut = 4096;
  ThreadPool pool(threads_of(state));
  const auto weights = normals(std::size_t{kIn} * kOut);  // bf16 reads the first half, as any bits
  const MatrixView w{weights.data(), type, kOut, kIn};
  const auto x = normals(std::size_t{n} * kIn);
  std::vector<float> y(std::size_t{n} * kOut);
  for (auto _ : state) linear_prefill(pool, x.data(), w, nullptr, y.data(), n);
  report_flops(state, 2.0 * n * kIn * kOut);
}
BENCHMARK_CAPTURE(linear_many_rows, f32_n512, DType::f32, 512)->Apply(each_thread_count);
BENCHMARK_CAPTURE(linear_many_rows, f32_n64, DType::f32, 64)->Apply(each_thread_count);
BENCHMARK_CAPTURE(linear_many_rows, f16_n512, DType::f16, 512)->Apply(each_thread_count);

void empty_loop(benchmark::State& state) {
  ThreadPool pool(threads_of(state));
  for (auto _ : state) pool.parallel_for(pool.size(), [](std::size_t) {});
}
BENCHMARK(empty_loop)->Apply(each_thread_count);

}  // namespace
}  // namespace tandem
