// Kernels against the machine: GB/s of what must be read, GFLOP/s of what must be computed, and `share`, the part of
// the attainable read bandwidth. The argument of each bench is the number of threads. TANDEM_ISA chooses the build.
#include <algorithm>
#include <benchmark/benchmark.h>
#include <numeric>
#include <random>
#include <vector>

#include "bench/bandwidth.h"
#include "engine/kernels/attention.h"
#include "engine/kernels/convert.h"
#include "engine/kernels/digest.h"
#include "engine/kernels/linear.h"
#include "engine/kernels/topk.h"

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

/// 64 MiB of K and as much of V per task, heads of 128; each thread attends its own part of the spans.
void partial(benchmark::State& state, std::uint32_t group, std::uint32_t span_tokens, bool shuffled) {
  constexpr std::uint32_t kDim = 128, kTokens = 1 << 17;
  ThreadPool pool(threads_of(state));
  const auto k = normals(std::size_t{kTokens} * kDim), v = normals(k.size()), q = normals(std::size_t{group} * kDim);
  std::vector<KvSpan> spans;
  for (std::uint32_t t = 0; t < kTokens; t += span_tokens)
    spans.push_back({k.data() + std::size_t{t} * kDim, v.data() + std::size_t{t} * kDim, span_tokens, ~0u});
  if (shuffled) std::shuffle(spans.begin(), spans.end(), std::mt19937(2));
  constexpr std::size_t kParts = 16;
  std::vector<float> o(kParts * group * kDim), lse(kParts * group);
  for (auto _ : state)
    pool.parallel_for(kParts, [&](std::size_t part) {
      const std::size_t begin = spans.size() * part / kParts, end = spans.size() * (part + 1) / kParts;
      partial_attention(q.data(), std::span(spans).subspan(begin, end - begin), group, kDim, &o[part * group * kDim],
                        &lse[part * group]);
    });
  report_bytes(state, 2.0 * kTokens * kDim * sizeof(float), pool.size());
  report_flops(state, 4.0 * kTokens * kDim * group);
}
BENCHMARK_CAPTURE(partial, contiguous_group1, 1, 1 << 13, false)->Apply(each_thread_count);
BENCHMARK_CAPTURE(partial, contiguous_group4, 4, 1 << 13, false)->Apply(each_thread_count);
BENCHMARK_CAPTURE(partial, contiguous_group8, 8, 1 << 13, false)->Apply(each_thread_count);
BENCHMARK_CAPTURE(partial, random32_group1, 1, 32, true)->Apply(each_thread_count);
BENCHMARK_CAPTURE(partial, random32_group4, 4, 32, true)->Apply(each_thread_count);
BENCHMARK_CAPTURE(partial, random32_group8, 8, 32, true)->Apply(each_thread_count);

void prefill(benchmark::State& state, std::uint32_t group) {
  constexpr std::uint32_t kDim = 128, kTokens = 2048, kKvHeads = 2;
  ThreadPool pool(threads_of(state));
  const std::uint32_t heads = kKvHeads * group;
  const std::size_t page = std::size_t{kPrefillPageTokens} * kDim;
  const auto k = normals(std::size_t{kKvHeads} * kTokens * kDim), v = normals(k.size());
  const auto q = normals(std::size_t{kTokens} * heads * kDim);
  std::vector<float> out(q.size());
  std::vector<const float*> k_pages, v_pages;
  for (std::size_t p = 0; p < k.size() / page; ++p) {
    k_pages.push_back(k.data() + p * page);
    v_pages.push_back(v.data() + p * page);
  }
  const std::size_t per_head = k_pages.size() / kKvHeads;
  std::vector<PrefillKv> kv;
  for (std::size_t h = 0; h < kKvHeads; ++h)
    kv.push_back(
        {std::span(k_pages).subspan(h * per_head, per_head), std::span(v_pages).subspan(h * per_head, per_head)});
  for (auto _ : state) prefill_attention(pool, q.data(), kv, 0, kTokens, heads, kKvHeads, kDim, out.data());
  report_flops(state, 4.0 * heads * kDim * (0.5 * kTokens * (kTokens + 1)));  // the causal half alone
}
BENCHMARK_CAPTURE(prefill, group1, 1)->Apply(each_thread_count);
BENCHMARK_CAPTURE(prefill, group4, 4)->Apply(each_thread_count);

void score(benchmark::State& state, std::uint32_t group) {
  constexpr std::uint32_t kDim = 128, kBlocks = 1 << 16;
  const auto low = normals(std::size_t{kBlocks} * kDim), high = normals(low.size()),
             q = normals(std::size_t{group} * kDim);
  std::vector<float> scores(std::size_t{group} * kBlocks);
  for (auto _ : state) score_blocks(q.data(), low.data(), high.data(), kBlocks, group, kDim, scores.data());
  report_bytes(state, 2.0 * kBlocks * kDim * sizeof(float), 1);
}
BENCHMARK_CAPTURE(score, group1, 1)->UseRealTime();
BENCHMARK_CAPTURE(score, group4, 4)->UseRealTime();

void choose(benchmark::State& state) {
  const auto scores = normals(8192);
  std::vector<std::uint32_t> out(128);
  for (auto _ : state) {
    top_k(scores.data(), 8192, 128, out.data());
    benchmark::DoNotOptimize(out.data());
  }
  state.SetItemsProcessed(state.iterations() * 8192);
}
BENCHMARK(choose);

void empty_loop(benchmark::State& state) {
  ThreadPool pool(threads_of(state));
  for (auto _ : state) pool.parallel_for(pool.size(), [](std::size_t) {});
}
BENCHMARK(empty_loop)->Apply(each_thread_count);

}  // namespace
}  // namespace tandem
