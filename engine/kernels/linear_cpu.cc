// Dot products of a few rows with every weight row, bound by reading the weights.
//
// One stream of memory alone does not reach the machine's bandwidth, and rows beside each other are streams too short
// for the hardware's prefetchers. So a task's weight rows are cut into four parts, and each part is one long stream.
#include "engine/kernels/kernels_cpu.h"
#include "engine/kernels/vec.h"

namespace tandem::TANDEM_ISA_NAMESPACE {
namespace {

constexpr uint32_t kTogether = kRegisters == 32 ? 8 : 4;  // rows of x in one pass over the weights
// Bytes of each stream between a prefetch and its use: to the second-level cache, which takes more of them at a time,
// then to the first. To the first alone, 2048 ahead, took 1.1 to 1.9 times as long on Zen 4 (1.9 with four rows of x).
constexpr size_t kAhead = 2048, kNear = 512;
constexpr size_t kLine = 64;

// Few rows of x come from the second-level cache without loss. Of many, one slice after the other stays in the
// first-level cache, and the sums of some weight rows wait in memory.
template <class Type>
constexpr int kRowsUnsliced = Type::kBytes == 4 ? 6 : 4;
constexpr uint32_t kSlice = 1024, kSlicedRows = 128;

// Streams beside kRows rows of x: accumulators, weights and one vector of x fit the registers.
template <int kRows>
constexpr int kStreamsBeside = (kRows + 1) * 4 + 1 <= kRegisters   ? 4
                               : (kRows + 1) * 3 + 1 <= kRegisters ? 3
                                                                   : 2;

// GCC would otherwise load x anew for each weight row, and loads are the limit.
TANDEM_INLINE void keep_in_register(vf& v) {
#if defined(__AVX512F__)
  asm("" : "+v"(v));
#else
  asm("" : "+x"(v));
#endif
}

struct Product {
  const float* x;     // [steps][rows of x][kWidth], zero beyond `in`
  const char* w;      // the first weight row
  const float* bias;  // its bias, or nullptr
  float* y;           // its output for the first row of x
  uint32_t in;        //
  size_t stride;      // floats between the rows of y
};

// Elements [from, to) of the rows; 0 .. in where x stays in the caches anyway.
struct Slice {
  uint32_t from, to;
  size_t ahead;  // bytes between prefetch and use
  float* sums;   // what the slices so far amount to, [streams][rows of x][kWidth]
};

// The rows `distance` apart, kStreams of them, times kRows rows of x. Each product has one accumulator and runs over
// `in` from left to right, so its bits are the same in every block shape.
template <class Type, int kRows, int kStreams>
TANDEM_INLINE void dot_block(const Product& p, const Slice& slice, uint32_t distance) {
  constexpr size_t kStepBytes = kWidth * Type::kBytes;
  constexpr int kSteps = kLine / kStepBytes;  // vectors per cache line
  const size_t far = size_t{p.in} * Type::kBytes * distance;
  vf total[kRows][kStreams] = {};
  const float* x = p.x + size_t{slice.from} * kRows;
  const auto step = [&](const vf(&weights)[kStreams]) __attribute__((always_inline)) {
    for (int r = 0; r < kRows; ++r, x += kWidth) {
      vf value = load(x);
      keep_in_register(value);
      for (int s = 0; s < kStreams; ++s) total[r][s] = fma(value, weights[s], total[r][s]);
    }
  };
  const auto steps = [&](const char* at, int count) __attribute__((always_inline)) {
    for (int i = 0; i < count; ++i, at += kStepBytes) {
      vf weights[kStreams];
      for (int s = 0; s < kStreams; ++s) weights[s] = Type::load(at + s * far);
      step(weights);
    }
  };
  if (slice.from > 0)
    for (int r = 0; r < kRows; ++r)
      for (int s = 0; s < kStreams; ++s) total[r][s] = load(slice.sums + (s * kRows + r) * kWidth);
  const char* at = p.w + slice.from * Type::kBytes;
  const char* const end = p.w + slice.to * Type::kBytes;
  for (; at + kLine <= end; at += kLine) {
    for (int s = 0; s < kStreams; ++s) __builtin_prefetch(at + s * far + slice.ahead, 0, 2);
    for (int s = 0; s < kStreams; ++s) __builtin_prefetch(at + s * far + kNear);
    steps(at, kSteps);
  }
  for (; at + kStepBytes <= end; at += kStepBytes) steps(at, 1);
  if (at < end) {
    vf weights[kStreams];
    for (int s = 0; s < kStreams; ++s)
      weights[s] =
          load_first_weights<Type>(at + s * far, static_cast<int>(static_cast<size_t>(end - at) / Type::kBytes));
    step(weights);
  }
  if (slice.to < p.in) {
    for (int r = 0; r < kRows; ++r)
      for (int s = 0; s < kStreams; ++s) store(slice.sums + (s * kRows + r) * kWidth, total[r][s]);
    return;
  }
  for (int r = 0; r < kRows; ++r)
    for (int s = 0; s < kStreams; ++s)
      p.y[p.stride * r + s * distance] = sum(total[r][s]) + (p.bias ? p.bias[s * distance] : 0.0f);
}

template <class Type>
TANDEM_INLINE void advance(Product& p, uint32_t rows) {
  p.w += size_t{p.in} * Type::kBytes * rows;
  p.y += rows;
  if (p.bias) p.bias += rows;
}

// All of kStreams * part weight rows, a slice after the other.
template <class Type, int kRows, int kStreams>
void streams(const Product& first, uint32_t part) {
  if constexpr (kRows <= kRowsUnsliced<Type>) {
    Product p = first;
    const Slice whole = {.from = 0, .to = p.in, .ahead = kAhead, .sums = nullptr};
    for (uint32_t o = 0; o < part; ++o, advance<Type>(p, 1)) dot_block<Type, kRows, kStreams>(p, whole, part);
  } else {
    alignas(64) float sums[kSlicedRows * kRows * kWidth];
    const uint32_t in = first.in;
    for (uint32_t from = 0; from == 0 || from < in; from += kSlice) {
      Product p = first;
      Slice slice = {from, in - from < kSlice ? in : from + kSlice, size_t{in} * Type::kBytes, sums};
      for (uint32_t o = 0; o < part; ++o, advance<Type>(p, 1), slice.sums += kStreams * kRows * kWidth)
        dot_block<Type, kRows, kStreams>(p, slice, part);
    }
  }
}

template <class Type, int kRows>
void few_rows(Product p, uint32_t outs) {
  constexpr uint32_t kStreams = kStreamsBeside<kRows>;
  while (outs > 0) {
    const uint32_t now = kRows <= kRowsUnsliced<Type> || outs < kSlicedRows ? outs : kSlicedRows;
    const uint32_t part = now / kStreams, rest = now - part * kStreams;
    streams<Type, kRows, kStreams>(p, part);
    advance<Type>(p, part * kStreams);
    streams<Type, kRows, 1>(p, rest);
    advance<Type>(p, rest);
    outs -= now;
  }
}

// few_rows() of the `left` rows, or of kTogether where there are more.
template <class Type, int kRows = 1>
void rows_left(const Product& p, uint32_t outs, uint32_t left) {
  if constexpr (kRows < static_cast<int>(kTogether)) {
    if (left > kRows) return rows_left<Type, kRows + 1>(p, outs, left);
  }
  few_rows<Type, kRows>(p, outs);
}

template <class Type>
void rows_of(const LinearRows& a) {
  const uint32_t outs = a.last - a.first;
  for (uint32_t r = 0; r < a.n; r += kTogether) {
    const Product p = {.x = a.packed_x + linear_padded(a.in) * r,
                       .w = static_cast<const char*>(a.w) + size_t{a.first} * a.in * Type::kBytes,
                       .bias = a.bias ? a.bias + a.first : nullptr,
                       .y = a.y + size_t{a.out} * r + a.first,
                       .in = a.in,
                       .stride = a.out};
    rows_left<Type>(p, outs, a.n - r);
  }
}

}  // namespace

void linear_pack(const float* x, uint32_t in, uint32_t n, float* packed) {
  for (uint32_t r = 0; r < n; r += kTogether) {
    const uint32_t rows = n - r < kTogether ? n - r : kTogether;
    float* to = packed + linear_padded(in) * r;
    for (uint32_t i = 0; i < linear_padded(in); i += kWidth)
      for (uint32_t j = 0; j < rows; ++j, to += kWidth) {
        const float* from = x + size_t{in} * (r + j) + i;
        store(to, i + kWidth <= in ? load(from) : i < in ? load_first(from, static_cast<int>(in - i)) : vf{});
      }
  }
}

void linear_rows(const LinearRows& rows) {
  TANDEM_RETURN_BY_TYPE(rows.type, rows_of, rows);
}

}  // namespace tandem::TANDEM_ISA_NAMESPACE
