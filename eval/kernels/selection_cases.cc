// Cases of what selects blocks and follows weights: digests, block scores, top-k, averages.
#include <algorithm>
#include <cmath>
#include <fmt/core.h>
#include <numeric>

#include "engine/kernels/attention_weights.h"
#include "engine/kernels/convert.h"
#include "engine/kernels/digest.h"
#include "engine/kernels/topk.h"
#include "eval/kernels/case.h"

namespace tandem::eval {
namespace {

constexpr std::uint32_t kPage = kListPageTokens;

// Digests of all blocks of a layer. Pages lie in reverse.
KernelCase build_digest_case(std::uint32_t kv_heads, std::uint32_t dim, std::uint32_t tokens,
                             std::uint32_t pages_per_block, DType type) {
  KernelCase one;
  one.kernel = "build_digest";
  one.shape = fmt::format("{} tokens by {}, {} heads, D {}, {}", tokens, pages_per_block * kPage, kv_heads, dim,
                          to_string(type));
  const std::uint32_t pages = (tokens + kPage - 1) / kPage, block = pages_per_block * kPage;
  const std::uint32_t blocks = (tokens + block - 1) / block;
  const std::size_t elements = std::size_t{pages} * kv_heads * 2 * kPage * dim;
  const std::size_t digests = std::size_t{kv_heads} * 2 * blocks * dim;
  one.bytes = (1.0 * tokens * kv_heads * dim + static_cast<double>(digests)) * static_cast<double>(size_of(type));
  one.threaded = true;
  one.prepare = [=](CaseMemory& memory) {
    void* const kv = memory.stored_normals(elements, type, 1);
    void* const out = memory.bytes(digests * size_of(type));
    std::vector<std::uint32_t> slots(pages);
    for (std::uint32_t p = 0; p < pages; ++p) slots[p] = pages - 1 - p;
    const std::uint32_t* const device_slots = memory.input(slots);
    const auto key = [=](std::uint32_t head, std::uint32_t token) {  // its first element
      return ((std::size_t{slots[token / kPage]} * kv_heads + head) * 2 * kPage + token % kPage) * dim;
    };
    PreparedCase prepared;
    prepared.run = [=, &memory] {
      if (memory.cuda()) {
        build_digests_cuda({kv, type, kv_heads, dim}, device_slots, tokens, pages_per_block, out, memory.stream());
        return;
      }
      // A page's digest, then the union of a block's pages.
      memory.pool().parallel_for(std::size_t{kv_heads} * blocks, [&](std::size_t task) {
        const auto head = static_cast<std::uint32_t>(task / blocks), b = static_cast<std::uint32_t>(task % blocks);
        const std::size_t bytes = dim * size_of(type);
        std::vector<char> low(pages_per_block * bytes), high(low.size());
        std::uint32_t found = 0;
        for (std::uint32_t token = b * block; token < std::min(tokens, (b + 1) * block); token += kPage, ++found)
          build_digest(static_cast<const char*>(kv) + key(head, token) * size_of(type), type,
                       std::min(kPage, tokens - token), dim, &low[found * bytes], &high[found * bytes]);
        char* const to = static_cast<char*>(out) + (std::size_t{head} * 2 * blocks + b) * bytes;
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
            for (std::uint32_t token = b * block; token < std::min(tokens, (b + 1) * block); ++token) {
              least = std::min(least, values[key(head, token) + d]);
              most = std::max(most, values[key(head, token) + d]);
            }
            const std::size_t at = (std::size_t{head} * 2 * blocks + b) * dim + d;
            expected[at] = double{least};
            expected[at + std::size_t{blocks} * dim] = double{most};
          }
        }
      }
      return expected;
    };
    return prepared;
  };
  return one;
}

KernelCase score_blocks_case(std::uint32_t rows, std::uint32_t kv_heads, std::uint32_t group, std::uint32_t dim,
                             std::uint32_t blocks, DType type) {
  KernelCase one;
  one.kernel = "score_blocks";
  one.shape = fmt::format("batch {} x {} blocks, {}/{} heads, D {}, {}", rows, blocks, kv_heads * group, kv_heads, dim,
                          to_string(type));
  const std::size_t heads = std::size_t{kv_heads} * group, half = std::size_t{blocks} * dim;
  const std::size_t per_row = 2 * kv_heads * half;
  one.bytes = rows * (static_cast<double>(per_row * size_of(type)) + 4.0 * static_cast<double>(heads * blocks));
  one.flops = 4.0 * rows * static_cast<double>(heads * half);
  one.threaded = true;
  one.tolerance = 2e-5;
  one.prepare = [=](CaseMemory& memory) {
    // Every row its own copy: what a batch reads.
    std::vector<float> digest = case_normals(per_row, 1);
    for (std::size_t i = 0; i < per_row; ++i)  // [head][min, max][half]
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
      low += 2 * head * half * size_of(type);
      kernel(from + first * dim, low, low + half * size_of(type), blocks, shape, out + first * blocks);
    };
    PreparedCase prepared;
    if (memory.cuda()) {
      std::vector<BlockScores> list;
      list.reserve(rows);
      for (std::size_t row = 0; row < rows; ++row)
        list.push_back({q + row * heads * dim, digests[row], blocks, scores + row * heads * blocks});
      const BlockScores* const device = memory.input(list);
      prepared.run = [=, &memory] { score_blocks_cuda(device, rows, blocks, kv_heads, shape, memory.stream()); };
    } else {
      prepared.run = [=, &memory] {
        memory.pool().parallel_for(std::size_t{rows} * kv_heads, [&](std::size_t task) {
          on_cpu(q, digests[task / kv_heads], task / kv_heads, static_cast<std::uint32_t>(task % kv_heads),
                 score_blocks, scores);
        });
      };
    }
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
    return prepared;
  };
  return one;
}

KernelCase top_k_case(std::uint32_t rows, std::uint32_t n, std::uint32_t k, bool ties) {
  KernelCase one;
  one.kernel = "top_k";
  one.shape = fmt::format("{} rows, {} of {}{}", rows, k, n, ties ? ", ties" : "");
  const std::uint32_t kept = std::min(k, n);
  one.bytes = 4.0 * rows * (1.0 * n + kept);
  one.threaded = true;
  one.prepare = [=](CaseMemory& memory) {
    auto scores = case_normals(std::size_t{rows} * n, 1, 4);
    if (ties)
      for (float& score : scores) score = std::round(score);
    const float* const at = memory.input(scores);
    std::uint32_t* const out = memory.output<std::uint32_t>(rows * (1 + std::size_t{kept}));
    PreparedCase prepared;
    if (memory.cuda()) {
      std::vector<TopKRow> list;
      list.reserve(rows);
      for (std::size_t row = 0; row < rows; ++row)
        list.push_back({at + row * n, n, k, out + row * (1 + std::size_t{kept})});
      const TopKRow* const device = memory.input(list);
      prepared.run = [=, &memory] { top_k_cuda(device, rows, 1, memory.stream()); };
    } else {
      prepared.run = [=, &memory] {
        memory.pool().parallel_for(rows, [&](std::size_t row) {
          out[row * (1 + std::size_t{kept})] = kept;
          top_k(at + row * n, n, k, out + row * (1 + std::size_t{kept}) + 1);
        });
      };
    }
    prepared.result = [=, &memory] {
      const auto chosen = memory.read(out, rows * (1 + std::size_t{kept}));
      return std::vector<float>(chosen.begin(), chosen.end());
    };
    prepared.expected = [=] {
      std::vector<double> expected;
      for (std::size_t row = 0; row < rows; ++row) {
        std::vector<std::uint32_t> order(n);
        std::iota(order.begin(), order.end(), 0u);
        std::stable_sort(order.begin(), order.end(),
                         [&](std::uint32_t a, std::uint32_t b) { return scores[row * n + a] > scores[row * n + b]; });
        std::sort(order.begin(), order.begin() + kept);
        expected.push_back(kept);
        expected.insert(expected.end(), order.begin(), order.begin() + kept);
      }
      return expected;
    };
    return prepared;
  };
  return one;
}

KernelCase blend_weights_case(std::uint32_t heads, std::uint32_t n, std::uint32_t queries) {
  KernelCase one;
  one.kernel = queries == 1 ? "blend_weights" : "column_sums";
  one.shape = fmt::format("{} heads, {} tokens, {} quer{}", heads, n, queries, queries == 1 ? "y" : "ies");
  one.bytes = 4.0 * heads * n * (queries + 2.0);
  one.tolerance = 2e-6;
  const float share = queries == 1 ? 0.1f : 1.0f / static_cast<float>(queries);
  const float keep = queries == 1 ? 0.9f : 1.0f;
  one.prepare = [=](CaseMemory& memory) {
    const auto scores = case_normals(std::size_t{heads} * queries * n, 1, 2);
    const auto before = case_normals(std::size_t{heads} * n, 2);
    std::vector<float> sums(std::size_t{heads} * queries);
    for (std::size_t row = 0; row < sums.size(); ++row) sums[row] = log_sum_exp(&scores[row * n], n);
    const float* const at = memory.input(scores);
    const float* const lse = memory.input(sums);
    float* const average = memory.input(before);
    PreparedCase prepared;
    if (memory.cuda()) {
      std::vector<WeightBlend> list;
      list.reserve(heads);
      for (std::size_t head = 0; head < heads; ++head)
        list.push_back({at + head * queries * n, lse + head * queries, average + head * n, n, n, queries});
      const WeightBlend* const device = memory.input(list);
      prepared.run = [=, &memory] { blend_weights_cuda(device, heads, n, keep, share, memory.stream()); };
    } else {
      prepared.run = [=] {
        for (std::size_t row = 0; row < std::size_t{heads} * queries; ++row)
          blend_weights(at + row * n, lse[row], n, keep, share, average + row / queries * n);
      };
    }
    prepared.result = [=, &memory] { return memory.read(average, std::size_t{heads} * n); };
    prepared.expected = [=] {
      std::vector<double> expected(before.begin(), before.end());
      for (std::size_t row = 0; row < std::size_t{heads} * queries; ++row)
        for (std::size_t t = 0; t < n; ++t) {
          double& average_of = expected[row / queries * n + t];
          average_of =
              double{keep} * average_of + double{share} * std::exp(double{scores[row * n + t]} - double{sums[row]});
        }
      return expected;
    };
    return prepared;
  };
  return one;
}

// A head's scores to the logarithm of their sum.
KernelCase log_sum_exp_case(std::uint32_t rows, std::uint32_t n) {
  KernelCase one;
  one.kernel = "log_sum_exp";
  one.shape = fmt::format("{} rows of {}", rows, n);
  one.bytes = 4.0 * rows * n;
  one.tolerance = 1e-5;
  one.threaded = true;
  one.prepare = [=](CaseMemory& memory) {
    const auto scores = case_normals(std::size_t{rows} * n, 1, 5);
    const float* const at = memory.input(scores);
    float* const out = memory.output<float>(rows);
    std::vector<ScoreRow> list;
    list.reserve(rows);
    for (std::size_t row = 0; row < rows; ++row) list.push_back({at + row * n, n, out + row});
    const ScoreRow* const device = memory.input(list);
    PreparedCase prepared;
    prepared.run = [=, &memory] {
      if (memory.cuda()) {
        log_sum_exp_cuda(device, rows, memory.stream());
      } else {
        memory.pool().parallel_for(rows, [&](std::size_t row) { out[row] = log_sum_exp(at + row * n, n); });
      }
    };
    prepared.result = [=, &memory] { return memory.read(out, rows); };
    prepared.expected = [=] {
      std::vector<double> expected(rows);
      for (std::size_t row = 0; row < rows; ++row) {
        for (std::size_t t = 0; t < n; ++t) expected[row] += std::exp(double{scores[row * n + t]});
        expected[row] = std::log(expected[row]);
      }
      return expected;
    };
    return prepared;
  };
  return one;
}

// Who chose each token; averages at the threshold are not above it.
KernelCase salient_masks_case(std::uint32_t group, std::uint32_t n) {
  KernelCase one;
  one.kernel = "salient_masks";
  one.shape = fmt::format("a group of {}, {} tokens", group, n);
  one.bytes = 4.0 * n * (group + 1.0);
  one.prepare = [=](CaseMemory& memory) {
    const std::size_t stride = n + 5;
    auto averages = case_normals(group * stride, 1, 2);
    for (float& average : averages) average = std::round(average);
    const float* const at = memory.input(averages);
    std::uint32_t* const masks = memory.output<std::uint32_t>(n);
    std::uint32_t* const chosen = memory.output<std::uint32_t>(1);
    PreparedCase prepared;
    prepared.run = [=, &memory] {
      if (memory.cuda()) {
        salient_masks_cuda(at, stride, n, group, 1.0f, masks, chosen, memory.stream());
      } else {
        *chosen = salient_masks(at, stride, n, group, 1.0f, masks);
      }
    };
    prepared.result = [=, &memory] {
      const auto found = memory.read(masks, n);
      std::vector<float> bits;  // a mask may have more digits than a float
      for (const std::uint32_t mask : found)
        for (std::uint32_t g = 0; g < 32; ++g) bits.push_back(static_cast<float>(mask >> g & 1u));
      bits.push_back(static_cast<float>(memory.read(chosen, 1)[0]));
      return bits;
    };
    prepared.expected = [=] {
      std::vector<double> expected;
      double any = 0;
      for (std::uint32_t t = 0; t < n; ++t) {
        bool salient = false;
        for (std::uint32_t g = 0; g < 32; ++g) {
          const bool chose = g < group && averages[g * stride + t] > 1.0f;
          expected.push_back(chose ? 1 : 0);
          salient = salient || chose;
        }
        any += salient ? 1 : 0;
      }
      expected.push_back(any);
      return expected;
    };
    return prepared;
  };
  return one;
}

}  // namespace

void append_selection_cases(CaseSize size, std::vector<KernelCase>& cases) {
  const auto take = [&](KernelCase one) { cases.push_back(std::move(one)); };
  constexpr DType kF32 = DType::f32, kF16 = DType::f16, kBf16 = DType::bf16;
  constexpr std::uint32_t kK = 1024;
  if (size == CaseSize::bench) {
    take(build_digest_case(8, 128, 32 * kK, 1, kBf16));
    take(score_blocks_case(1, 8, 4, 128, 8 * kK, kBf16));
    take(score_blocks_case(8, 8, 4, 128, 2 * kK, kBf16));
    take(top_k_case(32, 8 * kK, 128, false));
    take(top_k_case(256, 2 * kK, 64, false));
    take(top_k_case(32, 128 * kK, 2 * kK, false));
    take(blend_weights_case(32, 32 * kK, 1));
    take(blend_weights_case(32, 8 * kK, 64));
    take(log_sum_exp_case(2048, 8 * kK));
    take(salient_masks_case(4, 32 * kK));
    return;
  }
  for (const DType type : {kF32, kF16, kBf16}) {
    take(build_digest_case(2, 64, 160, 1, type));
    take(build_digest_case(1, 128, 131, 2, type));
    take(build_digest_case(3, 80, 1, 1, type));
    take(build_digest_case(1, 5, 300, 8, type));
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
    take(salient_masks_case(n % 32 + 1, n));
  }
}

}  // namespace tandem::eval
