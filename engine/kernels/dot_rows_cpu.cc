// Dot products of f32 queries with rows as they are stored.
#include "engine/kernels/dot_cpu.h"

namespace tandem::TANDEM_ISA_NAMESPACE {
namespace {

// out[h][r] of kHeads queries, kWidth / kHeads rows at a time.
template <class Type, int kHeads>
TANDEM_INLINE void dot_some(const char* const* q, const char* rows, uint32_t n, uint32_t dim, float* out,
                            size_t stride) {
  constexpr uint32_t kRows = kWidth / kHeads;
  const size_t row_bytes = dim * Type::kBytes;
  for (uint32_t r = 0; r < n; r += kRows) {
    const char* k[kRows];
    for (uint32_t i = 0; i < kRows; ++i) k[i] = rows + row_bytes * (r + i < n ? r + i : n - 1);
    const vf total = dot_heads<WidenedKeys<Type>, kHeads>(q, k, dim, [](uint32_t, int) {});
    float lanes[kWidth];
    store(lanes, total);
    const uint32_t count = n - r < kRows ? n - r : kRows;
    for (int h = 0; h < kHeads; ++h) __builtin_memcpy(out + stride * h + r, lanes + kRows * h, count * sizeof(float));
  }
}

template <class Type>
void dot_all(const float* q, uint32_t group, const char* rows, uint32_t n, uint32_t dim, float scale, float* out,
             size_t stride, float* scratch) {
  typedef WidenedKeys<Type> Dot;
  const size_t padded = padded_dim(dim);
  const uint32_t whole = dim / Dot::kStep * Dot::kStep;
  for (uint32_t h = 0; h < group; ++h) {
    float* row = scratch + padded * h;
    for (uint32_t d = 0; d < padded; ++d) row[d] = 0.0f;
    for (uint32_t d = 0; d < dim; ++d) {
      const uint32_t i = d % Dot::kStep;
      row[d < whole ? d - i + Type::pair_place(i) : d] = q[size_t{dim} * h + d] * scale;
    }
  }
  const auto query = [&](uint32_t h) { return reinterpret_cast<const char*>(scratch + padded * h); };
  uint32_t h = 0;
  for (; h + 4 <= group; h += 4) {
    const char* const four[] = {query(h), query(h + 1), query(h + 2), query(h + 3)};
    dot_some<Type, 4>(four, rows, n, dim, out + stride * h, stride);
  }
  for (; h < group; ++h) {
    const char* const one[] = {query(h)};
    dot_some<Type, 1>(one, rows, n, dim, out + stride * h, stride);
  }
}

}  // namespace

void dot_rows(const float* q, uint32_t group, const void* rows, DType type, uint32_t n, uint32_t dim, float scale,
              float* out, size_t stride, float* scratch) {
  const char* const from = static_cast<const char*>(rows);
  TANDEM_RETURN_BY_TYPE(type, dot_all, q, group, from, n, dim, scale, out, stride, scratch);
}

}  // namespace tandem::TANDEM_ISA_NAMESPACE
