// Cases of prefill attention.
#include <fmt/core.h>

#include "engine/kernels/attention.h"
#include "eval/kernels/case.h"
#include "eval/kernels/paged_batch.h"

namespace tandem::eval {
namespace {

constexpr std::size_t kTileRows = 128;  // of the GPU's kernel: (query, head of one group)

KernelCase prefill_attention_case(Heads heads, DType type, std::uint32_t first, std::uint32_t n, float scale = 1) {
  const PagedBatch batch(heads, type, {first + n}, scale);
  KernelCase one{"prefill_attention", fmt::format("n {} at {}, {}/{} heads, D {}, {}", n, first, heads.q(), heads.kv,
                                                  heads.dim, to_string(type))};
  one.bytes = 2 * batch.vector_bytes() + 8.0 * n * heads.q() * heads.dim;
  one.flops = 4.0 * heads.dim * heads.q() * (1.0 * n * first + 0.5 * n * (n + 1.0));
  one.bound = Bound::bf16;
  one.threaded = true;
  // Weights of bf16 values are rounded to bf16; of f16 ones where tensor cores run, and queries with them.
  const bool tiles = type != DType::f32 && (heads.dim == 64 || heads.dim % 32 == 0);
  one.tolerance = double{scale} * (type == DType::bf16 ? 1.0 / 128 : tiles ? 1.0 / 256 : 3e-5);  // of values, too
  one.set_up = [=](CaseMemory& memory, PreparedCase& prepared) {
    const Heads& h = batch.heads;
    const std::size_t count = std::size_t{n} * h.q() * h.dim;
    void* const kv = batch.placed_kv(memory);
    const auto query = case_normals(count, 2);
    float* const q = memory.input(query);
    float* const out = memory.output<float>(count);
    const auto attend = [=](const void* pages, auto call) {
      std::vector<std::vector<const void*>> k(h.kv), v(h.kv);
      std::vector<PrefillKv> lists;
      lists.reserve(h.kv);
      for (std::uint32_t g = 0; g < h.kv; ++g) {
        for (const KvSpan& span : batch.spans(pages, 0, g, 0, batch.pages[0])) {
          k[g].push_back(span.k);
          v[g].push_back(span.v);
        }
        lists.push_back({k[g], v[g], type});
      }
      call(lists);
    };
    if (memory.cuda()) {
      const PrefillChunk chunk{q, {kv, type, h.kv, h.dim}, memory.input(batch.slots), first, n, h.q(), out};
      prepared.run = [chunk, &memory] { prefill_attention_cuda(chunk, memory.stream()); };
    } else {
      prepared.run = [=, &memory] {
        attend(kv, [&](const std::vector<PrefillKv>& lists) {
          prefill_attention(memory.pool(), q, lists, first, n, h.q(), h.kv, h.dim, out);
        });
      };
    }
    // A token of a query's head takes the oracle a fifth of a microsecond, hours of the largest cases: it computes the
    // heads of the first and the last tile's queries, and every 1021st of the others.
    const std::vector<std::size_t> seen = sampled(std::size_t{n} * h.q(), kTileRows * h.kv, 1021);
    prepared.result = [=, &memory] { return rows_of(memory.read(out, count), seen, h.dim); };
    prepared.expected = [=] {
      const auto stored = batch.host_kv();
      std::vector<float> expected(seen.size() * h.dim);
      attend(stored.data(), [&](const std::vector<PrefillKv>& lists) {
        for (std::size_t i = 0; i < seen.size(); ++i) {
          const auto position = first + static_cast<std::uint32_t>(seen[i] / h.q());
          prefill_attention_reference(&query[seen[i] * h.dim], {&lists[seen[i] % h.q() / h.group], 1}, position, 1, 1,
                                      1, h.dim, &expected[i * h.dim]);
        }
      });
      return std::vector<double>(expected.begin(), expected.end());
    };
  };
  return one;
}

}  // namespace

void append_prefill_cases(CaseSize size, const TakeCase& take) {
  if (size == CaseSize::bench) {
    const auto on_gpu = [&](KernelCase one) {  // more time than a CPU should spend
      one.targets = {KernelTarget::cuda};
      take(std::move(one));
    };
    constexpr DType kBf16 = DType::bf16;
    constexpr std::uint32_t kK = 1024;
    const Heads model{8, 4, 128};
    take(prefill_attention_case(model, kBf16, 0, 2 * kK));
    on_gpu(prefill_attention_case(model, kBf16, 0, 8 * kK));
    on_gpu(prefill_attention_case(model, kBf16, 24 * kK, 8 * kK));
    on_gpu(prefill_attention_case(model, kBf16, 24 * kK, kK / 2));  // the engine's own chunk
    on_gpu(prefill_attention_case(model, kBf16, 0, 32 * kK));
    return;
  }
  for (const DType type : {DType::f32, DType::f16, DType::bf16}) {
    take(prefill_attention_case({2, 1, 64}, type, 0, 1));
    take(prefill_attention_case({1, 4, 64}, type, 0, 50));
    take(prefill_attention_case({1, 7, 96}, type, 40, 33));
    take(prefill_attention_case({2, 2, 128}, type, 0, 40));
    take(prefill_attention_case({1, 5, 128}, type, 63, 20, 4));
    take(prefill_attention_case({1, 3, 256}, type, 5, 40));
    take(prefill_attention_case({2, 3, 80}, type, 17, 20, 4));
    take(prefill_attention_case({2, 2, 12}, type, 5, 30));
    take(prefill_attention_case({1, 40, 64}, type, 3, 5));
    take(prefill_attention_case({1, 66, 8}, type, 3, 2));
  }
}

}  // namespace tandem::eval
