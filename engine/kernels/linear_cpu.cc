// Dot products of a few rows with every weight row.
#include "engine/kernels/kernels_cpu.h"
#include "engine/kernels/vec.h"

namespace tandem::TANDEM_ISA_NAMESPACE {
namespace {

// Rows x outs dot products. Each has one accumulator and runs over `in` from left to right, so its bits are the same
// in every block shape.
template <class Type, int kRows, int kOuts>
void dot_block(const float* x, const char* w, uint32_t in, uint32_t out, const float* bias, float* y) {
  const size_t row_bytes = size_t{in} * Type::kBytes;
  vf total[kRows][kOuts] = {};
  const auto step = [&](const vf(&weights)[kOuts], const vf(&values)[kRows]) __attribute__((always_inline)) {
    for (int r = 0; r < kRows; ++r)
      for (int o = 0; o < kOuts; ++o) total[r][o] = fma(values[r], weights[o], total[r][o]);
  };
  vf weights[kOuts], values[kRows];
  uint32_t i = 0;
  for (; i + kWidth <= in; i += kWidth) {
    for (int o = 0; o < kOuts; ++o) {
      const char* at = w + o * row_bytes + i * Type::kBytes;
      weights[o] = Type::load(at);
      __builtin_prefetch(at +
                         kOuts * row_bytes);  // the rows that come next; rows are too short for the hardware's streams
    }
    for (int r = 0; r < kRows; ++r) values[r] = load(x + size_t{in} * r + i);
    step(weights, values);
  }
  if (const int rest = static_cast<int>(in - i); rest > 0) {
    for (int o = 0; o < kOuts; ++o) weights[o] = load_first_weights<Type>(w + o * row_bytes + i * Type::kBytes, rest);
    for (int r = 0; r < kRows; ++r) values[r] = load_first(x + size_t{in} * r + i, rest);
    step(weights, values);
  }
  for (int r = 0; r < kRows; ++r)
    for (int o = 0; o < kOuts; ++o) y[size_t{out} * r + o] = sum(total[r][o]) + (bias ? bias[o] : 0.0f);
}

// 16 accumulators at most with 32 registers, 8 with 16. Eight rows at once do not pay: x then comes from the
// second-level cache.
template <class Type, int kOuts>
void all_rows(const float* x, const char* w, uint32_t in, uint32_t out, const float* bias, float* y, uint32_t n) {
  constexpr int kTogether = kRegisters == 32 || kOuts == 1 ? kOuts : 2;
  uint32_t r = 0;
  for (; r + 4 <= n; r += 4)
    for (int o = 0; o < kOuts; o += kTogether)
      dot_block<Type, 4, kTogether>(x + size_t{in} * r, w + o * size_t{in} * Type::kBytes, in, out,
                                    bias ? bias + o : bias, y + size_t{out} * r + o);
  for (; r + 2 <= n; r += 2) dot_block<Type, 2, kOuts>(x + size_t{in} * r, w, in, out, bias, y + size_t{out} * r);
  for (; r < n; ++r) dot_block<Type, 1, kOuts>(x + size_t{in} * r, w, in, out, bias, y + size_t{out} * r);
}

template <class Type>
void rows_of(const float* x, const char* w, uint32_t in, uint32_t out, uint32_t first, uint32_t last, const float* bias,
             float* y, uint32_t n) {
  uint32_t o = first;
  const auto at = [&] { return w + size_t{o} * in * Type::kBytes; };
  for (; o + 4 <= last; o += 4) all_rows<Type, 4>(x, at(), in, out, bias ? bias + o : bias, y + o, n);
  for (; o < last; ++o) all_rows<Type, 1>(x, at(), in, out, bias ? bias + o : bias, y + o, n);
}

}  // namespace

void linear_rows(const float* x, const void* w, DType type, uint32_t in, uint32_t out, uint32_t first, uint32_t last,
                 const float* bias, float* y, uint32_t n) {
  const char* bytes = static_cast<const char*>(w);
  switch (type) {
    case DType::f32:
      return rows_of<F32>(x, bytes, in, out, first, last, bias, y, n);
    case DType::f16:
      return rows_of<F16>(x, bytes, in, out, first, last, bias, y, n);
    case DType::bf16:
      return rows_of<BF16>(x, bytes, in, out, first, last, bias, y, n);
  }
}

}  // namespace tandem::TANDEM_ISA_NAMESPACE
