// Cases of what selects blocks: digests, block scores, top-k.
#include <algorithm>
#include <cmath>
#include <fmt/core.h>
#include <numeric>

#include "engine/kernels/convert.h"
#include "engine/kernels/digest.h"
#include "engine/kernels/topk.h"
#include "eval/kernels/case.h"

namespace tandem::eval {
namespace {

const char* text_of(DigestKind kind) {
  return kind == DigestKind::mean ? ", means" : "";
}

// Digests of all blocks of a layer. Pages lie in reverse.
KernelCase build_digest_case(std::uint32_t kv_heads, std::uint32_t dim, std::uint32_t tokens,
                             std::uint32_t pages_per_block, DType type, DigestKind kind = DigestKind::bounds) {
  KernelCase one{"build_digest",
                 fmt::format("{} tokens by {}, {} heads, D {}, {}{}", tokens, pages_per_block * kListPageTokens,
                             kv_heads, dim, to_string(type), text_of(kind))};
  const std::uint32_t pages = pages_of(tokens), block = pages_per_block * kListPageTokens;
  const std::uint32_t blocks = (tokens + block - 1) / block;
  const std::size_t elements = std::size_t{pages} * kv_heads * 2 * kListPageTokens * dim;
  const std::uint32_t vectors = vectors_of(kind);
  const std::size_t digests = std::size_t{kv_heads} * vectors * blocks * dim;
  if (kind == DigestKind::mean) one.tolerance = 1e-2;  // as the store rounds it
  one.bytes = (1.0 * tokens * kv_heads * dim + static_cast<double>(digests)) * static_cast<double>(size_of(type));
  one.threaded = true;
  one.set_up = [=](CaseMemory& memory, PreparedCase& prepared) {
    void* const kv = memory.stored_normals(elements, type, 1);
    void* const out = memory.bytes(digests * size_of(type));
    const auto slots = reversed(pages);
    const std::uint32_t* const device_slots = memory.input(slots);
    const DigestRun* const run = memory.input(std::vector<DigestRun>{{device_slots, out, tokens, blocks}});
    const auto key = [=](std::uint32_t head, std::uint32_t token) {  // its first element
      return ((std::size_t{slots[token / kListPageTokens]} * kv_heads + head) * 2 * kListPageTokens +
              token % kListPageTokens) *
             dim;
    };
    prepared.run = [=, &memory] {
      if (memory.cuda())
        return build_digests_cuda({kv, type, kv_heads, dim}, run, 1, tokens, pages_per_block, memory.stream(), kind);
      // A page's digest, then the union of a block's pages.
      memory.pool().parallel_for(std::size_t{kv_heads} * blocks, [&](std::size_t task) {
        const auto head = static_cast<std::uint32_t>(task / blocks), b = static_cast<std::uint32_t>(task % blocks);
        const std::size_t bytes = dim * size_of(type);
        std::vector<char> low(pages_per_block * bytes), high(low.size());
        std::vector<float> sums(dim, 0.0f);
        std::uint32_t found = 0;
        for (std::uint32_t token = b * block; token < std::min(tokens, (b + 1) * block);
             token += kListPageTokens, ++found) {
          const char* const keys = static_cast<const char*>(kv) + key(head, token) * size_of(type);
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
    prepared.result = [=, &memory] { return memory.read_stored(out, type, digests); };
    prepared.expected = [=] {
      const auto values = rounded(case_normals(elements, 1), type);
      std::vector<double> expected(digests);
      for (std::uint32_t head = 0; head < kv_heads; ++head) {
        for (std::uint32_t b = 0; b < blocks; ++b) {
          for (std::uint32_t d = 0; d < dim; ++d) {
            float least = values[key(head, b * block) + d], most = least;
            double sum = 0;
            for (std::uint32_t token = b * block; token < std::min(tokens, (b + 1) * block); ++token) {
              least = std::min(least, values[key(head, token) + d]);
              most = std::max(most, values[key(head, token) + d]);
              sum += double{values[key(head, token) + d]};
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
  KernelCase one{"score_blocks", fmt::format("batch {} x {} blocks, {}/{} heads, D {}, {}{}", rows, blocks,
                                             kv_heads * group, kv_heads, dim, to_string(type), text_of(kind))};
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
    const auto query = case_normals(rows * heads * dim, 2);
    const float* const q = memory.input(query);
    std::vector<const char*> digests(rows);
    for (const char*& at : digests) at = static_cast<const char*>(memory.stored(digest, type));
    float* const scores = memory.output<float>(rows * heads * blocks);
    const AttentionShape shape{group, dim, type};
    const auto on_cpu = [=](const float* from, const char* low, std::size_t row, std::uint32_t head, auto kernel,
                            float* out) {
      const std::size_t first = row * heads + head * group;
      low += vectors * head * half * size_of(type);
      kernel(from + first * dim, low, low + (vectors - 1) * half * size_of(type), blocks, shape, out + first * blocks);
    };
    const BlockScores* const device = memory.input(generated(rows, [&](std::size_t row) {
      return BlockScores{q + row * heads * dim, digests[row], blocks, scores + row * heads * blocks};
    }));
    prepared.run = [=, &memory] {
      if (memory.cuda()) return score_blocks_cuda(device, rows, blocks, kv_heads, shape, memory.stream(), kind);
      memory.pool().parallel_for(std::size_t{rows} * kv_heads, [&](std::size_t task) {
        on_cpu(q, digests[task / kv_heads], task / kv_heads, static_cast<std::uint32_t>(task % kv_heads), score_blocks,
               scores);
      });
    };
    prepared.result = [=, &memory] { return memory.read(scores, rows * heads * blocks); };
    prepared.expected = [=] {
      std::vector<char> stored(per_row * size_of(type));
      from_f32(digest.data(), type, per_row, stored.data());
      std::vector<float> out(rows * heads * blocks);
      for (std::size_t row = 0; row < rows; ++row)
        for (std::uint32_t head = 0; head < kv_heads; ++head)
          on_cpu(query.data(), stored.data(), row, head, score_blocks_reference, out.data());
      return std::vector<double>(out.begin(), out.end());
    };
  };
  return one;
}

KernelCase top_k_case(std::uint32_t rows, std::uint32_t n, std::uint32_t k, bool ties) {
  KernelCase one{"top_k", fmt::format("{} rows, {} of {}{}", rows, k, n, ties ? ", ties" : "")};
  const std::uint32_t kept = std::min(k, n);
  one.bytes = 4.0 * rows * (1.0 * n + kept);
  one.threaded = true;
  one.set_up = [=](CaseMemory& memory, PreparedCase& prepared) {
    auto scores = case_normals(std::size_t{rows} * n, 1, 4);
    if (ties)
      for (float& score : scores) score = std::round(score);
    const float* const at = memory.input(scores);
    std::uint32_t* const out = memory.output<std::uint32_t>(rows * (1 + std::size_t{kept}));
    const TopKRow* const device = memory.input(generated(rows, [=](std::size_t row) {
      return TopKRow{at + row * n, n, k, out + row * (1 + std::size_t{kept})};
    }));
    prepared.run = [=, &memory] {
      if (memory.cuda()) return top_k_cuda(device, rows, 1, memory.stream());
      memory.pool().parallel_for(rows, [&](std::size_t row) {
        out[row * (1 + std::size_t{kept})] = kept;
        top_k(at + row * n, n, k, out + row * (1 + std::size_t{kept}) + 1);
      });
    };
    prepared.result = [=, &memory] { return memory.numbers(out, rows * (1 + std::size_t{kept})); };
    prepared.expected = [=] {
      std::vector<double> expected;
      for (std::size_t row = 0; row < rows; ++row) {
        expected.push_back(kept);
        append(expected, largest(std::span(scores).subspan(row * n, n), kept));
      }
      return expected;
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
}

}  // namespace tandem::eval
