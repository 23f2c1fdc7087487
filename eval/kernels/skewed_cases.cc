// Cases of the partial index of keys: what enters it, scores from it, and the choice of tokens.
#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <numeric>
#include <set>

#include "engine/kernels/scope.h"
#include "engine/mechanisms/partial_key_index/kernels/skewed.h"
#include "eval/kernels/case.h"

namespace tandem::eval {
namespace {

// Components of keys along directions, or scores of queries from them. Pages lie in reverse.
KernelCase skewed_case(bool scores, std::uint32_t heads, std::uint32_t group, std::uint32_t dim, std::uint32_t columns,
                       std::uint32_t tokens, DType type) {
  KernelCase one{scores ? "skewed_scores" : "skew_keys", fmt::format("{} heads of {}, {} tokens, {} of D {}, {}", heads,
                                                                     group, tokens, columns, dim, to_string(type))};
  const double row = static_cast<double>(columns) * static_cast<double>(size_of(type));
  const double directions = 4.0 * heads * columns * dim;
  const double key = static_cast<double>(dim) * static_cast<double>(size_of(type));
  one.bytes = directions + (scores ? 1.0 * heads * tokens * (row + 4.0 * group) + 4.0 * heads * group * dim
                                   : 1.0 * heads * tokens * (row + key));
  one.flops = 2.0 * heads * tokens * columns * (scores ? group : dim);
  one.tolerance = type == DType::f32 || scores ? 2e-5 : type == DType::f16 ? 2e-3 : 1e-2;
  one.threaded = true;
  one.set_up = [=](CaseMemory& memory, PreparedCase& prepared) {
    const std::uint32_t pages = pages_of(tokens);
    const std::size_t index_values = std::size_t{heads} * tokens * columns, queries = std::size_t{heads} * group;
    const auto skew = memory.normals(std::size_t{heads} * columns * dim, 1, 1 / std::sqrt(static_cast<float>(dim)));
    const auto q = memory.normals(queries * dim, 2);
    const auto slots = memory.input(reversed(pages));
    const KvPages kv = memory.normal_pages(pages, heads, dim, type, 3);
    void* const index =
        scores ? memory.stored_normals(index_values, type, 4) : memory.stored_result(type, index_values);
    float* const out = memory.output<float>(queries * tokens);
    if (scores) memory.result_at(out, queries * tokens);
    const auto own = [=](std::size_t head) { return skew.target + head * columns * dim; };
    const auto rows = [=](std::size_t head) {
      return static_cast<char*>(index) + head * tokens * columns * size_of(type);
    };
    const auto keys = memory.input(generated(heads, [=](std::size_t head) {
      return SkewedKeys{own(head), slots.target, tokens, static_cast<std::uint32_t>(head), rows(head)};
    }));
    const auto requests = memory.input(generated(heads, [=](std::size_t head) {
      return SkewedScores{q.target + head * group * dim, own(head), rows(head), tokens, out + head * group * tokens};
    }));
    const SkewedShape shape{group, dim, columns, type};
    prepared.run = [=, &memory] {
      if (memory.cuda() && scores) return skewed_scores_cuda(requests.target, heads, tokens, shape, memory.stream());
      if (memory.cuda()) return skew_keys_cuda(keys.target, heads, tokens, columns, kv, memory.stream());
      memory.each(heads, [&](std::size_t head) {
        if (scores) {
          skewed_scores(requests[head], shape, 0, tokens);
        } else {
          skew_keys(keys[head], columns, kv);
        }
      });
    };
    prepared.expected = [=] {
      std::vector<double> expected;
      const auto dot = [&](std::size_t direction, const float* x) {
        double sum = 0;
        for (std::uint32_t d = 0; d < dim; ++d) sum += double{skew[direction * dim + d]} * double{x[d]};
        return sum;
      };
      if (!scores) {
        const HostKv host = host_kv(kv, pages, 3);
        for (std::size_t i = 0; i < index_values; ++i) {
          const auto token = static_cast<std::uint32_t>(i / columns % tokens);
          const std::size_t head = i / columns / tokens;
          expected.push_back(dot(head * columns + i % columns, host.key(slots[token / kListPageTokens], head, token)));
        }
        return expected;
      }
      const auto stored = rounded(case_normals(index_values, 4), type);
      for (std::size_t h = 0; h < queries; ++h) {
        const std::size_t head = h / group;
        const auto skewed = generated(columns, [&](std::size_t c) { return dot(head * columns + c, &q[h * dim]); });
        for (std::size_t t = 0; t < tokens; ++t) {
          const float* const components = &stored[(head * tokens + t) * columns];
          expected.push_back(std::inner_product(skewed.begin(), skewed.end(), components, 0.0) /
                             std::sqrt(static_cast<double>(dim)));
        }
      }
      return expected;
    };
  };
  return one;
}

// Gram matrices of a layer's keys and queries.
KernelCase skew_grams_case(std::uint32_t heads, std::uint32_t group, std::uint32_t dim, std::uint32_t tokens,
                           std::uint32_t observed, DType type) {
  KernelCase one{"skew_grams", fmt::format("{} heads of {}, {} keys, {} queries, D {}, {}", heads, group, tokens,
                                           observed, dim, to_string(type))};
  const double elements = 1.0 * heads * dim;
  one.bytes = elements * (tokens * static_cast<double>(size_of(type)) + 4.0 * observed * group + 16.0 * dim);
  one.flops = 2.0 * elements * dim * (1.0 * tokens + 1.0 * observed * group);
  one.tolerance = 1e-6;  // of the numbers as f32
  one.threaded = true;
  one.set_up = [=](CaseMemory& memory, PreparedCase& prepared) {
    const std::uint32_t pages = pages_of(tokens);
    const std::size_t stride = std::size_t{heads} * group * dim, matrix = std::size_t{dim} * dim;
    const auto queries = memory.normals(observed * stride, 2);
    const auto slots = memory.input(reversed(pages));
    const KvPages kv = memory.normal_pages(pages, heads, dim, type, 3);
    double* const out = memory.result<double>(2 * heads * matrix);
    const auto list = memory.input(generated(heads, [=](std::size_t head) {
      return SkewGrams{slots.target, tokens,   static_cast<std::uint32_t>(head), queries.target + head * group * dim,
                       stride,       observed, out + 2 * head * matrix,          out + (2 * head + 1) * matrix};
    }));
    prepared.run = [=, &memory] {
      if (memory.cuda()) return skew_grams_cuda(list.target, heads, group, kv, memory.stream());
      memory.each(heads, [&](std::size_t head) { skew_grams(list[head], group, kv); });
    };
    prepared.expected = [=] {
      const HostKv host = host_kv(kv, pages, 3);
      std::vector<double> expected(2 * heads * matrix);
      const auto add = [&](const float* x, double* to) {
        for (std::size_t i = 0; i < matrix; ++i) to[i] += double{x[i / dim]} * double{x[i % dim]};
      };
      for (std::size_t head = 0; head < heads; ++head) {
        for (std::uint32_t t = 0; t < tokens; ++t)
          add(host.key(slots[t / kListPageTokens], head, t), &expected[2 * head * matrix]);
        for (std::size_t i = 0; i < observed * group; ++i)
          add(&queries[i / group * stride + (head * group + i % group) * dim], &expected[(2 * head + 1) * matrix]);
      }
      return expected;
    };
  };
  return one;
}

// Directions of matrices whose eigenvectors are known, the cosines of a discrete transform: what comes out is projected
// onto them. Heads take them in different orders.
KernelCase skew_directions_case(std::uint32_t heads, std::uint32_t dim, std::uint32_t columns) {
  KernelCase one{"skew_directions", fmt::format("{} heads, {} of D {}", heads, columns, dim)};
  one.bytes = 8.0 * heads * dim * (2.0 * dim + columns);
  one.flops = 6.0 * 8 * heads * dim * dim * dim;  // eight sweeps
  one.bound = Bound::f64;
  one.tolerance = 1e-5;
  one.threaded = true;
  one.set_up = [=](CaseMemory& memory, PreparedCase& prepared) {
    const std::size_t matrix = std::size_t{dim} * dim;
    std::vector<double> basis(matrix);  // [vector][D]
    for (std::uint32_t k = 0; k < dim; ++k) {
      for (std::uint32_t d = 0; d < dim; ++d) {
        const double cosine = std::cos(std::acos(-1.0) * (d + 0.5) * k / dim);
        basis[std::size_t{k} * dim + d] = cosine * std::sqrt((k == 0 ? 1.0 : 2.0) / dim);
      }
    }
    const auto vector_of = [=](std::size_t head, std::size_t rank) { return (rank * 7 + head) % dim; };
    std::vector<double> keys(heads * matrix), queries(heads * matrix);
    for (std::uint32_t head = 0; head < heads; ++head) {
      for (std::uint32_t rank = 0; rank < dim; ++rank) {
        const double* x = &basis[vector_of(head, rank) * dim];
        const double weight = 3.0 * (dim - rank);
        for (std::size_t i = 0; i < matrix; ++i) {
          keys[head * matrix + i] += weight * x[i / dim] * x[i % dim];
          queries[head * matrix + i] += weight * weight * x[i / dim] * x[i % dim];
        }
      }
    }
    // As made, and where they are destroyed: keys, then queries.
    append(keys, queries);
    const double* const made = memory.input(std::move(keys)).target;
    double* const k = memory.output<double>(2 * heads * matrix);
    double* const q = k + heads * matrix;
    float* const skew = memory.output<float>(std::size_t{heads} * columns * dim);
    prepared.run = [=, &memory] {
      if (memory.cuda()) {
        cuda_copy(k, made, 2 * heads * matrix * sizeof(double), memory.stream());
        return skew_directions_cuda(k, q, heads, dim, columns, skew, memory.stream());
      }
      std::copy_n(made, 2 * heads * matrix, k);
      memory.each(heads, [&](std::size_t head) {
        skew_directions(k + head * matrix, q + head * matrix, dim, columns, skew + head * columns * dim);
      });
    };
    prepared.result = [=, &memory] {
      const auto found = memory.read(skew, std::size_t{heads} * columns * dim);
      std::vector<float> cosines;
      for (std::size_t i = 0; i < std::size_t{heads} * columns; ++i) {
        const double* x = &basis[vector_of(i / columns, i % columns) * dim];
        double cosine = 0, length = 0;
        for (std::uint32_t d = 0; d < dim; ++d) {
          const double at = double{found[i * dim + d]};
          cosine += x[d] * at;
          length += at * at;
        }
        cosines.push_back(static_cast<float>(std::fabs(cosine)));
        cosines.push_back(static_cast<float>(length));
      }
      return cosines;
    };
    prepared.expected = [=] { return std::vector<double>(std::size_t{2} * heads * columns, 1.0); };
  };
  return one;
}

// How many tokens to take, and which; of each KV head, of each query head, or for all of them together.
KernelCase choose_skewed_case(std::uint32_t heads, std::uint32_t group, std::uint32_t n, std::uint32_t unit,
                              std::uint32_t most, double alpha, bool ties, Scope scope = Scope::kv_head) {
  const bool together = scope == Scope::layer, each = scope == Scope::query_head;
  KernelCase one{together ? "choose_skewed_of_all"
                 : each   ? "choose_skewed_of_each"
                          : "choose_skewed",
                 fmt::format("{} heads of {}, {} tokens by {}, most {}, alpha {}{}", heads, group, n, unit, most, alpha,
                             ties ? ", ties" : "")};
  one.bytes = 4.0 * heads * group * n;
  one.threaded = !together;
  one.set_up = [=](CaseMemory& memory, PreparedCase& prepared) {
    const auto scores = memory.input(case_scores(std::size_t{heads} * group * n, 2, ties));
    const std::uint32_t room = (each ? std::min(group * most, n / unit) : most) + 3;
    const std::size_t stride = 1 + std::size_t{room};
    SkewedChoice choice{scores.target, n, unit, most, alpha, memory.output<std::uint32_t>(heads * stride), room};
    for (std::size_t head = 0; head < heads; ++head)
      memory.result_lists(choice.chosen + head * stride, {choice.chosen + head * stride + 1});
    if (memory.cuda()) {
      choice.near = memory.output<std::uint32_t>(std::size_t{heads} * group);
      if (together) choice.sums = memory.output<float>(n / unit);
      if (each) choice.marks = memory.output<std::uint32_t>(std::size_t{heads} * (n / unit));
    }
    const SkewedChoice* const device = memory.input(std::vector{choice}).target;
    prepared.run = [=, &memory] {
      if (memory.cuda()) return choose_skewed_cuda(device, 1, n / unit, heads, group, scope, memory.stream());
      const std::uint32_t tokens = tokens_near_the_best(choice.scores, heads * group, n, alpha);
      const std::uint32_t keep = std::min(most, (tokens + unit - 1) / unit);
      if (together) return best_units_of_all(choice.scores, heads, group, n, unit, keep, choice.chosen, stride);
      const auto best = each ? best_units_of_each : best_units;
      memory.each(heads, [&](std::size_t head) {
        best(choice.scores + head * group * n, group, n, unit, keep, choice.chosen + head * stride);
      });
    };
    prepared.expected = [=] {
      double near = 0;
      for (std::size_t h = 0; h < std::size_t{heads} * group; ++h) {
        const auto own = std::span(scores.host()).subspan(h * n, n);
        const double best = double{std::ranges::max(own)};
        near += static_cast<double>(std::ranges::count_if(own, [&](float s) { return double{s} >= best - alpha; }));
      }
      const auto tokens = static_cast<std::uint32_t>(std::ceil(near / (heads * group)));
      const std::uint32_t units = n / unit, keep = std::min({most, (tokens + unit - 1) / unit, units});
      // Selectors: each query head on its own, or the KV head's group as one.
      const std::uint32_t choosers = each ? group : 1, of_one = group / choosers;
      std::vector<std::vector<float>> best(std::size_t{heads} * choosers, std::vector<float>(units, -INFINITY));
      std::vector<float> sums(units);  // rounded as the kernels' are: which of near equals is chosen depends on it
      for (std::size_t i = 0; i < best.size(); ++i) {
        for (std::size_t h = i * of_one; h < (i + 1) * of_one; ++h) {
          for (std::size_t t = 0; t < units * unit; ++t)
            best[i][t / unit] = std::max(best[i][t / unit], scores[h * n + t]);
        }
        for (std::uint32_t u = 0; u < units; ++u) sums[u] += best[i][u];
      }
      std::vector<double> expected;
      for (std::uint32_t head = 0; head < heads; ++head) {
        std::set<std::uint32_t> chosen;
        for (std::uint32_t i = 0; i < choosers; ++i) {
          const auto units_of = largest(together ? sums : best[std::size_t{head} * choosers + i], keep);
          chosen.insert(units_of.begin(), units_of.end());
        }
        expected.push_back(static_cast<double>(chosen.size()));
        append(expected, chosen);
      }
      return expected;
    };
  };
  return one;
}

}  // namespace

void append_skewed_cases(CaseSize size, const TakeCase& take) {
  if (size == CaseSize::bench) {
    take(skew_grams_case(8, 4, 128, 32768, 64, DType::bf16));
    take(skew_directions_case(8, 128, 38));
    take(skewed_case(false, 8, 4, 128, 38, 32768, DType::bf16));
    take(skewed_case(true, 8, 4, 128, 38, 32768, DType::bf16));
    take(choose_skewed_case(8, 4, 32768, 1, 6144, 4, false));
    take(choose_skewed_case(8, 4, 32768, 1, 6144, 4, false, Scope::query_head));
    take(choose_skewed_case(8, 4, 32768, 32, 204, 4, false, Scope::layer));
    return;
  }
  for (const DType type : {DType::f32, DType::f16, DType::bf16}) {
    take(skew_grams_case(2, 3, 20, 70, 5, type));
    take(skewed_case(false, 2, 1, 64, 19, 75, type));
    take(skewed_case(true, 2, 4, 64, 19, 75, type));
  }
  take(skew_grams_case(1, 1, 5, 0, 3, DType::f32));
  take(skew_directions_case(2, 20, 6));
  take(skew_directions_case(1, 1, 1));
  take(skew_directions_case(1, 9, 9));
  take(skew_directions_case(1, 33, 12));  // more to rotate than threads, an odd number
  take(skew_directions_case(2, 64, 20));
  take(skewed_case(false, 1, 1, 5, 5, 1, DType::f32));
  take(skewed_case(true, 1, 7, 128, 38, 1100, DType::bf16));
  for (const Scope scope : {Scope::kv_head, Scope::query_head, Scope::layer}) {
    take(choose_skewed_case(2, 4, 300, 1, 50, 2, false, scope));
    take(choose_skewed_case(2, 4, 300, 1, 50, 2, true, scope));
    take(choose_skewed_case(1, 2, 320, 32, 100, 1, false, scope));
    take(choose_skewed_case(1, 1, 64, 32, 1, 1e9, true, scope));
    take(choose_skewed_case(3, 1, 70, 1, 70, 0, true, scope));
  }
}

}  // namespace tandem::eval
