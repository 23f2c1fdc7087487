// Matrix kernels against the machine: GB/s of what must be read, GFLOP/s of what must be computed, and `share`, the
// part of what the machine attains: of pure reading, or of multiply-adds in registers. `of_openblas` is the rate of a
// product relative to OpenBLAS's in f32, of the same shape and with as many threads. A share is left out, and a warning
// says why, where another process keeps the machine busy. The argument of each bench is the number of threads.
// TANDEM_ISA chooses the build, and OPENBLAS_CORETYPE OpenBLAS's kernels.
#include <algorithm>
#include <benchmark/benchmark.h>
#include <vector>

#include "bench/measure.h"
#include "engine/kernels/blas.h"
#include "engine/kernels/kernel_table.h"
#include "engine/kernels/linear.h"

namespace tandem {
namespace {

void pure_read(benchmark::State& state) {
  ThreadPool pool(threads_of(state));
  double rate = 0;
  for (int round = 0; round < 16; ++round) rate = std::max(rate, read_bandwidth_now(pool));
  for (auto _ : state) state.SetIterationTime(1e9 / rate);  // one GB
  state.counters["GB/s"] = rate / 1e9;
}
BENCHMARK(pure_read)->ArgName("threads")->Arg(1)->Arg(usable_threads())->UseManualTime()->Iterations(1);

// Normal numbers of a stored type, in huge pages where the system has them, as what they are compared with.
class Weights {
 public:
  Weights(DType type, std::uint32_t rows, std::uint32_t cols)
      : memory_(std::size_t{rows} * cols * size_of(type)), view_{memory_.data(), type, rows, cols} {
    const auto values = normals(std::size_t{1} << 16);
    std::vector<char> block(values.size() * size_of(type));
    kernels().narrow(values.data(), type, values.size(), block.data());
    for (std::size_t at = 0; at < memory_.bytes(); at += block.size())
      std::copy_n(block.data(), std::min(block.size(), memory_.bytes() - at), memory_.data() + at);
  }
  const MatrixView& view() const { return view_; }

 private:
  PrivateMemory memory_;
  MatrixView view_;
};

// Counter `of_openblas`, where it is installed: the median of seven ratios, measured in turn. Each thread has an equal
// part of w for OpenBLAS.
template <class Kernel>
void report_of_openblas(benchmark::State& state, const std::vector<float>& x, const MatrixView& w, std::uint32_t n,
                        ThreadPool& pool, const Kernel& kernel) {
  if (blas_kernels().empty()) return;
  std::vector<float> wide(std::size_t{w.rows} * w.cols), y(std::size_t{n} * w.rows);
  kernels().widen(w.data, w.type, 0, wide.size(), wide.data());
  const std::uint32_t part = (w.rows + pool.size() - 1) / pool.size();
  const auto openblas = [&] {
    pool.parallel_for(pool.size(), [&](std::size_t thread) {
      const std::uint32_t first = std::min(static_cast<std::uint32_t>(thread) * part, w.rows);
      const std::uint32_t columns = std::min(part, w.rows - first);
      if (columns == 0) return;
      blas_product(x.data(), wide.data() + std::size_t{first} * w.cols, y.data() + first, n, w.cols, columns, w.rows);
    });
  };
  openblas();
  std::array<double, 7> ratios{};
  for (double& ratio : ratios) ratio = seconds_of(openblas) / seconds_of(kernel);
  std::nth_element(ratios.begin(), ratios.begin() + 3, ratios.end());
  state.counters["of_openblas"] = ratios[3];
}

// Weights that no cache holds; n rows of x.
void linear_decode(benchmark::State& state, DType type, std::uint32_t n, std::uint32_t in, std::uint32_t out) {
  ThreadPool pool(threads_of(state));
  const Weights w(type, out, in);
  const auto x = normals(std::size_t{n} * in);
  std::vector<float> y(std::size_t{n} * out);
  const auto kernel = [&] { linear(pool, x.data(), w.view(), nullptr, y.data(), n); };
  for (auto _ : state) kernel();
  report_read(state, static_cast<double>(w.view().bytes()), pool, kernel);
  report_flops(state, 2.0 * n * in * out);
  if (type == DType::f32) report_of_openblas(state, x, w.view(), n, pool, kernel);
}
constexpr std::uint32_t kHidden = 4096, kMlp = 14336;  // an 8B Llama
BENCHMARK_CAPTURE(linear_decode, f32_n1, DType::f32, 1, kHidden, kMlp)->Apply(each_thread_count);
BENCHMARK_CAPTURE(linear_decode, f16_n1, DType::f16, 1, kHidden, kMlp)->Apply(each_thread_count);
BENCHMARK_CAPTURE(linear_decode, bf16_n1, DType::bf16, 1, kHidden, kMlp)->Apply(each_thread_count);
BENCHMARK_CAPTURE(linear_decode, bf16_n1_down, DType::bf16, 1, kMlp, kHidden)->Apply(each_thread_count);
BENCHMARK_CAPTURE(linear_decode, bf16_n1_narrow, DType::bf16, 1, 896, 65536)->Apply(each_thread_count);
BENCHMARK_CAPTURE(linear_decode, bf16_n2, DType::bf16, 2, kHidden, kMlp)->Apply(each_thread_count);
BENCHMARK_CAPTURE(linear_decode, bf16_n4, DType::bf16, 4, kHidden, kMlp)->Apply(each_thread_count);
BENCHMARK_CAPTURE(linear_decode, bf16_n8, DType::bf16, 8, kHidden, kMlp)->Apply(each_thread_count);
BENCHMARK_CAPTURE(linear_decode, bf16_n16, DType::bf16, 16, kHidden, kMlp)->Apply(each_thread_count);

using Prefill = void (*)(ThreadPool&, const float*, const MatrixView&, const float*, float*, std::uint32_t);

void linear_many_rows(benchmark::State& state, Prefill prefill, DType type, std::uint32_t n, std::uint32_t in,
                      std::uint32_t out) {
  ThreadPool pool(threads_of(state));
  const Weights w(type, out, in);
  const auto x = normals(std::size_t{n} * in);
  std::vector<float> y(std::size_t{n} * out);
  const auto kernel = [&] { prefill(pool, x.data(), w.view(), nullptr, y.data(), n); };
  for (auto _ : state) kernel();
  const Arithmetic arithmetic =
      prefill == linear_prefill_bf16 && type == DType::bf16 ? Arithmetic::bf16_pairs : Arithmetic::f32;
  report_share(
      state, 2.0 * n * in * out, pool, [&] { return arithmetic_rate(arithmetic, pool); }, kernel);
  report_flops(state, 2.0 * n * in * out);
  report_of_openblas(state, x, w.view(), n, pool, kernel);
}
BENCHMARK_CAPTURE(linear_many_rows, f32_n512, linear_prefill, DType::f32, 512, 2048, 4096)->Apply(each_thread_count);
BENCHMARK_CAPTURE(linear_many_rows, f32_n64, linear_prefill, DType::f32, 64, 2048, 4096)->Apply(each_thread_count);
BENCHMARK_CAPTURE(linear_many_rows, f16_n512, linear_prefill, DType::f16, 512, 2048, 4096)->Apply(each_thread_count);
BENCHMARK_CAPTURE(linear_many_rows, rounded_n512_up, linear_prefill_bf16, DType::bf16, 512, 896, 4864)
    ->Apply(each_thread_count);
BENCHMARK_CAPTURE(linear_many_rows, rounded_n512_down, linear_prefill_bf16, DType::bf16, 512, 4864, 896)
    ->Apply(each_thread_count);
BENCHMARK_CAPTURE(linear_many_rows, rounded_n512_out, linear_prefill_bf16, DType::bf16, 512, 896, 896)
    ->Apply(each_thread_count);
BENCHMARK_CAPTURE(linear_many_rows, rounded_n4096_up, linear_prefill_bf16, DType::bf16, 4096, 896, 4864)
    ->Apply(each_thread_count);
BENCHMARK_CAPTURE(linear_many_rows, rounded_n512_8b, linear_prefill_bf16, DType::bf16, 512, kHidden, kMlp)
    ->Apply(each_thread_count);

void empty_loop(benchmark::State& state) {
  ThreadPool pool(threads_of(state));
  for (auto _ : state) pool.parallel_for(pool.size(), [](std::size_t) {});
}
BENCHMARK(empty_loop)->Apply(each_thread_count);

}  // namespace
}  // namespace tandem
