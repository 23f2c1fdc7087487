// Attention kernels against the machine: GB/s of the K and V that must be read, GFLOP/s, and `share` of a pure read
// (measure.h). TANDEM_ISA chooses the build.
#include <algorithm>
#include <benchmark/benchmark.h>
#include <bit>
#include <cstring>
#include <numeric>
#include <optional>
#include <random>
#include <span>
#include <vector>

#include "bench/measure.h"
#include "engine/common/cgroup.h"
#include "engine/kernels/attention.h"
#include "engine/kernels/convert.h"
#include "engine/kernels/digest.h"
#include "engine/kernels/isa.h"
#include "engine/kernels/topk.h"

namespace tandem {
namespace {

enum class Order { contiguous, shuffled, own, cached };

/// 4 GiB of numbers of a type, more than any cache: kernels and the pure reads that judge them go through it, a slice
/// at a time. Less where the machine has less; then there are no shares.
class Beyond {
 public:
  static constexpr std::size_t kSlice = std::size_t{256} << 20, kSlices = 16;
  static Beyond& of(DType type) {
    static Beyond one;
    if (one.type_ != type) one.fill(type);
    return one;
  }
  std::size_t slices() const { return memory_.bytes() / kSlice; }
  const char* slice(std::size_t at) const { return memory_.data() + at % slices() * kSlice; }
  std::size_t next() { return at_++ % slices(); }
  bool is_enough() const { return slices() == kSlices; }
  /// Bytes per second of a pure read of the next slice.
  double rate(ThreadPool& pool) { return read_rate(pool, {slice(next()), kSlice}); }

 private:
  Beyond() : memory_(std::clamp<std::size_t>(available_memory() / 2 / kSlice, 1, kSlices) * kSlice) {
    if (!is_enough())
      fmt::print(stderr, "No shares of reads: {:.0f} GB of free memory are needed, twice what is read.\n",
                 2e-9 * double(kSlices * kSlice));
  }
  void fill(DType type) {
    const std::vector<float> some = normals(1 << 16);
    std::vector<char> block(some.size() * size_of(type));
    from_f32(some.data(), type, some.size(), block.data());
    for (std::size_t at = 0; at < memory_.bytes(); at += block.size())
      std::memcpy(memory_.data() + at, block.data(), block.size());
    type_ = type;
  }
  PrivateMemory memory_;
  std::optional<DType> type_;
  std::size_t at_ = 0;
};

/// report_read of a kernel that reads a slice of `memory` per call.
template <class Kernel>
void report_slices(benchmark::State& state, double bytes, ThreadPool& pool, Beyond& memory, const Kernel& kernel) {
  report_rate(state, bytes);
  if (memory.is_enough())
    report_share(
        state, bytes, pool, [&] { return memory.rate(pool); }, kernel);
}

constexpr std::uint32_t kPage = 16;

/// The spans of `bytes` at `from`, in pages of the KV store, {K [16][D], V [16][D]} of one KV head one after the other.
/// `own`: of every token each head decides by chance (0.3) whether it attends it, as where heads choose tokens.
struct Spans {
  std::vector<KvSpan> all;
  std::size_t read = 0, attended = 0;  // tokens, and tokens of heads
  Spans(const char* from, std::size_t bytes, std::size_t vector_bytes, std::uint32_t group, std::uint32_t block,
        Order order) {
    const std::size_t half = kPage * vector_bytes, pages = bytes / (2 * half);
    std::vector<std::size_t> blocks(pages * kPage / block);
    std::iota(blocks.begin(), blocks.end(), std::size_t{0});
    if (order == Order::shuffled) std::shuffle(blocks.begin(), blocks.end(), std::mt19937(2));
    std::mt19937 chance(3);
    for (const std::size_t b : blocks)
      for (std::size_t page = b * block / kPage; page < (b + 1) * block / kPage; ++page) {
        const char* at = from + page * 2 * half;
        if (order != Order::own) {
          all.push_back({at, at + half, kPage, ~0u});
          read += kPage;
          attended += std::size_t{group} * kPage;
          continue;
        }
        for (std::uint32_t token = 0; token < kPage; ++token) {
          std::uint32_t heads = 0;
          for (std::uint32_t h = 0; h < group; ++h) heads |= (chance() % 10 < 3 ? 1u : 0u) << h;
          all.push_back({at + token * vector_bytes, at + half + token * vector_bytes, 1, heads});
          read += heads != 0 ? 1 : 0;
          attended += static_cast<std::size_t>(std::popcount(heads));
        }
      }
  }
};

/// A slice per call; each thread attends its own parts of the blocks. `cached`: 512 KiB for each thread, which stay in
/// its caches.
void partial(benchmark::State& state, DType type, std::uint32_t group, std::uint32_t dim, std::uint32_t block,
             Order order) {
  ThreadPool pool(threads_of(state));
  Beyond& memory = Beyond::of(type);
  const bool cached = order == Order::cached;
  std::vector<Spans> slices;
  slices.reserve(memory.slices());
  for (std::size_t i = 0; i < (cached ? 1 : memory.slices()); ++i)
    slices.emplace_back(memory.slice(i), cached ? pool.size() * (std::size_t{512} << 10) : Beyond::kSlice,
                        dim * size_of(type), group, block, order);
  const auto q = normals(std::size_t{group} * dim);
  const std::size_t parts = cached ? pool.size() : 64;
  std::vector<float> o(parts * group * dim), lse(parts * group);
  const auto kernel = [&] {
    const std::span spans = slices[memory.next() % slices.size()].all;
    pool.parallel_for(parts, [&](std::size_t part) {
      const std::size_t begin = spans.size() * part / parts, end = spans.size() * (part + 1) / parts;
      partial_attention(q.data(), spans.subspan(begin, end - begin), {group, dim, type}, &o[part * group * dim],
                        &lse[part * group]);
    });
  };
  for (auto _ : state) kernel();
  report_slices(state, static_cast<double>(slices[0].read * 2 * dim * size_of(type)), pool, memory, kernel);
  report_flops(state, 4.0 * static_cast<double>(slices[0].attended * dim));
}

void register_partial() {
  for (const DType type : {DType::bf16, DType::f16, DType::f32})
    for (const std::uint32_t group : {1u, 4u, 7u, 8u})
      for (const std::uint32_t dim : {128u, 64u, 96u, 256u}) {
        const bool qwen = dim == 64 && group == 7;  // Qwen2.5-0.5B, which results/peers-*.json measure
        if ((type != DType::bf16 && group != 4) || (dim != 128 && group != 4 && !qwen) ||
            (type != DType::bf16 && dim != 128))
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
  const auto limit = [&] {  // both products of bf16 are of pairs where the build multiplies pairs
    return arithmetic_rate(type == DType::bf16 ? Arithmetic::bf16_pairs : Arithmetic::f32, pool);
  };
  report_share(state, flops, pool, limit, kernel);
  report_flops(state, flops);
}
BENCHMARK_CAPTURE(prefill, f32_group4_dim128, DType::f32, 4, 128)->Apply(each_thread_count);
BENCHMARK_CAPTURE(prefill, bf16_group1_dim128, DType::bf16, 1, 128)->Apply(each_thread_count);
BENCHMARK_CAPTURE(prefill, bf16_group4_dim128, DType::bf16, 4, 128)->Apply(each_thread_count);
BENCHMARK_CAPTURE(prefill, bf16_group7_dim64, DType::bf16, 7, 64)->Apply(each_thread_count);

/// Bounds of blocks of heads of 128 in bf16, a slice per call, one thread.
void score(benchmark::State& state, std::uint32_t group) {
  constexpr std::uint32_t kDim = 128, kBlocks = Beyond::kSlice / (2 * kDim * size_of(DType::bf16));
  ThreadPool pool(1);
  Beyond& memory = Beyond::of(DType::bf16);
  const auto q = normals(std::size_t{group} * kDim);
  std::vector<float> scores(std::size_t{group} * kBlocks);
  const auto kernel = [&] {
    const char* low = memory.slice(memory.next());
    score_blocks(q.data(), low, low + Beyond::kSlice / 2, kBlocks, {group, kDim, DType::bf16}, scores.data());
  };
  for (auto _ : state) kernel();
  report_slices(state, static_cast<double>(Beyond::kSlice), pool, memory, kernel);
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
