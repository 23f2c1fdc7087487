// Block digests and the scores that bound their keys.
#include "engine/kernels/kernels_cpu.h"
#include "engine/kernels/vec.h"

namespace tandem::TANDEM_ISA_NAMESPACE {
namespace {

template <class Type>
void min_max_rows(const char* low, const char* high, uint32_t rows, uint32_t dim, char* min_out, char* max_out) {
  const size_t row_bytes = dim * Type::kBytes;
  uint32_t d = 0;
  for (; d + kWidth <= dim; d += kWidth) {
    const size_t at = d * Type::kBytes;
    vf least = Type::load(low + at), most = Type::load(high + at);
    for (uint32_t r = 1; r < rows; ++r) {
      least = minimum(Type::load(low + row_bytes * r + at), least);
      most = maximum(Type::load(high + row_bytes * r + at), most);
    }
    Type::store(min_out + at, least);  // exact: the value of one of the rows
    Type::store(max_out + at, most);
  }
  if (const int rest = static_cast<int>(dim - d); rest > 0) {
    const size_t at = d * Type::kBytes;
    vf least = load_first_weights<Type>(low + at, rest), most = load_first_weights<Type>(high + at, rest);
    for (uint32_t r = 1; r < rows; ++r) {
      least = minimum(load_first_weights<Type>(low + row_bytes * r + at, rest), least);
      most = maximum(load_first_weights<Type>(high + row_bytes * r + at, rest), most);
    }
    store_first_weights<Type>(min_out + at, least, rest);
    store_first_weights<Type>(max_out + at, most, rest);
  }
}

template <class Type>
void add_all_rows(const char* rows, uint32_t n, uint32_t dim, float* sums) {
  const size_t row_bytes = dim * Type::kBytes;
  uint32_t d = 0;
  for (; d + kWidth <= dim; d += kWidth) {
    vf total = load(sums + d);
    for (uint32_t r = 0; r < n; ++r) total = total + Type::load(rows + row_bytes * r + d * Type::kBytes);
    store(sums + d, total);
  }
  if (const int rest = static_cast<int>(dim - d); rest > 0) {
    vf total = load_first(sums + d, rest);
    for (uint32_t r = 0; r < n; ++r)
      total = total + load_first_weights<Type>(rows + row_bytes * r + d * Type::kBytes, rest);
    store_first(sums + d, total, rest);
  }
}

// max(q min, q max) = q+ max + q- min, with q+ = max(q, 0) and q- = min(q, 0): two multiply-adds and no comparison.
template <class Type, int kHeads>
void score_block(const float* positive, const float* negative, const char* low, const char* high, uint32_t dim,
                 float* scores, size_t stride) {
  vf total[kHeads] = {};
  uint32_t d = 0;
  for (; d + kWidth <= dim; d += kWidth) {
    const vf least = Type::load(low + d * Type::kBytes), most = Type::load(high + d * Type::kBytes);
    for (int h = 0; h < kHeads; ++h) {
      const size_t at = size_t{dim} * h + d;
      total[h] = fma(load(negative + at), least, fma(load(positive + at), most, total[h]));
    }
  }
  if (const int rest = static_cast<int>(dim - d); rest > 0) {
    const vf least = load_first_weights<Type>(low + d * Type::kBytes, rest),
             most = load_first_weights<Type>(high + d * Type::kBytes, rest);
    for (int h = 0; h < kHeads; ++h) {
      const size_t at = size_t{dim} * h + d;
      total[h] = fma(load_first(negative + at, rest), least, fma(load_first(positive + at, rest), most, total[h]));
    }
  }
  for (int h = 0; h < kHeads; ++h) scores[stride * h] = sum(total[h]);
}

template <class Type>
void score_all(const float* q, const char* digest_min, const char* digest_max, uint32_t blocks, uint32_t group,
               uint32_t dim, float* scores, float* scratch) {
  const size_t row_bytes = dim * Type::kBytes;
  float* positive = scratch;
  float* negative = scratch + size_t{group} * dim;
  for (size_t i = 0; i < size_t{group} * dim; ++i) {
    positive[i] = q[i] > 0 ? q[i] : 0.0f;
    negative[i] = q[i] < 0 ? q[i] : 0.0f;
  }
  for (uint32_t b = 0; b < blocks; ++b) {
    const char* low = digest_min + row_bytes * b;
    const char* high = digest_max + row_bytes * b;
    uint32_t h = 0;
    for (; h + 4 <= group; h += 4)
      score_block<Type, 4>(positive + size_t{dim} * h, negative + size_t{dim} * h, low, high, dim,
                           scores + size_t{blocks} * h + b, blocks);
    for (; h < group; ++h)
      score_block<Type, 1>(positive + size_t{dim} * h, negative + size_t{dim} * h, low, high, dim,
                           scores + size_t{blocks} * h + b, blocks);
  }
}

}  // namespace

void min_max(const void* low, const void* high, DType type, uint32_t rows, uint32_t dim, void* min_out, void* max_out) {
  const char *from_low = static_cast<const char*>(low), *from_high = static_cast<const char*>(high);
  char *to_min = static_cast<char*>(min_out), *to_max = static_cast<char*>(max_out);
  TANDEM_RETURN_BY_TYPE(type, min_max_rows, from_low, from_high, rows, dim, to_min, to_max);
}

void add_rows(const void* rows, DType type, uint32_t n, uint32_t dim, float* sums) {
  const char* from = static_cast<const char*>(rows);
  TANDEM_RETURN_BY_TYPE(type, add_all_rows, from, n, dim, sums);
}

void score_blocks(const float* q, const void* digest_min, const void* digest_max, uint32_t blocks, AttentionShape shape,
                  float* scores, float* scratch) {
  const char *low = static_cast<const char*>(digest_min), *high = static_cast<const char*>(digest_max);
  TANDEM_RETURN_BY_TYPE(shape.kv, score_all, q, low, high, blocks, shape.group, shape.dim, scores, scratch);
}

}  // namespace tandem::TANDEM_ISA_NAMESPACE
