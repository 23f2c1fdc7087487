// Norms, rotary embedding and elementwise kernels.
#include "engine/kernels/kernels_cpu.h"
#include "engine/kernels/vec.h"

namespace tandem::TANDEM_ISA_NAMESPACE {
namespace {

template <class Type>
void norm_row(const float* x, const char* weight, float eps, float* y, uint32_t d) {
  vf squares = {};
  uint32_t i = 0;
  for (; i + kWidth <= d; i += kWidth) {
    const vf v = load(x + i);
    squares = fma(v, v, squares);
  }
  const int rest = static_cast<int>(d - i);
  if (rest > 0) {
    const vf v = load_first(x + i, rest);
    squares = fma(v, v, squares);
  }
  const vf scale = splat(1.0f / __builtin_sqrtf(sum(squares) / static_cast<float>(d) + eps));
  for (i = 0; i + kWidth <= d; i += kWidth) store(y + i, load(x + i) * scale * Type::load(weight + i * Type::kBytes));
  if (rest > 0)
    store_first(y + i, load_first(x + i, rest) * scale * load_first_weights<Type>(weight + i * Type::kBytes, rest),
                rest);
}

typedef double vd __attribute__((vector_size(4 * kWidth)));
typedef int64_t vl __attribute__((vector_size(4 * kWidth)));
constexpr uint32_t kDoubles = kWidth / 2;

}  // namespace

void rms_norm_row(const float* x, const void* weight, DType type, float eps, float* y, uint32_t d) {
  const char* bytes = static_cast<const char*>(weight);
  TANDEM_RETURN_BY_TYPE(type, norm_row, x, bytes, eps, y, d);
}

// Angle = k pi/2 + r in float64, pi/2 in two parts; Taylor polynomials on |r| <= pi/4, remainders 2e-9 and 1e-10.
void rope_angles(const double* inverse_frequency, uint32_t pairs, double position, float* cosines, float* sines) {
  for (uint32_t i = 0; i < pairs; i += kDoubles) {
    const uint32_t count = pairs - i < kDoubles ? pairs - i : kDoubles;
    vd frequency = {};
    __builtin_memcpy(&frequency, inverse_frequency + i, count * sizeof(double));
    const vd angle = frequency * position;
    const vd magic = vd{} + 0x1.8p52;
    const vd shifted = angle * 0.63661977236758134308 + magic;
    const vl quadrant = reinterpret_cast<vl>(shifted);
    const vd k = shifted - magic;
    const vd r = (angle - k * 1.57079632673412561417) - k * 6.07710050650619224932e-11;
    const vd r2 = r * r;
    const vd sine = r * (1 + r2 * (-1.0 / 6 + r2 * (1.0 / 120 + r2 * (-1.0 / 5040 + r2 * (1.0 / 362880)))));
    const vd cosine =
        1 + r2 * (-0.5 + r2 * (1.0 / 24 + r2 * (-1.0 / 720 + r2 * (1.0 / 40320 + r2 * (-1.0 / 3628800)))));
    const vl odd = -(quadrant & 1);
    const vl s = (reinterpret_cast<vl>(sine) & ~odd) | (reinterpret_cast<vl>(cosine) & odd);
    const vl c = (reinterpret_cast<vl>(cosine) & ~odd) | (reinterpret_cast<vl>(sine) & odd);
    const vd s_signed = reinterpret_cast<vd>(s ^ ((quadrant & 2) << 62));
    const vd c_signed = reinterpret_cast<vd>(c ^ (((quadrant + 1) & 2) << 62));
    for (uint32_t j = 0; j < count; ++j) {
      sines[i + j] = static_cast<float>(s_signed[j]);
      cosines[i + j] = static_cast<float>(c_signed[j]);
    }
  }
}

void rotate(float* x, uint32_t pairs, const float* cosines, const float* sines) {
  float* high = x + pairs;
  uint32_t i = 0;
  for (; i + kWidth <= pairs; i += kWidth) {
    const vf a = load(x + i), b = load(high + i), c = load(cosines + i), s = load(sines + i);
    store(x + i, a * c - b * s);
    store(high + i, b * c + a * s);
  }
  for (; i < pairs; ++i) {
    const float a = x[i], b = high[i];
    x[i] = a * cosines[i] - b * sines[i];
    high[i] = b * cosines[i] + a * sines[i];
  }
}

void swiglu(const float* gate, const float* up, float* out, size_t n) {
  const vf one = splat(1.0f);
  size_t i = 0;
  for (; i + kWidth <= n; i += kWidth) {
    const vf g = load(gate + i);
    store(out + i, g / (one + exp(-g)) * load(up + i));
  }
  if (const int rest = static_cast<int>(n - i); rest > 0) {
    const vf g = load_first(gate + i, rest);
    store_first(out + i, g / (one + exp(-g)) * load_first(up + i, rest), rest);
  }
}

void add(float* x, const float* y, size_t n) {
  size_t i = 0;
  for (; i + kWidth <= n; i += kWidth) store(x + i, load(x + i) + load(y + i));
  for (; i < n; ++i) x[i] += y[i];
}

float largest(const float* x, uint32_t n) {
  vf best = splat(-kInfinity);
  uint32_t i = 0;
  for (; i + kWidth <= n; i += kWidth) best = maximum(load(x + i), best);
  float result = maximum_of(best);
  for (; i < n; ++i) result = x[i] > result ? x[i] : result;
  return result;
}

float exp_sum(const float* x, float reference, size_t n) {
  vf total = {};
  size_t i = 0;
  for (; i + kWidth <= n; i += kWidth) total = total + exp(load(x + i) - splat(reference));
  if (i < n) {
    vf rest = splat(-kInfinity);
    for (size_t t = i; t < n; ++t) rest[t - i] = x[t] - reference;
    total = total + exp(rest);
  }
  return sum(total);
}

void blend_weights(const float* scores, float lse, size_t n, float keep, float share, float* average) {
  const auto blended = [&](vf score, vf old) { return fma(splat(share), exp(score - splat(lse)), splat(keep) * old); };
  size_t i = 0;
  for (; i + kWidth <= n; i += kWidth) store(average + i, blended(load(scores + i), load(average + i)));
  if (i == n) return;
  const int count = static_cast<int>(n - i);
  store_first(average + i, blended(load_first(scores + i, count), load_first(average + i, count)), count);
}

}  // namespace tandem::TANDEM_ISA_NAMESPACE
