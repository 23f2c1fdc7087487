// Wider versions use target attributes, so that one object file holds them all and needs no compiler flags.
#include "hardware/probe/cpu_kernels.h"

#include <bit>

#if defined(__x86_64__)
#include <immintrin.h>
// g++ 12 reports its own intrinsics' "undefined" operands as uninitialised, at the place they are inlined into.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif

namespace tandem::probe {
namespace {

constexpr float kScale = 1.0f / kHeadDim;

const std::uint16_t* row_of(const std::uint16_t* pool, const KvPool& kv, std::uint32_t page) {
  return pool + std::size_t{page} * static_cast<std::size_t>(kv.page_tokens) * kHeadDim;
}

/// Asks for one row (4 lines) of the next page. K rows are asked for while K is worked on and V rows while V is: asking
/// for both during K overruns the core's miss buffers (12 GB/s where this gives 16: Zen 5, one thread, random 16-token
/// pages).
inline void prefetch_row(const std::uint16_t* row) {
  for (int line = 0; line < kHeadDim; line += 32) __builtin_prefetch(row + line);
}

std::uint64_t sum_scalar(const std::uint64_t* words, std::size_t count) {
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < count; ++i) sum += words[i];
  return sum;
}

void attend_scalar(const KvPool& pool, std::span<const std::uint32_t> pages, const float* q, float* out,
                   bool prefetch) {
  for (std::size_t p = 0; p < pages.size(); ++p) {
    const std::uint16_t* k = row_of(pool.k, pool, pages[p]);
    const std::uint16_t* v = row_of(pool.v, pool, pages[p]);
    const std::uint32_t next = pages[p + 1 < pages.size() ? p + 1 : p];
    for (int t = 0; t < pool.page_tokens; ++t, k += kHeadDim, v += kHeadDim) {
      if (prefetch) {
        prefetch_row(row_of(pool.k, pool, next) + t * kHeadDim);
        prefetch_row(row_of(pool.v, pool, next) + t * kHeadDim);
      }
      float weights[kGroup] = {};
      for (int g = 0; g < kGroup; ++g) {
        for (int d = 0; d < kHeadDim; ++d) weights[g] += q[g * kHeadDim + d] * bf16_to_float(k[d]);
        weights[g] *= kScale;
      }
      for (int d = 0; d < kHeadDim; ++d) {
        const float value = bf16_to_float(v[d]);
        for (int g = 0; g < kGroup; ++g) out[g * kHeadDim + d] += weights[g] * value;
      }
    }
  }
}

#if defined(__x86_64__)

#define TANDEM_PROBE_AVX2 __attribute__((target("avx2,fma")))
#define TANDEM_PROBE_AVX512 __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq")))
#define TANDEM_PROBE_AVX512_BF16 __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")))

// ---- avx2 -----------------------------------------------------------------------------------------------------------

TANDEM_PROBE_AVX2 std::uint64_t sum_avx2(const std::uint64_t* words, std::size_t count) {
  __m256i sums[4] = {_mm256_setzero_si256(), _mm256_setzero_si256(), _mm256_setzero_si256(), _mm256_setzero_si256()};
  std::size_t i = 0;
  for (; i + 16 <= count; i += 16) {
    for (std::size_t j = 0; j < 4; ++j) {
      sums[j] = _mm256_add_epi64(sums[j], _mm256_loadu_si256(reinterpret_cast<const __m256i*>(words + i + 4 * j)));
    }
  }
  alignas(32) std::uint64_t lanes[4];
  const __m256i all = _mm256_add_epi64(_mm256_add_epi64(sums[0], sums[1]), _mm256_add_epi64(sums[2], sums[3]));
  _mm256_store_si256(reinterpret_cast<__m256i*>(lanes), all);
  return lanes[0] + lanes[1] + lanes[2] + lanes[3] + sum_scalar(words + i, count - i);
}

TANDEM_PROBE_AVX2 inline __m256 load8(const std::uint16_t* bits) {
  const __m128i half = _mm_loadu_si128(reinterpret_cast<const __m128i*>(bits));
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16));
}

TANDEM_PROBE_AVX2 void attend_avx2(const KvPool& pool, std::span<const std::uint32_t> pages, const float* q, float* out,
                                   bool prefetch) {
  alignas(16) float weights[kMaxPageTokens * kGroup];
  for (std::size_t p = 0; p < pages.size(); ++p) {
    const std::uint16_t* k = row_of(pool.k, pool, pages[p]);
    const std::uint16_t* v = row_of(pool.v, pool, pages[p]);
    const std::uint32_t next = pages[p + 1 < pages.size() ? p + 1 : p];
    const std::uint16_t* next_k = row_of(pool.k, pool, next);
    const std::uint16_t* next_v = row_of(pool.v, pool, next);
    for (int t = 0; t < pool.page_tokens; t += 2) {
      if (prefetch) {
        prefetch_row(next_k + t * kHeadDim);
        prefetch_row(next_k + (t + 1) * kHeadDim);
      }
      __m256 dots[2 * kGroup];
      for (__m256& dot : dots) dot = _mm256_setzero_ps();
      for (int d = 0; d < kHeadDim; d += 8) {
        const __m256 first = load8(k + t * kHeadDim + d), second = load8(k + (t + 1) * kHeadDim + d);
        for (int g = 0; g < kGroup; ++g) {
          const __m256 query = _mm256_loadu_ps(q + g * kHeadDim + d);
          dots[g] = _mm256_fmadd_ps(query, first, dots[g]);
          dots[kGroup + g] = _mm256_fmadd_ps(query, second, dots[kGroup + g]);
        }
      }
      for (int half = 0; half < 2; ++half) {
        const __m256* d = dots + half * kGroup;
        const __m256 sums = _mm256_hadd_ps(_mm256_hadd_ps(d[0], d[1]), _mm256_hadd_ps(d[2], d[3]));
        const __m128 four = _mm_add_ps(_mm256_castps256_ps128(sums), _mm256_extractf128_ps(sums, 1));
        _mm_store_ps(weights + (t + half) * kGroup, _mm_mul_ps(four, _mm_set1_ps(kScale)));
      }
    }
    for (int d = 0; d < kHeadDim; d += 16) {
      __m256 sums[kGroup][2];
      for (int g = 0; g < kGroup; ++g) {
        sums[g][0] = _mm256_loadu_ps(out + g * kHeadDim + d);
        sums[g][1] = _mm256_loadu_ps(out + g * kHeadDim + d + 8);
      }
      for (int t = 0; t < pool.page_tokens; ++t) {
        if (prefetch && d % 32 == 0) __builtin_prefetch(next_v + t * kHeadDim + d);
        const __m256 low = load8(v + t * kHeadDim + d), high = load8(v + t * kHeadDim + d + 8);
        for (int g = 0; g < kGroup; ++g) {
          const __m256 weight = _mm256_broadcast_ss(weights + t * kGroup + g);
          sums[g][0] = _mm256_fmadd_ps(weight, low, sums[g][0]);
          sums[g][1] = _mm256_fmadd_ps(weight, high, sums[g][1]);
        }
      }
      for (int g = 0; g < kGroup; ++g) {
        _mm256_storeu_ps(out + g * kHeadDim + d, sums[g][0]);
        _mm256_storeu_ps(out + g * kHeadDim + d + 8, sums[g][1]);
      }
    }
  }
}

// ---- avx512 ---------------------------------------------------------------------------------------------------------

TANDEM_PROBE_AVX512 std::uint64_t sum_avx512(const std::uint64_t* words, std::size_t count) {
  __m512i sums[4] = {_mm512_setzero_si512(), _mm512_setzero_si512(), _mm512_setzero_si512(), _mm512_setzero_si512()};
  std::size_t i = 0;
  for (; i + 32 <= count; i += 32) {
    for (std::size_t j = 0; j < 4; ++j) sums[j] = _mm512_add_epi64(sums[j], _mm512_loadu_si512(words + i + 8 * j));
  }
  alignas(64) std::uint64_t lanes[8];
  _mm512_store_si512(lanes, _mm512_add_epi64(_mm512_add_epi64(sums[0], sums[1]), _mm512_add_epi64(sums[2], sums[3])));
  return sum_scalar(lanes, 8) + sum_scalar(words + i, count - i);
}

TANDEM_PROBE_AVX512 inline __m512 load16(const std::uint16_t* bits) {
  const __m256i half = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(bits));
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
}

/// Adds two vectors' neighbours inside each 128-bit lane: [a0+a2, b0+b2, a1+a3, b1+b3].
TANDEM_PROBE_AVX512 inline __m512 fold(__m512 a, __m512 b) {
  return _mm512_add_ps(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b));
}

/// Lane i of the result is the sum of the 16 lanes of v[i]: a tree of 15 folds where 16 single sums cost twice as much.
TANDEM_PROBE_AVX512 inline __m512 sum_each(const __m512* v) {
  __m512 rows[4];
  for (int i = 0; i < 4; ++i) {
    const __m512d low = _mm512_castps_pd(fold(v[4 * i], v[4 * i + 1]));
    const __m512d high = _mm512_castps_pd(fold(v[4 * i + 2], v[4 * i + 3]));
    rows[i] =
        _mm512_add_ps(_mm512_castpd_ps(_mm512_unpacklo_pd(low, high)), _mm512_castpd_ps(_mm512_unpackhi_pd(low, high)));
  }
  const __m512 first =
      _mm512_add_ps(_mm512_shuffle_f32x4(rows[0], rows[1], 0x88), _mm512_shuffle_f32x4(rows[0], rows[1], 0xDD));
  const __m512 second =
      _mm512_add_ps(_mm512_shuffle_f32x4(rows[2], rows[3], 0x88), _mm512_shuffle_f32x4(rows[2], rows[3], 0xDD));
  return _mm512_add_ps(_mm512_shuffle_f32x4(first, second, 0x88), _mm512_shuffle_f32x4(first, second, 0xDD));
}

/// out += weights x V of one page, half of the head dimension at a time: 16 accumulators. next_v: to prefetch, or null.
TANDEM_PROBE_AVX512 inline void add_values(const std::uint16_t* v, const std::uint16_t* next_v, int page_tokens,
                                           const float* weights, float* out) {
  for (int d = 0; d < kHeadDim; d += 64) {
    __m512 sums[kGroup][4];
    for (int g = 0; g < kGroup; ++g) {
      for (int j = 0; j < 4; ++j) sums[g][j] = _mm512_loadu_ps(out + g * kHeadDim + d + 16 * j);
    }
    for (int t = 0; t < page_tokens; ++t) {
      const std::uint16_t* row = v + t * kHeadDim + d;
      if (next_v != nullptr) {
        __builtin_prefetch(next_v + t * kHeadDim + d);
        __builtin_prefetch(next_v + t * kHeadDim + d + 32);
      }
      const __m512 values[4] = {load16(row), load16(row + 16), load16(row + 32), load16(row + 48)};
      for (int g = 0; g < kGroup; ++g) {
        const __m512 weight = _mm512_set1_ps(weights[t * kGroup + g]);
        for (int j = 0; j < 4; ++j) sums[g][j] = _mm512_fmadd_ps(weight, values[j], sums[g][j]);
      }
    }
    for (int g = 0; g < kGroup; ++g) {
      for (int j = 0; j < 4; ++j) _mm512_storeu_ps(out + g * kHeadDim + d + 16 * j, sums[g][j]);
    }
  }
}

inline void prefetch_four(const std::uint16_t* k) {
  for (int row = 0; row < 4; ++row) prefetch_row(k + row * kHeadDim);
}

TANDEM_PROBE_AVX512 void attend_avx512(const KvPool& pool, std::span<const std::uint32_t> pages, const float* q,
                                       float* out, bool prefetch) {
  alignas(64) float weights[kMaxPageTokens * kGroup];
  for (std::size_t p = 0; p < pages.size(); ++p) {
    const std::uint16_t* k = row_of(pool.k, pool, pages[p]);
    const std::uint32_t next = pages[p + 1 < pages.size() ? p + 1 : p];
    for (int t = 0; t < pool.page_tokens; t += 4) {
      if (prefetch) prefetch_four(row_of(pool.k, pool, next) + t * kHeadDim);
      __m512 dots[4 * kGroup];
      for (__m512& dot : dots) dot = _mm512_setzero_ps();
      for (int d = 0; d < kHeadDim; d += 16) {
        __m512 keys[4];
        for (int row = 0; row < 4; ++row) keys[row] = load16(k + (t + row) * kHeadDim + d);
        for (int g = 0; g < kGroup; ++g) {
          const __m512 query = _mm512_loadu_ps(q + g * kHeadDim + d);
          for (int row = 0; row < 4; ++row) {
            dots[row * kGroup + g] = _mm512_fmadd_ps(query, keys[row], dots[row * kGroup + g]);
          }
        }
      }
      _mm512_store_ps(weights + t * kGroup, _mm512_mul_ps(sum_each(dots), _mm512_set1_ps(kScale)));
    }
    const std::uint16_t* next_v = prefetch ? row_of(pool.v, pool, next) : nullptr;
    add_values(row_of(pool.v, pool, pages[p]), next_v, pool.page_tokens, weights, out);
  }
}

TANDEM_PROBE_AVX512_BF16 inline __m512bh load32(const std::uint16_t* bits) {
  return (__m512bh)_mm512_loadu_si512(bits);
}

TANDEM_PROBE_AVX512_BF16 void attend_avx512_bf16(const KvPool& pool, std::span<const std::uint32_t> pages,
                                                 const float* q, float* out, bool prefetch) {
  alignas(64) float weights[kMaxPageTokens * kGroup];
  alignas(64) std::uint16_t queries[kGroup * kHeadDim];
  for (int i = 0; i < kGroup * kHeadDim; ++i) {
    queries[i] = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(q[i]) >> 16);  // exact by the contract
  }
  for (std::size_t p = 0; p < pages.size(); ++p) {
    const std::uint16_t* k = row_of(pool.k, pool, pages[p]);
    const std::uint32_t next = pages[p + 1 < pages.size() ? p + 1 : p];
    for (int t = 0; t < pool.page_tokens; t += 4) {
      if (prefetch) prefetch_four(row_of(pool.k, pool, next) + t * kHeadDim);
      __m512 dots[4 * kGroup];
      for (__m512& dot : dots) dot = _mm512_setzero_ps();
      for (int d = 0; d < kHeadDim; d += 32) {
        __m512bh keys[4];
        for (int row = 0; row < 4; ++row) keys[row] = load32(k + (t + row) * kHeadDim + d);
        for (int g = 0; g < kGroup; ++g) {
          const __m512bh query = load32(queries + g * kHeadDim + d);
          for (int row = 0; row < 4; ++row) {
            dots[row * kGroup + g] = _mm512_dpbf16_ps(dots[row * kGroup + g], query, keys[row]);
          }
        }
      }
      _mm512_store_ps(weights + t * kGroup, _mm512_mul_ps(sum_each(dots), _mm512_set1_ps(kScale)));
    }
    const std::uint16_t* next_v = prefetch ? row_of(pool.v, pool, next) : nullptr;
    add_values(row_of(pool.v, pool, pages[p]), next_v, pool.page_tokens, weights, out);
  }
}

#endif

}  // namespace

const char* to_string(Isa isa) {
  switch (isa) {
    case Isa::scalar:
      return "scalar";
    case Isa::avx2:
      return "avx2";
    case Isa::avx512:
      return "avx512";
    case Isa::avx512_bf16:
      return "avx512_bf16";
  }
  return "unknown";
}

std::vector<Isa> available_isas() {
  std::vector<Isa> isas = {Isa::scalar};
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) isas.push_back(Isa::avx2);
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
  if (avx512) isas.push_back(Isa::avx512);
  if (avx512 && __builtin_cpu_supports("avx512bf16")) isas.push_back(Isa::avx512_bf16);
#endif
  return isas;
}

float bf16_to_float(std::uint16_t bits) {
  return std::bit_cast<float>(std::uint32_t{bits} << 16);
}

std::uint64_t sum_words(Isa isa, const std::uint64_t* words, std::size_t count) {
  switch (isa) {
#if defined(__x86_64__)
    case Isa::avx2:
      return sum_avx2(words, count);
    case Isa::avx512:
    case Isa::avx512_bf16:
      return sum_avx512(words, count);
#endif
    default:
      return sum_scalar(words, count);
  }
}

void attend_pages(Isa isa, const KvPool& pool, std::span<const std::uint32_t> pages, const float* q, float* out,
                  bool prefetch) {
  switch (isa) {
#if defined(__x86_64__)
    case Isa::avx2:
      return attend_avx2(pool, pages, q, out, prefetch);
    case Isa::avx512:
      return attend_avx512(pool, pages, q, out, prefetch);
    case Isa::avx512_bf16:
      return attend_avx512_bf16(pool, pages, q, out, prefetch);
#endif
    default:
      return attend_scalar(pool, pages, q, out, prefetch);
  }
}

void attend_pages_reference(const KvPool& pool, std::span<const std::uint32_t> pages, const float* q, double* out) {
  for (const std::uint32_t page : pages) {
    for (int t = 0; t < pool.page_tokens; ++t) {
      const std::size_t row = (std::size_t{page} * static_cast<std::size_t>(pool.page_tokens) + t) * kHeadDim;
      for (int g = 0; g < kGroup; ++g) {
        double dot = 0;
        for (int d = 0; d < kHeadDim; ++d) dot += double{q[g * kHeadDim + d]} * double{bf16_to_float(pool.k[row + d])};
        for (int d = 0; d < kHeadDim; ++d) {
          out[g * kHeadDim + d] += dot / kHeadDim * double{bf16_to_float(pool.v[row + d])};
        }
      }
    }
  }
}

}  // namespace tandem::probe
