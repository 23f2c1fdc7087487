// Cases of attention: decode, token scores, prefill, and merges of parts, some of which lie in pinned host memory.
#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <limits>

#include "engine/kernels/attention.h"
#include "engine/kernels/paged_attention.h"
#include "eval/kernels/case.h"
#include "eval/kernels/paged_batch.h"

namespace tandem::eval {
namespace {

constexpr std::uint32_t kPartTokens = 512;  // that a CPU thread attends at a time
constexpr std::size_t kTileRows = 128;      // of the GPU's prefill kernel: (query, head of one group)

/// On the CPU as the engine attends: parts of 512 tokens on all threads, then their merge.
void attend_on_cpu(const PagedBatch& batch, const void* kv, const float* q, ThreadPool& pool, float* o, float* lse) {
  struct Part {
    std::size_t row;
    std::uint32_t kv_head, first, last;
  };
  std::vector<Part> parts;
  constexpr std::uint32_t kPages = kPartTokens / kListPageTokens;
  for (std::size_t row = 0; row < batch.tokens.size(); ++row)
    for (std::uint32_t head = 0; head < batch.heads.kv; ++head)
      for (std::uint32_t first = 0; first < batch.pages[row]; first += kPages)
        parts.push_back({row, head, first, std::min(first + kPages, batch.pages[row])});
  const AttentionShape shape{batch.heads.group, batch.heads.dim, batch.type};
  const std::size_t width = std::size_t{shape.group} * shape.dim;
  std::vector<float> part_o(parts.size() * width), part_lse(parts.size() * shape.group);
  const auto head_of = [&](const Part& part) { return part.row * batch.heads.q() + part.kv_head * shape.group; };
  pool.parallel_for(parts.size(), [&](std::size_t i) {
    const Part& part = parts[i];
    partial_attention(q + head_of(part) * shape.dim, batch.spans(kv, part.row, part.kv_head, part.first, part.last),
                      shape, &part_o[i * width], &part_lse[i * shape.group]);
  });
  for (std::size_t first = 0, last = 0; first < parts.size(); first = last) {
    std::vector<const float*> os, sums;
    for (; last < parts.size() && head_of(parts[last]) == head_of(parts[first]); ++last) {
      os.push_back(&part_o[last * width]);
      sums.push_back(&part_lse[last * shape.group]);
    }
    const std::size_t head = head_of(parts[first]);
    merge_partials(os.data(), sums.data(), static_cast<std::uint32_t>(os.size()), shape.group, shape.dim,
                   o + head * shape.dim, lse + head);
  }
}

/// The log sums of a result, told apart more finely than its outputs: eight times what they are above the logarithm of
/// the number of tokens. One page in eighty that is left out moves a log sum by 0.012 and outputs by less than bf16's
/// rounding of the weights.
void sharpen(const PagedBatch& batch, auto& result) {
  const std::size_t heads = batch.heads.q(), all = batch.tokens.size() * heads;
  for (std::size_t i = 0; i < all; ++i) {
    auto& sum = result[result.size() - all + i];
    sum = 8 * (sum - static_cast<float>(std::log(static_cast<double>(batch.tokens[i / heads]))));
  }
}

KernelCase decode_attention_case(Heads heads, DType type, std::vector<std::uint32_t> tokens, float scale = 1,
                                 KvPlacing placing = KvPlacing::pages) {
  const PagedBatch batch(heads, type, std::move(tokens), scale, placing);
  KernelCase one{placing == KvPlacing::pages ? "decode_attention" : "contiguous_attention", batch.shape()};
  if (placing == KvPlacing::runs) one.targets = {KernelTarget::cpu};  // on a device all KV lies in pages
  one.bytes = 2 * batch.vector_bytes() + 8.0 * static_cast<double>(batch.queries());
  one.flops = 4.0 * batch.all_tokens() * heads.q() * heads.dim;
  one.threaded = true;
  // The CPU rounds weights to bf16 where V is; paged_attention_test holds the GPU's kernel, which does not, to less.
  // Tensor cores cut off sums of f16 products, the more the larger these are.
  one.tolerance = type == DType::bf16 ? 1.0 / 128 : type == DType::f16 ? 3e-5 * std::max(scale, 1.0f) : 3e-5;
  one.set_up = [batch](CaseMemory& memory, PreparedCase& prepared) {
    const Heads& h = batch.heads;
    const std::size_t rows = batch.tokens.size(), all = rows * h.q();
    const KvPages kv = batch.placed_kv(memory);
    const auto q = memory.normals(batch.queries(), 2);
    float* const o = memory.result<float>(all * h.dim);
    float* const lse = memory.result<float>(all);
    if (memory.cuda()) {
      const AttentionPlan plan = plan_paged_attention(batch.pages, static_cast<std::uint32_t>(rows), h.kv, false);
      PagedAttention a;
      a.q = q.target;
      a.group = h.group;
      a.kv = kv;
      a.lists = batch.lists(memory);
      a.work = memory.input(plan.work).target;
      a.merges = memory.input(plan.merges).target;
      a.work_count = static_cast<std::uint32_t>(plan.work.size());
      a.merge_count = static_cast<std::uint32_t>(plan.merges.size());
      a.part_count = plan.parts;
      a.o = o;
      a.lse = lse;
      a.parts = memory.output<float>(paged_attention_scratch(plan, h.group, h.dim));
      prepared.run = [a, &memory] { paged_attention_cuda(a, memory.stream()); };
    } else {
      prepared.run = [=, &memory] { attend_on_cpu(batch, kv.pages, q.target, memory.pool(), o, lse); };
    }
    prepared.result = [=, &memory] {
      auto result = memory.results();
      sharpen(batch, result);
      return result;
    };
    prepared.expected = [=] {
      const auto stored = batch.host_kv();
      std::vector<float> out(all * h.dim + all);
      for (std::size_t row = 0; row < rows; ++row) {
        for (std::uint32_t g = 0; g < h.kv; ++g) {
          const std::size_t head = row * h.q() + g * h.group;
          partial_attention_reference(&q[head * h.dim], batch.spans(stored.data(), row, g, 0, batch.pages[row]),
                                      {h.group, h.dim, batch.type}, &out[head * h.dim], &out[all * h.dim + head]);
        }
      }
      std::vector<double> expected(out.begin(), out.end());
      sharpen(batch, expected);
      return expected;
    };
  };
  return one;
}

// Whole pages, so that both targets give their scores in the same places.
KernelCase token_scores_case(Heads heads, DType type, std::uint32_t rows, std::uint32_t pages) {
  const PagedBatch batch(heads, type, std::vector<std::uint32_t>(rows, pages * kListPageTokens));
  KernelCase one{"token_scores", batch.shape()};
  one.bytes = batch.vector_bytes() + 4.0 * batch.all_tokens() * heads.q();
  one.flops = 2.0 * batch.all_tokens() * heads.q() * heads.dim;
  one.threaded = true;
  one.tolerance = 3e-5;
  one.set_up = [batch, rows, pages](CaseMemory& memory, PreparedCase& prepared) {
    const Heads& h = batch.heads;
    const KvPages kv = batch.placed_kv(memory);
    const auto q = memory.normals(batch.queries(), 2);
    const PageLists lists = batch.lists(memory);
    const std::size_t columns = std::size_t{pages} * kListPageTokens, tasks = std::size_t{rows} * h.kv;
    float* const scores = memory.result<float>(tasks * h.group * columns);
    const auto on_cpu = [=](const void* from, const float* query, std::size_t task, auto kernel, float* out) {
      const std::size_t head = task * h.group;
      kernel(query + head * h.dim, batch.spans(from, task / h.kv, static_cast<std::uint32_t>(task % h.kv), 0, pages),
             AttentionShape{h.group, h.dim, batch.type}, out + head * columns);
    };
    prepared.run = [=, &memory] {
      if (memory.cuda()) return paged_token_scores_cuda(q.target, rows, h.group, kv, lists, scores, memory.stream());
      memory.each(tasks, [&](std::size_t task) { on_cpu(kv.pages, q.target, task, token_scores, scores); });
    };
    prepared.expected = [=] {
      const auto stored = batch.host_kv();
      std::vector<float> out(tasks * h.group * columns);
      for (std::size_t task = 0; task < tasks; ++task)
        on_cpu(stored.data(), &q[0], task, token_scores_reference, out.data());
      return std::vector<double>(out.begin(), out.end());
    };
  };
  return one;
}

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
    const KvPages kv = batch.placed_kv(memory);
    const auto q = memory.normals(count, 2);
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
      const PrefillChunk chunk{q.target, kv, memory.input(batch.slots).target, first, n, h.q(), out};
      prepared.run = [chunk, &memory] { prefill_attention_cuda(chunk, memory.stream()); };
    } else {
      prepared.run = [=, &memory] {
        attend(kv.pages, [&](const std::vector<PrefillKv>& lists) {
          prefill_attention(memory.pool(), q.target, lists, first, n, h.q(), h.kv, h.dim, out);
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
          prefill_attention_reference(&q[seen[i] * h.dim], {&lists[seen[i] % h.q() / h.group], 1}, position, 1, 1, 1,
                                      h.dim, &expected[i * h.dim]);
        }
      });
      return std::vector<double>(expected.begin(), expected.end());
    };
  };
  return one;
}

KernelCase merge_case(std::uint32_t parts, std::uint32_t rows, std::uint32_t dim, bool on_host) {
  KernelCase one{on_host ? "merge_from_host" : "merge", fmt::format("{} parts, {} rows, D {}", parts, rows, dim)};
  // Every second part is on the host.
  one.bytes = 4.0 * rows * (dim + 1.0) * (on_host ? parts / 2 : parts + 1);
  if (on_host) one.link = Link::to_device;
  one.tolerance = 1e-5;
  one.set_up = [=](CaseMemory& memory, PreparedCase& prepared) {
    const std::size_t all = std::size_t{rows} * dim;
    std::vector<std::vector<float>> o(parts), lse(parts);
    std::vector<const float*> o_at, lse_at;
    for (std::uint32_t p = 0; p < parts; ++p) {
      o[p] = case_normals(all, 10 + p);
      lse[p] = case_normals(rows, 100 + p, 3);
      for (std::uint32_t r = 0; r < rows; r += 1 + p) {
        if (r % 3 != 0) continue;  // rows 0, 3, ... of some parts have no tokens
        lse[p][r] = -std::numeric_limits<float>::infinity();
        std::fill_n(&o[p][std::size_t{r} * dim], dim, 0.0f);
      }
      const bool pinned = on_host && p % 2 == 1;
      const auto place = [&](const std::vector<float>& values) {
        return pinned ? memory.host_input(values) : memory.input(values).target;
      };
      o_at.push_back(place(o[p]));
      lse_at.push_back(place(lse[p]));
    }
    const float* const* const o_list = memory.input(o_at).target;
    const float* const* const lse_list = memory.input(lse_at).target;
    float* const out = memory.result<float>(all);
    float* const out_lse = memory.result<float>(rows);
    prepared.run = [=, &memory] {
      if (memory.cuda()) return merge_partials_cuda(o_list, lse_list, parts, rows, dim, out, out_lse, memory.stream());
      merge_partials(o_list, lse_list, parts, rows, dim, out, out_lse);
    };
    prepared.expected = [=] {
      std::vector<double> expected(all + rows);
      for (std::size_t r = 0; r < rows; ++r) {
        double total = 0;
        for (std::uint32_t p = 0; p < parts; ++p) total += std::exp(double{lse[p][r]});
        for (std::uint32_t p = 0; p < parts && total > 0; ++p)
          for (std::size_t d = 0; d < dim; ++d)
            expected[r * dim + d] += std::exp(double{lse[p][r]}) / total * double{o[p][r * dim + d]};
        expected[all + r] = std::log(total);
      }
      return expected;
    };
  };
  return one;
}

}  // namespace

void append_attention_cases(CaseSize size, const TakeCase& take) {
  constexpr DType kF32 = DType::f32, kF16 = DType::f16, kBf16 = DType::bf16;
  constexpr std::uint32_t kK = 1024;
  if (size == CaseSize::bench) {
    const auto on_gpu = [&](KernelCase one) {  // across a link, or more memory or time than a CPU should spend
      one.targets = {KernelTarget::cuda};
      take(std::move(one));
    };
    const Heads model{8, 4, 128};
    take(decode_attention_case(model, kBf16, {32 * kK}));
    take(decode_attention_case(model, kBf16, {4 * kK}));
    take(decode_attention_case(model, kBf16, {32 * kK}, 1, KvPlacing::runs));
    on_gpu(decode_attention_case(model, kBf16, std::vector<std::uint32_t>(8, 32 * kK)));
    on_gpu(decode_attention_case({8, 8, 128}, kBf16, std::vector<std::uint32_t>(8, 32 * kK)));
    on_gpu(decode_attention_case({32, 1, 128}, kBf16, std::vector<std::uint32_t>(4, 16 * kK)));
    on_gpu(decode_attention_case({8, 4, 64}, kF16, std::vector<std::uint32_t>(8, 32 * kK)));
    std::vector<std::uint32_t> ragged(16);
    for (std::uint32_t i = 0; i < ragged.size(); ++i) ragged[i] = 4 * kK * (i + 1);
    on_gpu(decode_attention_case(model, kBf16, ragged));
    take(token_scores_case(model, kBf16, 1, 2 * kK));
    on_gpu(token_scores_case(model, kBf16, 8, 2 * kK));
    take(prefill_attention_case(model, kBf16, 0, 2 * kK));
    on_gpu(prefill_attention_case(model, kBf16, 0, 8 * kK));
    on_gpu(prefill_attention_case(model, kBf16, 24 * kK, 8 * kK));
    on_gpu(prefill_attention_case(model, kBf16, 24 * kK, kK / 2));  // the engine's own chunk
    on_gpu(prefill_attention_case(model, kBf16, 0, 32 * kK));
    take(merge_case(2, 8 * 32, 128, false));
    on_gpu(merge_case(2, 8 * 32, 128, true));
    return;
  }
  for (const DType type : {kF32, kF16, kBf16}) {
    take(decode_attention_case({2, 1, 64}, type, {1, 40}));
    take(decode_attention_case({1, 4, 128}, type, {150, 16, 7}));
    take(decode_attention_case({1, 7, 96}, type, {33}, 3));
    take(decode_attention_case({2, 8, 128}, type, {90}, 5));
    take(decode_attention_case({1, 2, 256}, type, {70, 3}));
    take(decode_attention_case({1, 16, 64}, type, {65}, 2));
    take(decode_attention_case({1, 3, 80}, type, {50}));
    take(decode_attention_case({1, 20, 128}, type, {20}));
    take(decode_attention_case({2, 32, 24}, type, {17}));
    take(decode_attention_case({1, 2, 64}, type, {1300, 5, 700, 64, 65}));
    take(decode_attention_case({2, 4, 64}, type, {1300, 5, 700}, 1, KvPlacing::runs));
    take(token_scores_case({2, 1, 64}, type, 2, 3));
    take(token_scores_case({1, 9, 128}, type, 1, 35));
    take(token_scores_case({1, 16, 256}, type, 1, 2));
    take(token_scores_case({1, 17, 40}, type, 2, 1));
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
  for (const bool on_host : {false, true}) {
    take(merge_case(1, 3, 128, on_host));
    take(merge_case(2, 4, 72, on_host));
    take(merge_case(7, 3, 256, on_host));
    take(merge_case(40, 5, 300, on_host));
    take(merge_case(600, 1, 33, on_host));
  }
}

}  // namespace tandem::eval
