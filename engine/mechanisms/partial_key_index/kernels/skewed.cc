#include "engine/mechanisms/partial_key_index/kernels/skewed.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "engine/kernels/blas.h"
#include "engine/kernels/convert.h"
#include "engine/kernels/gram.h"
#include "engine/kernels/kernel_table.h"
#include "engine/kernels/scratch.h"
#include "engine/kernels/topk.h"

namespace tandem {
namespace {

/// The sign of the largest element. Of elements equally large but for rounding the first decides.
double sign_of(const double* x, std::uint32_t n) {
  double most = 0;
  for (std::uint32_t i = 0; i < n; ++i) most = std::max(most, std::abs(x[i]));
  const double* const first = std::find_if(x, x + n, [&](double v) { return std::abs(v) >= most * (1 - 1e-6); });
  return *first < 0 ? -1 : 1;
}

}  // namespace

void symmetric_eigen(double* a, std::uint32_t n, double* vectors, double* values) {
  const std::size_t elements = std::size_t{n} * n;
  if (!std::all_of(a, a + elements, [](double x) { return std::isfinite(x); })) {
    std::fill_n(vectors, elements, std::numeric_limits<double>::quiet_NaN());
    std::fill_n(values, n, std::numeric_limits<double>::quiet_NaN());
    return;
  }
  std::vector<double> rising(n);
  blas_symmetric_eigen(a, n, rising.data());
  std::vector<std::uint32_t> order(n);
  std::iota(order.begin(), order.end(), 0u);
  std::stable_sort(order.begin(), order.end(), [&](std::uint32_t x, std::uint32_t y) { return rising[x] > rising[y]; });
  for (std::uint32_t i = 0; i < n; ++i) {
    values[i] = rising[order[i]];
    const double* const from = a + std::size_t{order[i]} * n;
    const double sign = sign_of(from, n);
    std::transform(from, from + n, vectors + std::size_t{i} * n, [sign](double x) { return sign * x; });
  }
}

namespace {

constexpr float kNothing = -std::numeric_limits<float>::infinity();

void divide_by_trace(double* gram, std::uint32_t dim) {
  double trace = 0;
  for (std::uint32_t i = 0; i < dim; ++i) trace += gram[i * dim + i];
  if (trace <= 0) return;
  for (std::uint32_t i = 0; i < dim * dim; ++i) gram[i] /= trace;
}

/// out[h][r] = scale * q[h] . rows[r], of `group` vectors q and `n` rows of `dim`, a head's `stride` behind another's.
void dot_rows(const float* q, std::uint32_t group, const void* rows, DType type, std::uint32_t n, std::uint32_t dim,
              float scale, float* out, std::size_t stride) {
  struct DotScratch;
  kernels().dot_rows(q, group, rows, type, n, dim, scale, out, stride,
                     aligned_scratch<DotScratch>(std::size_t{group} * padded_dim(dim)));
}

/// [n / unit]: the best of a unit's tokens under any head of the group.
std::vector<float> unit_scores(const float* scores, std::uint32_t group, std::uint32_t n, std::uint32_t unit) {
  std::vector<float> units(n / unit, kNothing);
  for (std::uint32_t h = 0; h < group; ++h, scores += n) {
    for (std::uint32_t t = 0; t < n / unit * unit; ++t) units[t / unit] = std::max(units[t / unit], scores[t]);
  }
  return units;
}

}  // namespace

void skew_grams(const SkewGrams& grams, std::uint32_t group, const KvPages& kv) {
  std::vector<float> key(kv.dim);
  GramSums keys(kv.dim), queries(kv.dim);
  for (std::uint32_t t = 0; t < grams.tokens; ++t) {
    to_f32(kv.key(grams.slots[t / kListPageTokens], grams.kv_head, t), kv.type, 0, kv.dim, key.data());
    std::copy(key.begin(), key.end(), keys.next_row());
  }
  keys.finish(grams.key_gram);
  for (std::uint32_t i = 0; i < grams.observed * group; ++i)
    std::copy_n(grams.queries + i / group * grams.stride + std::size_t{i % group} * kv.dim, kv.dim, queries.next_row());
  queries.finish(grams.query_gram);
}

void skew_directions(double* keys, double* queries, std::uint32_t dim, std::uint32_t columns, float* skew) {
  divide_by_trace(keys, dim);
  divide_by_trace(queries, dim);
  for (std::uint32_t i = 0; i < dim * dim; ++i) keys[i] += queries[i];
  std::vector<double> vectors(std::size_t{dim} * dim), values(dim);
  symmetric_eigen(keys, dim, vectors.data(), values.data());
  for (std::size_t i = 0; i < std::size_t{columns} * dim; ++i) skew[i] = static_cast<float>(vectors[i]);
}

void skew_keys(const SkewedKeys& keys, std::uint32_t columns, const KvPages& kv) {
  constexpr std::uint32_t kTogether = 32;
  std::vector<float> some(std::size_t{kTogether} * kv.dim), rows(std::size_t{kTogether} * columns);
  for (std::uint32_t t = 0; t < keys.tokens; t += kTogether) {
    const std::uint32_t count = std::min(kTogether, keys.tokens - t);
    for (std::uint32_t i = 0; i < count; ++i)
      to_f32(kv.key(keys.slots[(t + i) / kListPageTokens], keys.kv_head, t + i), kv.type, 0, kv.dim,
             &some[std::size_t{i} * kv.dim]);
    dot_rows(some.data(), count, keys.skew, DType::f32, columns, kv.dim, 1, rows.data(), columns);
    from_f32(rows.data(), kv.type, std::size_t{count} * columns,
             static_cast<char*>(keys.out) + std::size_t{t} * columns * size_of(kv.type));
  }
}

void skewed_scores(const SkewedScores& request, const SkewedShape& shape, std::uint32_t first, std::uint32_t count) {
  std::vector<float> turned(std::size_t{shape.group} * shape.columns);
  dot_rows(request.q, shape.group, request.skew, DType::f32, shape.columns, shape.dim, 1, turned.data(), shape.columns);
  const std::size_t row_bytes = shape.columns * size_of(shape.type);
  dot_rows(turned.data(), shape.group, static_cast<const char*>(request.keys) + first * row_bytes, shape.type, count,
           shape.columns, 1 / std::sqrt(static_cast<float>(shape.dim)), request.scores + first, request.n);
}

std::uint64_t near_the_best(const float* scores, std::uint32_t n, double alpha) {
  const double least = double{kernels().largest(scores, n)} - alpha;  // -infinity where all are NaN
  auto bound = static_cast<float>(least);
  if (bound < least) bound = std::nextafter(bound, std::numeric_limits<float>::infinity());
  std::uint32_t near = 0;
  for (std::uint32_t t = 0; t < n; ++t) near += scores[t] >= bound ? 1 : 0;
  return near;
}

std::uint32_t tokens_near_the_best(const float* scores, std::uint32_t heads, std::uint32_t n, double alpha) {
  std::uint64_t near = 0;
  for (std::uint32_t h = 0; h < heads; ++h) near += near_the_best(scores + std::size_t{h} * n, n, alpha);
  return static_cast<std::uint32_t>((near + heads - 1) / heads);
}

void best_units(const float* scores, std::uint32_t group, std::uint32_t n, std::uint32_t unit, std::uint32_t keep,
                std::uint32_t* chosen) {
  const std::vector<float> units = unit_scores(scores, group, n, unit);
  chosen[0] = std::min(keep, n / unit);
  top_k(units.data(), n / unit, chosen[0], chosen + 1);
}

void best_units_of_each(const float* scores, std::uint32_t group, std::uint32_t n, std::uint32_t unit,
                        std::uint32_t keep, std::uint32_t* chosen) {
  const std::uint32_t units = n / unit, own = std::min(keep, units);
  std::vector<std::uint32_t> list(own);
  std::vector<char> wanted(units);
  for (std::uint32_t h = 0; h < group; ++h) {
    top_k(unit_scores(scores + std::size_t{h} * n, 1, n, unit).data(), units, own, list.data());
    for (const std::uint32_t u : list) wanted[u] = 1;
  }
  chosen[0] = 0;
  for (std::uint32_t u = 0; u < units; ++u) {
    if (wanted[u] != 0) chosen[++chosen[0]] = u;
  }
}

void best_units_of_all(const float* scores, std::uint32_t kv_heads, std::uint32_t group, std::uint32_t n,
                       std::uint32_t unit, std::uint32_t keep, std::uint32_t* chosen, std::size_t stride) {
  std::vector<float> sums(n / unit);
  for (std::uint32_t g = 0; g < kv_heads; ++g) {
    const std::vector<float> units = unit_scores(scores + std::size_t{g} * group * n, group, n, unit);
    for (std::uint32_t u = 0; u < n / unit; ++u) sums[u] += units[u];
  }
  const std::uint32_t count = std::min(keep, n / unit);
  for (std::uint32_t g = 0; g < kv_heads; ++g) {
    std::uint32_t* list = chosen + g * stride;
    list[0] = count;
    if (g == 0)
      top_k(sums.data(), n / unit, count, list + 1);
    else
      std::copy_n(chosen + 1, count, list + 1);
  }
}

}  // namespace tandem
