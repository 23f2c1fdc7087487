// Cases of what selects blocks (digests, block scores, top-k), and of what follows attention weights: averages, column
// sums, sums of exponentials.
#include <algorithm>
#include <cmath>
#include <fmt/core.h>

#include "engine/kernels/attention_weights.h"
#include "engine/kernels/convert.h"
#include "engine/kernels/digest.h"
#include "engine/kernels/topk.h"
#include "eval/kernels/case.h"

namespace tandem::eval {
namespace {

// Digests of all blocks of a layer. Pages lie in reverse.
KernelCase build_digest_case(std::uint32_t kv_heads, std::uint32_t dim, std::uint32_t tokens,
                             std::uint32_t pages_per_block, DType type, DigestKind kind = DigestKind::bounds) {
  KernelCase one{"build_digest",
                 fmt::format("{} tokens by {}, {} heads, D {}, {}{}", tokens, pages_per_block * kListPageTokens,
                             kv_heads, dim, to_string(type), kind == DigestKind::mean ? ", means" : "")};
  const std::uint32_t pages = pages_of(tokens), block = pages_per_block * kListPageTokens;
  const std::uint32_t blocks = (tokens + block - 1) / block;
  const std::uint32_t vectors = vectors_of(kind);
  const std::size_t digests = std::size_t{kv_heads} * vectors * blocks * dim;
  if (kind == DigestKind::mean) one.tolerance = 1e-2;  // as the store rounds it
  one.bytes = (1.0 * tokens * kv_heads * dim + static_cast<double>(digests)) * static_cast<double>(size_of(type));
  one.threaded = true;
  one.set_up = [=](CaseMemory& memory, PreparedCase& prepared) {
    const KvPages kv = memory.normal_pages(pages, kv_heads, dim, type, 1);
    void* const out = memory.stored_result(type, digests);
    const auto slots = memory.input(reversed(pages));
    const auto run = memory.input(std::vector<DigestRun>{{slots.target, out, tokens, blocks}});
    prepared.run = [=, &memory] {
      if (memory.cuda()) return build_digests_cuda(kv, run.target, 1, tokens, pages_per_block, memory.stream(), kind);
      // A page's digest, then the union of a block's pages.
      memory.each(std::size_t{kv_heads} * blocks, [&](std::size_t task) {
        const auto head = static_cast<std::uint32_t>(task / blocks), b = static_cast<std::uint32_t>(task % blocks);
        const std::size_t bytes = dim * size_of(type);
        std::vector<char> low(pages_per_block * bytes), high(low.size());
        std::vector<float> sums(dim, 0.0f);
        std::uint32_t found = 0;
        for (std::uint32_t token = b * block; token < std::min(tokens, (b + 1) * block);
             token += kListPageTokens, ++found) {
          const char* const keys = kv.key(slots[token / kListPageTokens], head, token);
          const std::uint32_t own = std::min(kListPageTokens, tokens - token);
          if (kind == DigestKind::mean)
            add_keys(keys, type, own, dim, sums.data());
          else
            build_digest(keys, type, own, dim, &low[found * bytes], &high[found * bytes]);
        }
        char* const to = static_cast<char*>(out) + (std::size_t{head} * vectors * blocks + b) * bytes;
        if (kind == DigestKind::mean)
          mean_digest(sums.data(), std::min(block, tokens - b * block), type, dim, to);
        else
          merge_digest(low.data(), high.data(), type, found, dim, to, to + blocks * bytes);
      });
    };
    prepared.expected = [=] {
      const HostKv host = host_kv(kv, pages, 1);
      std::vector<double> expected(digests);
      for (std::uint32_t head = 0; head < kv_heads; ++head) {
        for (std::uint32_t b = 0; b < blocks; ++b) {
          for (std::uint32_t d = 0; d < dim; ++d) {
            float least = INFINITY, most = -INFINITY;
            double sum = 0;
            for (std::uint32_t token = b * block; token < std::min(tokens, (b + 1) * block); ++token) {
              const float x = host.key(slots[token / kListPageTokens], head, token)[d];
              least = std::min(least, x);
              most = std::max(most, x);
              sum += double{x};
            }
            const std::size_t at = (std::size_t{head} * vectors * blocks + b) * dim + d;
            if (kind == DigestKind::mean) {
              expected[at] = sum / std::min(block, tokens - b * block);
              continue;
            }
            expected[at] = double{least};
            expected[at + std::size_t{blocks} * dim] = double{most};
          }
        }
      }
      return expected;
    };
  };
  return one;
}

KernelCase score_blocks_case(std::uint32_t rows, std::uint32_t kv_heads, std::uint32_t group, std::uint32_t dim,
                             std::uint32_t blocks, DType type, DigestKind kind = DigestKind::bounds) {
  KernelCase one{"score_blocks",
                 fmt::format("batch {} x {} blocks, {}/{} heads, D {}, {}{}", rows, blocks, kv_heads * group, kv_heads,
                             dim, to_string(type), kind == DigestKind::mean ? ", means" : "")};
  const std::size_t heads = std::size_t{kv_heads} * group, half = std::size_t{blocks} * dim;
  const std::uint32_t vectors = vectors_of(kind);
  const std::size_t per_row = vectors * kv_heads * half;
  one.bytes = rows * (static_cast<double>(per_row * size_of(type)) + 4.0 * static_cast<double>(heads * blocks));
  one.flops = 4.0 * rows * static_cast<double>(heads * half);
  one.threaded = true;
  one.tolerance = 2e-5;
  one.set_up = [=](CaseMemory& memory, PreparedCase& prepared) {
    // Every row its own copy: what a batch reads.
    std::vector<float> digest = case_normals(per_row, 1);
    for (std::size_t i = 0; i < per_row && vectors == 2; ++i)  // [head][min, max][half]
      if (i / half % 2 == 0 && digest[i] > digest[i + half]) std::swap(digest[i], digest[i + half]);
    const auto q = memory.normals(rows * heads * dim, 2);
    const auto digests =
        generated(rows, [&](std::size_t) { return static_cast<const char*>(memory.stored(digest, type)); });
    float* const scores = memory.result<float>(rows * heads * blocks);
    const AttentionShape shape{group, dim, type};
    const auto on_cpu = [=](const float* from, const char* low, std::size_t row, std::size_t head, auto kernel,
                            float* out) {
      const std::size_t first = row * heads + head * group;
      low += vectors * head * half * size_of(type);
      kernel(from + first * dim, low, low + (vectors - 1) * half * size_of(type), blocks, shape, out + first * blocks);
    };
    const auto list = memory.input(generated(rows, [&](std::size_t row) {
      return BlockScores{q.target + row * heads * dim, digests[row], blocks, scores + row * heads * blocks};
    }));
    prepared.run = [=, &memory] {
      if (memory.cuda()) return score_blocks_cuda(list.target, rows, blocks, kv_heads, shape, memory.stream(), kind);
      memory.each(std::size_t{rows} * kv_heads, [&](std::size_t task) {
        on_cpu(q.target, digests[task / kv_heads], task / kv_heads, task % kv_heads, score_blocks, scores);
      });
    };
    prepared.expected = [=] {
      std::vector<char> stored(per_row * size_of(type));
      from_f32(digest.data(), type, per_row, stored.data());
      std::vector<float> out(rows * heads * blocks);
      for (std::size_t row = 0; row < rows; ++row)
        for (std::size_t head = 0; head < kv_heads; ++head)
          on_cpu(&q[0], stored.data(), row, head, score_blocks_reference, out.data());
      return std::vector<double>(out.begin(), out.end());
    };
  };
  return one;
}

KernelCase top_k_case(std::uint32_t rows, std::uint32_t n, std::uint32_t k, bool ties) {
  KernelCase one{"top_k", fmt::format("{} rows, {} of {}{}", rows, k, n, ties ? ", ties" : "")};
  const std::uint32_t kept = std::min(k, n), width = 1 + kept;
  one.bytes = 4.0 * rows * (1.0 * n + kept);
  one.threaded = true;
  one.set_up = [=](CaseMemory& memory, PreparedCase& prepared) {
    const auto scores = memory.input(case_scores(std::size_t{rows} * n, 4, ties));
    std::uint32_t* const out = memory.result<std::uint32_t>(std::size_t{rows} * width);
    const auto list = memory.input(generated(rows, [=](std::size_t row) {
      return TopKRow{scores.target + row * n, n, k, out + row * width};
    }));
    prepared.run = [=, &memory] {
      if (memory.cuda()) return top_k_cuda(list.target, rows, 1, memory.stream());
      memory.each(rows, [&](std::size_t row) {
        out[row * width] = kept;
        top_k(list[row].scores, n, k, out + row * width + 1);
      });
    };
    prepared.expected = [=] {
      std::vector<double> expected;
      for (std::size_t row = 0; row < rows; ++row) {
        expected.push_back(kept);
        append(expected, largest(std::span(scores.host()).subspan(row * n, n), kept));
      }
      return expected;
    };
  };
  return one;
}

KernelCase blend_weights_case(std::uint32_t heads, std::uint32_t n, std::uint32_t queries) {
  KernelCase one{queries == 1 ? "blend_weights" : "column_sums",
                 fmt::format("{} heads, {} tokens, {} quer{}", heads, n, queries, queries == 1 ? "y" : "ies")};
  one.bytes = 4.0 * heads * n * (queries + 2.0);
  one.tolerance = 2e-6 * std::max(1.0, queries / 16.0);  // sums of so many weights
  const float share = queries == 1 ? 0.1f : 1.0f / static_cast<float>(queries);
  const float keep = queries == 1 ? 0.9f : 1.0f;
  one.set_up = [=](CaseMemory& memory, PreparedCase& prepared) {
    const std::size_t rows = std::size_t{heads} * queries;
    const auto scores = memory.normals(rows * n, 1, 2), before = memory.normals(std::size_t{heads} * n, 2);
    const auto lse = memory.input(generated(rows, [=](std::size_t row) { return log_sum_exp(&scores[row * n], n); }));
    float* const average = memory.result_at(before.target, std::size_t{heads} * n);
    const auto blends = memory.input(generated(heads, [=](std::size_t head) {
      return WeightBlend{
          scores.target + head * queries * n, lse.target + head * queries, average + head * n, n, n, queries};
    }));
    prepared.run = [=, &memory] {
      if (memory.cuda()) return blend_weights_cuda(blends.target, heads, n, keep, share, memory.stream());
      for (std::size_t row = 0; row < rows; ++row)
        blend_weights(scores.target + row * n, lse[row], n, keep, share, average + row / queries * n);
    };
    prepared.expected = [=] {
      std::vector<double> expected(before.host().begin(), before.host().end());
      for (std::size_t i = 0; i < rows * n; ++i) {
        double& own = expected[i / n / queries * n + i % n];
        own = double{keep} * own + double{share} * std::exp(double{scores[i]} - double{lse[i / n]});
      }
      return expected;
    };
  };
  return one;
}

// A head's scores to the logarithm of their sum.
KernelCase log_sum_exp_case(std::uint32_t rows, std::uint32_t n) {
  KernelCase one{"log_sum_exp", fmt::format("{} rows of {}", rows, n)};
  one.bytes = 4.0 * rows * n;
  one.tolerance = 1e-5;
  one.threaded = true;
  one.set_up = [=](CaseMemory& memory, PreparedCase& prepared) {
    const auto scores = memory.normals(std::size_t{rows} * n, 1, 5);
    float* const out = memory.result<float>(rows);
    const auto list = memory.input(generated(rows, [=](std::size_t row) {
      return ScoreRow{scores.target + row * n, n, out + row};
    }));
    prepared.run = [=, &memory] {
      if (memory.cuda()) return log_sum_exp_cuda(list.target, rows, memory.stream());
      memory.each(rows, [&](std::size_t row) { out[row] = log_sum_exp(list[row].scores, n); });
    };
    prepared.expected = [=] {
      return generated(rows, [&](std::size_t row) {
        double sum = 0;
        for (std::size_t t = 0; t < n; ++t) sum += std::exp(double{scores[row * n + t]});
        return std::log(sum);
      });
    };
  };
  return one;
}

}  // namespace

void append_selection_cases(CaseSize size, const TakeCase& take) {
  constexpr DType kF32 = DType::f32, kF16 = DType::f16, kBf16 = DType::bf16;
  constexpr std::uint32_t kK = 1024;
  if (size == CaseSize::bench) {
    take(build_digest_case(8, 128, 32 * kK, 1, kBf16));
    take(score_blocks_case(1, 8, 4, 128, 8 * kK, kBf16));
    take(score_blocks_case(8, 8, 4, 128, 2 * kK, kBf16));
    take(build_digest_case(8, 128, 32 * kK, 1, kBf16, DigestKind::mean));
    take(score_blocks_case(64, 8, 4, 128, 2 * kK, kBf16, DigestKind::mean));
    take(score_blocks_case(64, 8, 4, 128, 2 * kK, kBf16));  // 0.5 GB: no cache, of a GPU or of a server, helps
    take(top_k_case(32, 8 * kK, 128, false));
    take(top_k_case(256, 2 * kK, 64, false));
    take(top_k_case(32, 128 * kK, 2 * kK, false));
    take(blend_weights_case(32, 32 * kK, 1));
    take(blend_weights_case(32, 8 * kK, 64));
    take(log_sum_exp_case(2048, 8 * kK));
    return;
  }
  for (const DType type : {kF32, kF16, kBf16}) {
    take(build_digest_case(2, 64, 160, 1, type));
    take(build_digest_case(1, 128, 131, 2, type));
    take(build_digest_case(3, 80, 1, 1, type));
    take(build_digest_case(1, 5, 300, 8, type));
    take(build_digest_case(1, 128, 131, 2, type, DigestKind::mean));
    take(score_blocks_case(2, 2, 4, 128, 130, type, DigestKind::mean));
    take(score_blocks_case(1, 2, 1, 64, 70, type));
    take(score_blocks_case(2, 2, 4, 128, 130, type));
    take(score_blocks_case(1, 1, 7, 96, 64, type));
    take(score_blocks_case(1, 1, 32, 80, 3, type));
    take(score_blocks_case(2, 1, 5, 36, 20, type));
    take(score_blocks_case(1, 2, 3, 5, 9, type));
  }
  for (const bool ties : {false, true}) {
    take(top_k_case(3, 1, 1, ties));
    take(top_k_case(3, 300, 0, ties));
    take(top_k_case(3, 300, 77, ties));
    take(top_k_case(2, 300, 400, ties));
    take(top_k_case(2, 5000, 1000, ties));
  }
  for (const std::uint32_t n : {1u, 77u, 600u}) {
    take(blend_weights_case(3, n, 1));
    take(blend_weights_case(2, n, 5));
    take(log_sum_exp_case(3, n));
  }
}

}  // namespace tandem::eval
