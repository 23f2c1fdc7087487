// A partial index of keys: orthogonal directions per KV head, the first of which hold most of what queries and keys
// have in common, and the keys' components along these (InfiniGen, Lee et al. 2024, section 4.2). Scores from few
// components say which tokens to fetch.
#pragma once

#include <cstdint>

#include "engine/device/cuda/launch_array.h"
#include "engine/device/cuda/runtime.h"  // CudaStream
#include "engine/kernels/page_list.h"
#include "engine/kernels/scope.h"

namespace tandem {

/// What one KV head's directions are made from: the Gram matrices, sums of x x^T, of its keys and of queries of its
/// group. In float64, where products of f32 are exact, row by row.
struct SkewGrams {
  const std::uint32_t* slots = nullptr;  // of the pages that hold the keys, from token 0 on
  std::uint32_t tokens = 0, kv_head = 0;
  const float* queries = nullptr;  // [observed] times `group` rows of D, one `stride` floats behind the other
  std::size_t stride = 0;
  std::uint32_t observed = 0;
  double* key_gram = nullptr;    // [D][D]; is written
  double* query_gram = nullptr;  // [D][D]; is written
};
void skew_grams(const SkewGrams& grams, std::uint32_t group, const KvPages& kv);

/// The directions of one KV head: eigenvectors of the keys' and the queries' Gram matrices, each divided by its trace,
/// largest eigenvalue first. Destroys both matrices. Empty ones (of zeros) give some orthonormal directions.
void skew_directions(double* keys /*[D][D]*/, double* queries /*[D][D]*/, std::uint32_t dim, std::uint32_t columns,
                     float* skew /*[columns][D]*/);

/// Keys of one KV head that enter an index.
struct SkewedKeys {
  const float* skew = nullptr;           // [columns][D]
  const std::uint32_t* slots = nullptr;  // of the pages that hold them, from the first token on
  std::uint32_t tokens = 0, kv_head = 0;
  void* out = nullptr;  // [tokens][columns] of KvPages::type
};
/// out[t][c] = skew[c] . k[t], summed in f32.
void skew_keys(const SkewedKeys& keys, std::uint32_t columns, const KvPages& kv);

/// Queries of one KV head against its index.
struct SkewedScores {
  const float* q = nullptr;     // [group][D]
  const float* skew = nullptr;  // [columns][D]
  const void* keys = nullptr;   // [n][columns] of `type`
  std::uint32_t n = 0;
  float* scores = nullptr;  // [group][n]
};
struct SkewedShape {
  std::uint32_t group = 1, dim = 0, columns = 0;
  DType type = DType::f32;
};
/// scores[h][t] = sum_c (skew[c] . q[h]) keys[t][c] / sqrt(D), of tokens first .. first + count - 1.
void skewed_scores(const SkewedScores& request, const SkewedShape& shape, std::uint32_t first, std::uint32_t count);

/// How many tokens of one query head score at least its largest score - alpha. NaN is never near.
std::uint64_t near_the_best(const float* scores /*[n]*/, std::uint32_t n, double alpha);
/// How many tokens score near the best, in `heads` query heads together: the mean over them, rounded up, of how many
/// score at least their head's largest - alpha. 0 where there are none. NaN counts as -infinity, but is never near.
std::uint32_t tokens_near_the_best(const float* scores /*[heads][n]*/, std::uint32_t heads, std::uint32_t n,
                                   double alpha);
/// The best `keep` units of `unit` tokens, a unit's score being the best of its tokens under any head of the group: a
/// count, min(keep, n / unit), and the units in ascending order. Ties go to the lower one.
void best_units(const float* scores /*[group][n]*/, std::uint32_t group, std::uint32_t n, std::uint32_t unit,
                std::uint32_t keep, std::uint32_t* chosen /*[1 + min(keep, n / unit)]*/);
/// The units that are among the best `keep` of any head of the group, a unit's score in a head being the best of its
/// tokens: a count, then the units in ascending order.
void best_units_of_each(const float* scores /*[group][n]*/, std::uint32_t group, std::uint32_t n, std::uint32_t unit,
                        std::uint32_t keep, std::uint32_t* chosen /*[1 + min(group * keep, n / unit)]*/);
/// The same units for all KV heads: a unit's score is the sum of its scores in each. Each head's list begins `stride`
/// numbers behind the one before.
void best_units_of_all(const float* scores /*[kv_heads][group][n]*/, std::uint32_t kv_heads, std::uint32_t group,
                       std::uint32_t n, std::uint32_t unit, std::uint32_t keep, std::uint32_t* chosen,
                       std::size_t stride);

// On the GPU. The lists and all that they name are device memory.

/// skew_grams of many KV heads. The same bits as on the CPU.
void skew_grams_cuda(const SkewGrams* grams /*[count]*/, std::uint32_t count, std::uint32_t group, const KvPages& kv,
                     CudaStream stream);
/// skew_directions of `heads` KV heads, up to the signs. dim <= 512.
void skew_directions_cuda(double* keys /*[heads][D][D]*/, double* queries /*[heads][D][D]*/, std::uint32_t heads,
                          std::uint32_t dim, std::uint32_t columns, float* skew /*[heads][columns][D]*/,
                          CudaStream stream);
/// skew_keys of many KV heads; most: the largest number of tokens.
void skew_keys_cuda(const LaunchArray<SkewedKeys>& keys /*[count]*/, std::uint32_t count, std::uint32_t most,
                    std::uint32_t columns, const KvPages& kv, CudaStream stream);
/// skewed_scores of many KV heads; most: the largest n. group * columns <= 8192.
void skewed_scores_cuda(const LaunchArray<SkewedScores>& requests /*[count]*/, std::uint32_t count, std::uint32_t most,
                        const SkewedShape& shape, CudaStream stream);

/// The choice of one sequence: best_units of each KV head, with as many units as tokens_near_the_best of all heads come
/// to, rounded up, at most `most`.
struct SkewedChoice {
  const float* scores = nullptr;  // [kv_heads][group][n]
  std::uint32_t n = 0, unit = 1, most = 0;
  double alpha = 0;
  std::uint32_t* chosen = nullptr;  // [kv_heads][1 + room]
  std::uint32_t room = 0;           // at least most; of each head min(group * most, n / unit)
  std::uint32_t* near = nullptr;    // [kv_heads * group]; to work in
  float* sums = nullptr;            // [n / unit]; to work in, of all KV heads together
  std::uint32_t* marks = nullptr;   // [kv_heads][n / unit]; to work in, of each query head
};
/// scope: who chooses together. query_head: best_units_of_each instead; layer: best_units_of_all. most_units: the
/// largest n / unit.
void choose_skewed_cuda(const SkewedChoice* choices /*[count]*/, std::uint32_t count, std::uint32_t most_units,
                        std::uint32_t kv_heads, std::uint32_t group, Scope scope, CudaStream stream);

/// By LAPACK (blas.h), in float64. vectors[i]: the unit eigenvector of the i-th largest eigenvalue, the larger of its
/// elements positive; values[i]: that eigenvalue. Of a matrix with elements that are not finite all are NaN. `a` is
/// destroyed.
void symmetric_eigen(double* a /*[n][n]*/, std::uint32_t n, double* vectors /*[n][n]*/, double* values /*[n]*/);

}  // namespace tandem
