// Dot products of a few rows with every weight row, bound by reading the weights; and conversion of stored weights.
//
// Each weight row is read as one sequential stream. Each dot product is two chains of vectors (the even and the odd
// ones of the row), added up from left to right and reduced by one tree, so its bits are the same in every block shape.
#include "engine/kernels/kernels_cpu.h"
#include "engine/kernels/vec.h"

namespace tandem::TANDEM_ISA_NAMESPACE {
namespace {

constexpr uint32_t kStep = 2 * kWidth;                    // elements that the two chains take together
constexpr uint32_t kTogether = kRegisters == 32 ? 8 : 4;  // rows of x in one pass over the weights
constexpr uint32_t kSliceFloats = 4096;                   // of x: 16 KiB that stay in the first-level cache
constexpr size_t kAhead = 8192;  // bytes of weights between use and prefetch: a tenth of them is in flight
constexpr size_t kLine = 64;

// Weight rows whose first-level prefetch, use and accumulators belong together: 1 where the chains of the rows of x
// hide the latency of a multiply-add (with 32 registers: two chains of 16 lanes do already).
template <int kRows>
constexpr int kOutsOf = kRows == 1 && kRegisters == 32 ? 1 : 2;

TANDEM_INLINE uint32_t least(uint32_t a, uint32_t b) {
  return a < b ? a : b;
}

// GCC would otherwise load x anew for each weight row, and loads are the limit.
TANDEM_INLINE void keep_in_register(vf& v) {
#if defined(__AVX512F__)
  asm("" : "+v"(v));
#else
  asm("" : "+x"(v));
#endif
}

// One slice of the weight rows `w` (outs of them) times one slice of kRows rows of x.
struct Slice {
  const float* x;     // [steps][2][rows of x][kWidth]
  const char* w;      //
  size_t row_bytes;   //
  uint32_t elements;  // of each row
  const char* ahead;  // what to prefetch meanwhile: as many rows
  float* sums;        // [outs][rows of x][2][kWidth]
  bool begin;         // the sums start here
};

template <class Type, int kRows, int kOuts, int kChains>
TANDEM_INLINE void chains(const Slice& s, int first_chain) {
  vf total[kOuts][kRows][kChains] = {};
  const auto sum_at = [&](int o, int r, int c) __attribute__((always_inline)) {
    return s.sums + ((o * kRows + r) * 2 + first_chain + c) * kWidth;
  };
  if (!s.begin)
    for (int o = 0; o < kOuts; ++o)
      for (int r = 0; r < kRows; ++r)
        for (int c = 0; c < kChains; ++c) total[o][r][c] = load(sum_at(o, r, c));
  const auto add = [&](int c, const float* x, vf(&weights)[kOuts]) __attribute__((always_inline)) {
    for (int r = 0; r < kRows; ++r) {
      vf value = load(x + r * kWidth);
      if (kOuts > 1) keep_in_register(value);
      for (int o = 0; o < kOuts; ++o) total[o][r][c] = fma(value, weights[o], total[o][r][c]);
    }
  };
  uint32_t i = 0;
  for (; i + kStep <= s.elements; i += kStep) {
    if (first_chain == 0)
      for (int o = 0; o < kOuts; ++o)
        for (size_t b = 0; b < kStep * Type::kBytes; b += kLine)
          __builtin_prefetch(s.ahead + o * s.row_bytes + i * Type::kBytes + b);
    for (int c = 0; c < kChains; ++c) {
      const uint32_t at = i + (first_chain + c) * kWidth;
      vf weights[kOuts];
      for (int o = 0; o < kOuts; ++o) weights[o] = Type::load(s.w + o * s.row_bytes + at * Type::kBytes);
      add(c, s.x + size_t{at} * kRows, weights);
    }
  }
  for (int c = 0; c < kChains; ++c) {
    const uint32_t at = i + (first_chain + c) * kWidth;
    if (at >= s.elements) break;
    const int count = static_cast<int>(least(s.elements - at, kWidth));
    vf weights[kOuts];
    for (int o = 0; o < kOuts; ++o)
      weights[o] = count == kWidth ? Type::load(s.w + o * s.row_bytes + at * Type::kBytes)
                                   : load_first_weights<Type>(s.w + o * s.row_bytes + at * Type::kBytes, count);
    add(c, s.x + size_t{at} * kRows, weights);
  }
  for (int o = 0; o < kOuts; ++o)
    for (int r = 0; r < kRows; ++r)
      for (int c = 0; c < kChains; ++c) store(sum_at(o, r, c), total[o][r][c]);
}

// Both chains at once where their accumulators leave registers for the operands, else one after the other: the slice
// is in the first-level cache by then.
template <class Type, int kRows, int kOuts>
TANDEM_INLINE void slice(const Slice& s) {
  if constexpr (2 * kOuts * kRows <= kRegisters / 2) {
    chains<Type, kRows, kOuts, 2>(s, 0);
  } else {
    chains<Type, kRows, kOuts, 1>(s, 0);
    chains<Type, kRows, kOuts, 1>(s, 1);
  }
}

// y[r][o] = sum of the chains of sums[o][r] + bias, for kRows rows of y that begin at y, `stride` apart.
template <int kRows>
void finish(const float* sums, uint32_t outs, const float* bias, float* y, size_t stride) {
  for (uint32_t o = 0; o < outs; o += kWidth) {
    const int count = static_cast<int>(least(outs - o, kWidth));
    const vf add = bias ? (count == kWidth ? load(bias + o) : load_first(bias + o, count)) : vf{};
    for (int r = 0; r < kRows; ++r) {
      vf each[kWidth] = {};
      for (int i = 0; i < count; ++i) {
        const float* both = sums + ((size_t{o} + i) * kRows + r) * kStep;
        each[i] = load(both) + load(both + kWidth);
      }
      const vf result = sum_each(each) + add;
      if (count == kWidth)
        store(y + r * stride + o, result);
      else
        store_first(y + r * stride + o, result, count);
    }
  }
}

// Weight rows [0, outs) times kRows rows of x. The next rows are prefetched kAhead bytes before their use, the first
// ones of the next slice during the last ones of this.
template <class Type, int kRows>
void few_rows(const float* x, const char* w, uint32_t in, uint32_t outs, const float* bias, float* y, size_t stride,
              float* sums) {
  constexpr uint32_t kBlock = kOutsOf<kRows>;
  constexpr uint32_t kElements = kSliceFloats / kRows / kStep * kStep;
  const size_t row_bytes = size_t{in} * Type::kBytes;
  uint32_t from = 0;
  do {
    const uint32_t elements = least(in - from, kElements);
    const bool last = in - from == elements;
    const uint32_t rows_ahead = elements == 0 ? 1 : static_cast<uint32_t>(kAhead / (elements * Type::kBytes));
    const uint32_t ahead = rows_ahead < kBlock ? kBlock : rows_ahead / kBlock * kBlock;
    for (uint32_t o = 0; o < outs;) {
      const char* at = w + o * row_bytes + from * Type::kBytes;
      const char* next = at + ahead * row_bytes;
      if (o + ahead >= outs && !last) next += elements * Type::kBytes - outs * row_bytes;
      const Slice s = {x + size_t{from} * kRows,         at,       row_bytes, elements, next,
                       sums + size_t{o} * kRows * kStep, from == 0};
      if (o + kBlock <= outs) {
        slice<Type, kRows, kBlock>(s);
        o += kBlock;
      } else {
        slice<Type, kRows, 1>(s);
        ++o;
      }
    }
    from += elements;
  } while (from < in);
  finish<kRows>(sums, outs, bias, y, stride);
}

template <class Type>
void rows_of(const LinearRows& a) {
  const char* w = static_cast<const char*>(a.w) + size_t{a.first} * a.in * Type::kBytes;
  const float* bias = a.bias ? a.bias + a.first : nullptr;
  const uint32_t outs = a.last - a.first;
  for (uint32_t r = 0; r < a.n; r += kTogether) {
    const float* x = a.packed_x + linear_padded(a.in) * r;
    float* y = a.y + size_t{a.out} * r + a.first;
#define TANDEM_ROWS(rows)                                              \
  case rows:                                                           \
    few_rows<Type, rows>(x, w, a.in, outs, bias, y, a.out, a.scratch); \
    break;
    switch (least(a.n - r, kTogether)) {
      TANDEM_ROWS(1)
      TANDEM_ROWS(2)
      TANDEM_ROWS(3)
      TANDEM_ROWS(4)
#if defined(__AVX512F__)
      TANDEM_ROWS(5)
      TANDEM_ROWS(6)
      TANDEM_ROWS(7)
      TANDEM_ROWS(8)
#endif
    }
#undef TANDEM_ROWS
  }
}

template <class Type>
void widen_all(const char* data, size_t n, float* out) {
  size_t i = 0;
  for (; i + kWidth <= n; i += kWidth) store(out + i, Type::load(data + i * Type::kBytes));
  if (const int rest = static_cast<int>(n - i); rest > 0)
    store_first(out + i, load_first_weights<Type>(data + i * Type::kBytes, rest), rest);
}

}  // namespace

void linear_pack(const float* x, uint32_t in, uint32_t n, float* packed) {
  for (uint32_t r = 0; r < n; r += kTogether) {
    const uint32_t rows = least(n - r, kTogether);
    float* to = packed + linear_padded(in) * r;
    for (uint32_t i = 0; i < linear_padded(in); i += kWidth)
      for (uint32_t j = 0; j < rows; ++j, to += kWidth) {
        const float* from = x + size_t{in} * (r + j) + i;
        store(to, i + kWidth <= in ? load(from) : i < in ? load_first(from, static_cast<int>(in - i)) : vf{});
      }
  }
}

void linear_rows(const LinearRows& rows) {
  switch (rows.type) {
    case DType::f32:
      return rows_of<F32>(rows);
    case DType::f16:
      return rows_of<F16>(rows);
    case DType::bf16:
      return rows_of<BF16>(rows);
  }
}

void widen(const void* data, DType type, size_t first, size_t n, float* out) {
  const char* bytes = static_cast<const char*>(data) + first * (type == DType::f32 ? 4 : 2);
  switch (type) {
    case DType::f32:
      return widen_all<F32>(bytes, n, out);
    case DType::f16:
      return widen_all<F16>(bytes, n, out);
    case DType::bf16:
      return widen_all<BF16>(bytes, n, out);
  }
}

}  // namespace tandem::TANDEM_ISA_NAMESPACE
