// Attention kernels against the machine: GB/s of the K and V that must be read, GFLOP/s, and `share` of a pure read
// (measure.h). TANDEM_ISA chooses the build.
#include <algorithm>
#include <benchmark/benchmark.h>
#include <bit>
#include <numeric>
#include <random>
#include <vector>

#include "bench/measure.h"
#include "engine/kernels/attention.h"
#include "engine/kernels/convert.h"
#include "engine/kernels/digest.h"
#include "engine/kernels/isa.h"
#include "engine/kernels/topk.h"
#include "eval/kernels/private_memory.h"

namespace tandem {
namespace {

enum class Order { contiguous, shuffled, own, cached };

/// 256 MiB in pages of the KV store, {K [16][D], V [16][D]} of one KV head one after the other. Each thread attends its
/// own part of the blocks. `own`: of every token each head decides by chance (0.3) whether it attends it, as where
/// heads choose tokens. `cached`: 512 KiB for each thread, which stay in its caches.
void partial(benchmark::State& state, DType type, std::uint32_t group, std::uint32_t dim, std::uint32_t block,
             Order order) {
  constexpr std::uint32_t kPage = 16;
  ThreadPool pool(threads_of(state));
  const std::size_t all_bytes = std::size_t{256} << 20;
  const std::size_t bytes = order == Order::cached ? pool.size() * (std::size_t{512} << 10) : all_bytes;
  const std::size_t half = kPage * dim * size_of(type), pages = bytes / (2 * half);
  static PrivateMemory memory(all_bytes);
  const std::vector<float> some = normals(1 << 16);
  for (std::size_t at = 0; at < bytes; at += some.size() * size_of(type))
    from_f32(some.data(), type, some.size(), memory.data() + at);
  std::vector<std::size_t> blocks(pages * kPage / block);
  std::iota(blocks.begin(), blocks.end(), std::size_t{0});
  if (order == Order::shuffled) std::shuffle(blocks.begin(), blocks.end(), std::mt19937(2));
  std::vector<KvSpan> spans;
  std::size_t read = 0, attended = 0;  // tokens, and tokens of heads
  std::mt19937 chance(3);
  for (const std::size_t b : blocks)
    for (std::size_t page = b * block / kPage; page < (b + 1) * block / kPage; ++page) {
      const char* at = memory.data() + page * 2 * half;
      if (order != Order::own) {
        spans.push_back({at, at + half, kPage, ~0u});
        read += kPage;
        attended += std::size_t{group} * kPage;
        continue;
      }
      const std::size_t vector_bytes = dim * size_of(type);
      for (std::uint32_t token = 0; token < kPage; ++token) {
        std::uint32_t heads = 0;
        for (std::uint32_t h = 0; h < group; ++h) heads |= (chance() % 10 < 3 ? 1u : 0u) << h;
        spans.push_back({at + token * vector_bytes, at + half + token * vector_bytes, 1, heads});
        read += heads != 0 ? 1 : 0;
        attended += static_cast<std::size_t>(std::popcount(heads));
      }
    }
  const auto q = normals(std::size_t{group} * dim);
  const std::size_t parts = order == Order::cached ? pool.size() : 64;
  std::vector<float> o(parts * group * dim), lse(parts * group);
  const auto kernel = [&] {
    pool.parallel_for(parts, [&](std::size_t part) {
      const std::size_t begin = spans.size() * part / parts, end = spans.size() * (part + 1) / parts;
      partial_attention(q.data(), std::span(spans).subspan(begin, end - begin), {group, dim, type},
                        &o[part * group * dim], &lse[part * group]);
    });
  };
  for (auto _ : state) kernel();
  report_read(state, static_cast<double>(read * 2 * dim * size_of(type)), pool, kernel);
  report_flops(state, 4.0 * static_cast<double>(attended * dim));
}

void register_partial() {
  for (const DType type : {DType::bf16, DType::f16, DType::f32})
    for (const std::uint32_t group : {1u, 4u, 7u, 8u})
      for (const std::uint32_t dim : {128u, 64u, 96u, 256u}) {
        if ((type != DType::bf16 && group != 4) || (dim != 128 && group != 4) || (type != DType::bf16 && dim != 128))
          continue;
        const std::string name =
            std::string("partial/") + to_string(type) + "/group" + std::to_string(group) + "/dim" + std::to_string(dim);
        const auto add = [&](const char* order, std::uint32_t block, Order how) {
          each_thread_count(benchmark::RegisterBenchmark((name + "/" + order).c_str(), [=](benchmark::State& state) {
            partial(state, type, group, dim, block, how);
          }));
        };
        add("contiguous", 16, Order::contiguous);
        add("random32", 32, Order::shuffled);
        add("random16", 16, Order::shuffled);
        if (group > 1) add("own_tokens", 16, Order::own);
        add("cached", 16, Order::cached);
      }
}
const bool kRegistered = (register_partial(), true);

void prefill(benchmark::State& state, DType type, std::uint32_t group, std::uint32_t dim) {
  constexpr std::uint32_t kTokens = 2048, kKvHeads = 2;
  ThreadPool pool(threads_of(state));
  const std::uint32_t heads = kKvHeads * group;
  const std::size_t page = std::size_t{kPrefillPageTokens} * dim * size_of(type);
  const auto values = normals(std::size_t{kKvHeads} * kTokens * dim), q = normals(std::size_t{kTokens} * heads * dim);
  std::vector<char> kv(values.size() * size_of(type));
  from_f32(values.data(), type, values.size(), kv.data());
  std::vector<float> out(q.size());
  std::vector<const void*> pages;
  for (std::size_t at = 0; at < kv.size(); at += page) pages.push_back(kv.data() + at);
  const std::size_t per_head = pages.size() / kKvHeads;
  std::vector<PrefillKv> of_heads;
  for (std::size_t h = 0; h < kKvHeads; ++h) {
    const auto own = std::span(pages).subspan(h * per_head, per_head);
    of_heads.push_back({own, own, type});
  }
  const auto kernel = [&] {
    prefill_attention(pool, q.data(), of_heads, 0, kTokens, heads, kKvHeads, dim, out.data());
  };
  for (auto _ : state) kernel();
  const double flops = 4.0 * heads * dim * (0.5 * kTokens * (kTokens + 1));  // the causal half alone
  const auto limit = [&] {  // of bf16 the scores are products of pairs; the weighted values are not, or twice with AMX
    const double f32 = arithmetic_rate(Arithmetic::f32, pool), pairs = arithmetic_rate(Arithmetic::bf16_pairs, pool);
    if (type != DType::bf16) return f32;
    return active_isa() == Isa::amx ? 2 * pairs / 3 : 2 / (1 / f32 + 1 / pairs);
  };
  report_share(state, flops, pool, limit, kernel);
  report_flops(state, flops);
}
BENCHMARK_CAPTURE(prefill, f32_group4_dim128, DType::f32, 4, 128)->Apply(each_thread_count);
BENCHMARK_CAPTURE(prefill, bf16_group1_dim128, DType::bf16, 1, 128)->Apply(each_thread_count);
BENCHMARK_CAPTURE(prefill, bf16_group4_dim128, DType::bf16, 4, 128)->Apply(each_thread_count);
BENCHMARK_CAPTURE(prefill, bf16_group7_dim64, DType::bf16, 7, 64)->Apply(each_thread_count);

/// 256 MiB of bf16 digests of heads of 128, one thread.
void score(benchmark::State& state, std::uint32_t group) {
  constexpr std::uint32_t kDim = 128, kBlocks = 1 << 19;
  ThreadPool pool(1);
  PrivateMemory memory(std::size_t{2} * kBlocks * kDim * size_of(DType::bf16));
  const auto q = normals(std::size_t{group} * kDim);
  std::vector<float> scores(std::size_t{group} * kBlocks);
  const auto kernel = [&] {
    score_blocks(q.data(), memory.data(), memory.data() + memory.bytes() / 2, kBlocks, {group, kDim, DType::bf16},
                 scores.data());
  };
  for (auto _ : state) kernel();
  report_read(state, static_cast<double>(memory.bytes()), pool, kernel);
}
BENCHMARK_CAPTURE(score, group1, 1)->UseRealTime();
BENCHMARK_CAPTURE(score, group4, 4)->UseRealTime();
BENCHMARK_CAPTURE(score, group8, 8)->UseRealTime();

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

}  // namespace
}  // namespace tandem
