// Arrays of stored types to f32 and back.
#include "engine/kernels/kernels_cpu.h"
#include "engine/kernels/vec.h"

namespace tandem::TANDEM_ISA_NAMESPACE {
namespace {

template <class Type>
void widen_all(const char* data, size_t n, float* out) {
  size_t i = 0;
  for (; i + kWidth <= n; i += kWidth) store(out + i, Type::load(data + i * Type::kBytes));
  if (const int rest = static_cast<int>(n - i); rest > 0)
    store_first(out + i, load_first_weights<Type>(data + i * Type::kBytes, rest), rest);
}

template <class Type>
void narrow_all(const float* x, size_t n, char* out) {
  size_t i = 0;
  for (; i + kWidth <= n; i += kWidth) Type::store(out + i * Type::kBytes, load(x + i));
  if (const int rest = static_cast<int>(n - i); rest > 0)
    store_first_weights<Type>(out + i * Type::kBytes, load_first(x + i, rest), rest);
}

}  // namespace

void widen(const void* data, DType type, size_t first, size_t n, float* out) {
  const char* bytes = static_cast<const char*>(data) + first * (type == DType::f32 ? 4 : 2);
  TANDEM_RETURN_BY_TYPE(type, widen_all, bytes, n, out);
}

void narrow(const float* x, DType type, size_t n, void* out) {
  char* bytes = static_cast<char*>(out);
  TANDEM_RETURN_BY_TYPE(type, narrow_all, x, n, bytes);
}

void round_to_bf16(const float* x, size_t n, float* out) {
  size_t i = 0;
  for (; i + kWidth <= n; i += kWidth) store(out + i, rounded_to_bf16(load(x + i)));
  if (const int rest = static_cast<int>(n - i); rest > 0)
    store_first(out + i, rounded_to_bf16(load_first(x + i, rest)), rest);
}

}  // namespace tandem::TANDEM_ISA_NAMESPACE
