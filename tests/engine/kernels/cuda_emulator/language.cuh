// The part of the CUDA language that our kernels use, for a C++ compiler. Names are CUDA's.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <type_traits>

#include "engine/kernels/convert.h"
#include "tests/engine/kernels/cuda_emulator/emulator.h"

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __grid_constant__
#define __align__(n) alignas(n)

// ---- built-in types and variables

struct uint3 {
  unsigned x, y, z;
};
struct dim3 {
  unsigned x = 1, y = 1, z = 1;
  constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};
#define TANDEM_VECTOR_TYPES(Element, name)                                    \
  struct alignas(2 * sizeof(Element)) name##2 {                               \
    Element x, y;                                                             \
  };                                                                          \
  struct alignas(4 * sizeof(Element)) name##4 {                               \
    Element x, y, z, w;                                                       \
  };                                                                          \
  inline name##2 make_##name##2(Element x, Element y) {                       \
    return {x, y};                                                            \
  }                                                                           \
  inline name##4 make_##name##4(Element x, Element y, Element z, Element w) { \
    return {x, y, z, w};                                                      \
  }
TANDEM_VECTOR_TYPES(float, float)
TANDEM_VECTOR_TYPES(unsigned, uint)
TANDEM_VECTOR_TYPES(int, int)
TANDEM_VECTOR_TYPES(std::uint16_t, ushort)
#undef TANDEM_VECTOR_TYPES

inline thread_local uint3 threadIdx, blockIdx;  // kernels of several streams may run beside each other
inline thread_local dim3 blockDim, gridDim;
constexpr int warpSize = 32;

// ---- barriers and fences

inline void __syncthreads(int line = __builtin_LINE()) {
  tandem::cuda_emulator::block_barrier(line);
}
inline int __syncthreads_count(int predicate, int line = __builtin_LINE()) {
  return tandem::cuda_emulator::block_count(predicate != 0, line);
}
inline int __syncthreads_or(int predicate, int line = __builtin_LINE()) {
  return tandem::cuda_emulator::block_count(predicate != 0, line) > 0;
}
inline int __syncthreads_and(int predicate, int line = __builtin_LINE()) {
  return tandem::cuda_emulator::block_count(predicate == 0, line) == 0;
}
inline void __syncwarp(unsigned mask = 0xffffffffu) {
  char none = 0;
  tandem::cuda_emulator::warp_operation(mask, "__syncwarp", &none,
                                        [](tandem::cuda_emulator::WarpArguments, std::uint32_t lanes) {
                                          tandem::cuda_emulator::note_warp_barrier(lanes);
                                        });
}
inline void __threadfence() {}
inline void __threadfence_block() {}
inline void __threadfence_system() {}
inline void __nanosleep(unsigned) {}

// For the emulator's own functions: their memory accesses are not checked for races.
#define TANDEM_UNWATCHED __attribute__((no_sanitize("thread")))

// ---- warp operations

namespace tandem::cuda_emulator {

template <class Value>
struct Exchange {
  Value value;
  unsigned source;  // lane whose value this lane gets
  Value result;
};

template <class Value>
TANDEM_UNWATCHED Value exchange(std::uint32_t mask, const char* name, Value value, unsigned source) {
  Exchange<Value> arguments{value, source, value};
  warp_operation(mask, name, &arguments, [](WarpArguments lanes, std::uint32_t taking_part) TANDEM_UNWATCHED {
    for (unsigned lane = 0; lane < 32; ++lane) {
      if (!(taking_part >> lane & 1)) continue;
      auto* const mine = static_cast<Exchange<Value>*>(lanes[lane]);
      if (lanes[mine->source] == nullptr)
        fail("a shuffle reads lane " + std::to_string(mine->source) + ", which its mask does not name.");
      mine->result = static_cast<const Exchange<Value>*>(lanes[mine->source])->value;
    }
  });
  return arguments.result;
}

/// `fold` over the values of the lanes of the mask, in the order of the lanes, from `start`; all lanes get the result.
template <class Value, class Result>
TANDEM_UNWATCHED Result reduce(std::uint32_t mask, const char* name, Value value, Result start,
                               Result (*fold)(Result, unsigned lane, Value)) {
  struct Arguments {
    Value value;
    Result result;
    Result (*fold)(Result, unsigned, Value);
  } arguments{value, start, fold};
  warp_operation(mask, name, &arguments, [](WarpArguments lanes, std::uint32_t taking_part) TANDEM_UNWATCHED {
    const auto of = [&](unsigned lane) TANDEM_UNWATCHED -> Arguments& { return *static_cast<Arguments*>(lanes[lane]); };
    Result result = of(static_cast<unsigned>(std::countr_zero(taking_part))).result;
    for (unsigned lane = 0; lane < 32; ++lane)
      if (taking_part >> lane & 1) result = of(lane).fold(result, lane, of(lane).value);
    for (unsigned lane = 0; lane < 32; ++lane)
      if (taking_part >> lane & 1) of(lane).result = result;
  });
  return arguments.result;
}

inline std::uint32_t vote(std::uint32_t mask, const char* name, int predicate) {
  return reduce<int, std::uint32_t>(mask, name, predicate, 0u, [](std::uint32_t sum, unsigned lane, int set) {
    return sum | (set != 0 ? 1u << lane : 0u);
  });
}

}  // namespace tandem::cuda_emulator

template <class Value>
Value __shfl_sync(unsigned mask, Value value, int source, int width = 32) {
  const unsigned lane = tandem::cuda_emulator::lane(), segment = lane & ~static_cast<unsigned>(width - 1);
  return tandem::cuda_emulator::exchange(mask, "__shfl_sync", value,
                                         segment | (static_cast<unsigned>(source) & static_cast<unsigned>(width - 1)));
}
template <class Value>
Value __shfl_xor_sync(unsigned mask, Value value, int lane_mask, int width = 32) {
  const unsigned lane = tandem::cuda_emulator::lane(), other = lane ^ static_cast<unsigned>(lane_mask);
  // Lanes of an earlier segment may be read, those of a later one give the own value.
  const unsigned end = (lane & ~static_cast<unsigned>(width - 1)) + static_cast<unsigned>(width);
  return tandem::cuda_emulator::exchange(mask, "__shfl_xor_sync", value, other < end ? other : lane);
}
template <class Value>
Value __shfl_down_sync(unsigned mask, Value value, unsigned delta, int width = 32) {
  const unsigned lane = tandem::cuda_emulator::lane();
  const unsigned end = (lane & ~static_cast<unsigned>(width - 1)) + static_cast<unsigned>(width);
  return tandem::cuda_emulator::exchange(mask, "__shfl_down_sync", value, lane + delta < end ? lane + delta : lane);
}
template <class Value>
Value __shfl_up_sync(unsigned mask, Value value, unsigned delta, int width = 32) {
  const unsigned lane = tandem::cuda_emulator::lane(), begin = lane & ~static_cast<unsigned>(width - 1);
  return tandem::cuda_emulator::exchange(mask, "__shfl_up_sync", value, lane >= begin + delta ? lane - delta : lane);
}

inline unsigned __ballot_sync(unsigned mask, int predicate) {
  return tandem::cuda_emulator::vote(mask, "__ballot_sync", predicate);
}
inline int __any_sync(unsigned mask, int predicate) {
  return tandem::cuda_emulator::vote(mask, "__any_sync", predicate) != 0;
}
inline int __all_sync(unsigned mask, int predicate) {
  return tandem::cuda_emulator::vote(mask, "__all_sync", predicate) == mask;
}

#define TANDEM_REDUCE(name, start, expression)                                                      \
  template <class Value>                                                                            \
  Value name(unsigned mask, Value value) {                                                          \
    static_assert(std::is_same_v<Value, int> || std::is_same_v<Value, unsigned>);                   \
    return tandem::cuda_emulator::reduce<Value, Value>(                                             \
        mask, #name, value, start, [](Value a, unsigned, Value b) -> Value { return expression; }); \
  }
TANDEM_REDUCE(__reduce_add_sync, Value{0}, a + b)
TANDEM_REDUCE(__reduce_min_sync, std::numeric_limits<Value>::max(), std::min(a, b))
TANDEM_REDUCE(__reduce_max_sync, std::numeric_limits<Value>::lowest(), std::max(a, b))
TANDEM_REDUCE(__reduce_or_sync, Value{0}, a | b)
TANDEM_REDUCE(__reduce_and_sync, static_cast<Value>(~Value{0}), a& b)
#undef TANDEM_REDUCE

// ---- atomics, of kernels beside each other too. The compiler is not to call their accesses plain.

#define TANDEM_ATOMIC(name, expression)                                                                 \
  template <class Value>                                                                                \
  TANDEM_UNWATCHED Value name(Value* at, std::type_identity_t<Value> value) {                           \
    tandem::cuda_emulator::note_atomic(at, sizeof(Value));                                              \
    Value old, changed;                                                                                 \
    __atomic_load(at, &old, __ATOMIC_RELAXED);                                                          \
    do {                                                                                                \
      changed = static_cast<Value>(expression);                                                         \
    } while (!__atomic_compare_exchange(at, &old, &changed, true, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)); \
    return old;                                                                                         \
  }
TANDEM_ATOMIC(atomicAdd, old + value)
TANDEM_ATOMIC(atomicSub, old - value)
TANDEM_ATOMIC(atomicMax, std::max(old, value))
TANDEM_ATOMIC(atomicMin, std::min(old, value))
TANDEM_ATOMIC(atomicOr, old | value)
TANDEM_ATOMIC(atomicAnd, old& value)
TANDEM_ATOMIC(atomicXor, old ^ value)
TANDEM_ATOMIC(atomicExch, value)
#undef TANDEM_ATOMIC
template <class Value>
TANDEM_UNWATCHED Value atomicCAS(Value* at, std::type_identity_t<Value> expected, std::type_identity_t<Value> desired) {
  tandem::cuda_emulator::note_atomic(at, sizeof(Value));
  Value old = expected;
  __atomic_compare_exchange(at, &old, &desired, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
  return old;
}

// ---- arithmetic. The fast forms are exact here: tolerances are for the GPU to need.

inline float __expf(float x) {
  return std::exp(x);
}
inline float __logf(float x) {
  return std::log(x);
}
inline float __fdividef(float x, float y) {
  return x / y;
}
inline float __frcp_rn(float x) {
  return 1.0f / x;
}
inline float __fsqrt_rn(float x) {
  return std::sqrt(x);
}
inline float __frsqrt_rn(float x) {
  return 1.0f / std::sqrt(x);
}
inline float rsqrtf(float x) {
  return 1.0f / std::sqrt(x);
}
inline float __fmaf_rn(float x, float y, float z) {
  return std::fma(x, y, z);
}
inline float __fadd_rn(float x, float y) {
  return x + y;
}
inline float __fmul_rn(float x, float y) {
  return x * y;
}
inline void sincospif(float x, float* sine, float* cosine) {
  *sine = static_cast<float>(std::sin(double{x} * 3.14159265358979323846));
  *cosine = static_cast<float>(std::cos(double{x} * 3.14159265358979323846));
}
template <class Value>
constexpr Value min(Value a, Value b) {
  return std::min(a, b);
}
template <class Value>
constexpr Value max(Value a, Value b) {
  return std::max(a, b);
}

// ---- bits and cached loads

inline float __uint_as_float(unsigned bits) {
  return std::bit_cast<float>(bits);
}
inline unsigned __float_as_uint(float value) {
  return std::bit_cast<unsigned>(value);
}
inline float __int_as_float(int bits) {
  return std::bit_cast<float>(bits);
}
inline int __float_as_int(float value) {
  return std::bit_cast<int>(value);
}
inline int __popc(unsigned x) {
  return std::popcount(x);
}
inline int __clz(int x) {
  return std::countl_zero(static_cast<unsigned>(x));
}
inline int __ffs(int x) {
  return x == 0 ? 0 : std::countr_zero(static_cast<unsigned>(x)) + 1;
}
template <class Value>
Value __ldcs(const Value* at) {
  tandem::cuda_emulator::check_access(at, sizeof(Value), alignof(Value), "__ldcs");
  return *at;
}
template <class Value>
Value __ldg(const Value* at) {
  tandem::cuda_emulator::check_access(at, sizeof(Value), alignof(Value), "__ldg");
  tandem::cuda_emulator::note_constant_read(at, sizeof(Value));
  return *at;
}
