// Matrix product of many rows with 64 bf16 weight rows on CPUs that multiply pairs of bf16: a slice of the weights is
// packed transposed and stays in the second-level cache while all rows pass. Compiled to something in the build with
// BF16 alone; the tables of the others have no such entry.
#include "engine/kernels/kernels_cpu.h"
#include "engine/kernels/pairs_cpu.h"
#include "engine/kernels/vec.h"

#if defined(__AVX512BF16__)

namespace tandem::TANDEM_ISA_NAMESPACE {
namespace {

constexpr uint32_t kElements = 32;  // of a row that are packed together
constexpr uint32_t kLine = 64;
static_assert(kPrefillColumns == kPanelColumns);

// Elements per row from `from` on that lie together in the rounded rows, which are [in / kBf16Depth][rows][depth].
uint32_t depth_from(uint32_t in, uint32_t from) {
  return in - from < kBf16Depth ? (in - from + 31) / 32 * 32 : kBf16Depth;
}

// Weights of `columns` rows of w from element `from` on, as [depth / 2][kPrefillColumns] pairs; what lacks is 0.
void pack_weights(const char* w, uint32_t in, uint32_t columns, uint32_t depth, __m512i* packed) {
  for (uint32_t k = 0; k < depth; k += kElements) {
    const uint32_t count = depth - k < kElements ? depth - k : kElements;
    const __mmask32 mask = count == kElements ? ~0u : (1u << count) - 1;
    for (uint32_t group = 0; group < kPanelVectors; ++group) {
      __m512i rows[kPairs];
      for (uint32_t c = 0; c < kPairs; ++c) {
        const uint32_t column = group * kPairs + c;
        rows[c] = column < columns ? _mm512_maskz_loadu_epi16(mask, w + (size_t{in} * column + k) * 2) : __m512i{};
      }
      transpose(rows);
      for (uint32_t i = 0; i < kPairs; ++i) packed[(k / 2 + i) * kPanelVectors + group] = rows[i];
    }
  }
}

// Fetches the weights that are packed next into the second-level cache, a few lines at a time: their rows are too far
// apart for the hardware to foresee the next one.
class Ahead {
 public:
  Ahead(const char* first_row, size_t row_bytes, uint32_t rows, uint32_t bytes)
      : row_(first_row), row_bytes_(row_bytes), rows_left_(bytes == 0 ? 0 : rows), bytes_(bytes) {}
  void prefetch(uint32_t lines) {
    for (; lines > 0 && rows_left_ > 0; --lines) {
      __builtin_prefetch(row_ + at_, 0, 2);
      at_ += kLine;
      if (at_ < bytes_) continue;
      at_ = 0;
      row_ += row_bytes_;
      --rows_left_;
    }
  }

 private:
  const char* row_;
  size_t row_bytes_;
  uint32_t rows_left_, at_ = 0, bytes_;
};

}  // namespace

void linear_bf16_round(const float* x, uint32_t in, uint32_t first, uint32_t last, uint32_t all_rows,
                       uint16_t* rounded) {
  for (uint32_t from = 0; from < in; from += kBf16Depth) {
    const uint32_t depth = depth_from(in, from);
    for (uint32_t r = first; r < last; ++r)
      for (uint32_t k = 0; k < depth; k += kElements) {
        vf half[2] = {};
        for (uint32_t h = 0; h < 2; ++h) {
          const uint32_t at = from + k + h * kWidth;
          const float* p = x + size_t{in} * r + at;
          if (at < in) half[h] = at + kWidth <= in ? load(p) : load_first(p, static_cast<int>(in - at));
        }
        const __m512bh pairs = _mm512_cvtne2ps_pbh(half[1], half[0]);
        _mm512_storeu_si512(rounded + size_t{all_rows} * from + size_t{depth} * r + k,
                            reinterpret_cast<__m512i>(pairs));
      }
  }
}

// Each output is summed over `in` from left to right, so its bits do not depend on n.
void linear_bf16_block(const Bf16Block& t) {
  auto* packed = reinterpret_cast<__m512i*>(t.scratch);  // [kBf16Depth / 2][kPrefillColumns] pairs
  const bool whole = t.columns == kPrefillColumns;
  float* sums = whole ? t.y + size_t{t.out} * t.row + t.column  // y has no room for columns that are none
                      : t.scratch + size_t{kBf16Depth} / 2 * kPrefillColumns;
  const size_t stride = whole ? t.out : kPrefillColumns, row_bytes = size_t{t.in} * 2;
  const char* w = static_cast<const char*>(t.w) + row_bytes * t.column;
  for (uint32_t from = 0; from == 0 || from < t.in; from += kBf16Depth) {
    const uint32_t left = t.in - from, depth = depth_from(t.in, from), there = left < depth ? left : depth;
    pack_weights(w + size_t{from} * 2, t.in, t.columns, there, packed);
    const auto* x = reinterpret_cast<const int32_t*>(t.x + size_t{t.all_rows} * from + size_t{depth} * t.row);
    const size_t a_stride = depth / 2;
    // The next slice, and after the last one the first of the columns that follow, which are likely the next task's.
    const bool last = left <= kBf16Depth;
    const uint32_t after = t.out - t.column - t.columns, next = last ? t.in : left - kBf16Depth;
    Ahead ahead(last ? w + row_bytes * t.columns : w + (size_t{from} + kBf16Depth) * 2, row_bytes,
                last && after < kPrefillColumns ? after : t.columns, 2 * (next < kBf16Depth ? next : kBf16Depth));
    const uint32_t lines = kPrefillColumns * depth * 2 / kLine * kChunkRows / t.rows + 1;
    pairs_rows(x, a_stride, packed, depth / 2, sums, stride, t.rows, kPanelColumns, from > 0,
               [&] { ahead.prefetch(lines); });
  }
  if (whole && !t.bias) return;
  for (uint32_t r = 0; r < t.rows; ++r)
    for (uint32_t c = 0; c < t.columns; ++c)
      t.y[size_t{t.out} * (t.row + r) + t.column + c] = sums[stride * r + c] + (t.bias ? t.bias[t.column + c] : 0.0f);
}

}  // namespace tandem::TANDEM_ISA_NAMESPACE

#endif
