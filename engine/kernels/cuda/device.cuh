// What device code includes, and all it includes: the CUDA language under nvcc, its emulation under any other compiler
// (tests/engine/kernels/cuda_emulator), and on top of both the little that our kernels share.
//
// Rules for kernels, so that both compilers take them:
//   * shared memory: TANDEM_SHARED(float, sums, 32); and TANDEM_DYNAMIC_SHARED(bytes); no __shared__;
//   * 8- and 16-byte accesses through load_vector, load_stream and store_vector, which check alignment when emulated;
//   * cp.async through async_copy_16, ldmatrix and mma through cuda/mma.cuh;
//   * bf16 and f16 are stored as std::uint16_t: Bf16, F16 and F32 widen and narrow;
//   * a block never waits for another block; every thread reaches every __syncthreads().
#pragma once

#ifdef __CUDACC__
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#else
#include "tests/engine/kernels/cuda_emulator/language.cuh"
#endif

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "engine/kernels/tensor.h"

#ifdef __CUDACC__
#define TANDEM_SHARED(Type, name, count) __shared__ Type name[count]
#define TANDEM_DYNAMIC_SHARED(name)                                             \
  extern __shared__ __align__(128) unsigned char tandem_dynamic_shared_bytes[]; \
  unsigned char* const name = tandem_dynamic_shared_bytes
#else
// A static variable of a function is one variable per template instance: as CUDA's static shared arrays.
#define TANDEM_SHARED(Type, name, count) \
  static const char name##_identity = 0; \
  Type(&name)[count] = ::tandem::cuda_emulator::shared_array<Type, count>(&name##_identity, #name)
#define TANDEM_DYNAMIC_SHARED(name) unsigned char* const name = ::tandem::cuda_emulator::dynamic_shared()
#endif

namespace tandem::gpu {

constexpr unsigned kWarp = 32;
constexpr unsigned kWholeWarp = 0xffffffffu;

// ---- stored types

struct F32 {
  using Bits = float;
  __device__ static float widen(float value) { return value; }
  __device__ static float narrow(float value) { return value; }
};

struct Bf16 {
  using Bits = std::uint16_t;
  __device__ static float widen(std::uint16_t bits) { return __uint_as_float(std::uint32_t{bits} << 16); }
  /// Nearest, ties to even; NaN stays NaN.
  __device__ static std::uint16_t narrow(float value) {
#ifdef __CUDACC__
    return __bfloat16_as_ushort(__float2bfloat16_rn(value));
#else
    return ::tandem::float_to_bf16(value);
#endif
  }
  /// Two neighbours as one word, the first in the low half: element 2 i and 2 i + 1 of an array.
  __device__ static float2 widen_pair(std::uint32_t pair) {
    return make_float2(__uint_as_float(pair << 16), __uint_as_float(pair & 0xffff0000u));
  }
  __device__ static std::uint32_t narrow_pair(float low, float high) {
#ifdef __CUDACC__
    const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
    return std::uint32_t{__bfloat16_as_ushort(pair.x)} | std::uint32_t{__bfloat16_as_ushort(pair.y)} << 16;
#else
    return std::uint32_t{narrow(low)} | std::uint32_t{narrow(high)} << 16;
#endif
  }
};

struct F16 {
  using Bits = std::uint16_t;
  __device__ static float widen(std::uint16_t bits) {
#ifdef __CUDACC__
    return __half2float(__ushort_as_half(bits));
#else
    return ::tandem::f16_to_float(bits);
#endif
  }
  /// Nearest, ties to even; 65520 and more become infinity; NaN stays NaN.
  __device__ static std::uint16_t narrow(float value) {
#ifdef __CUDACC__
    return __half_as_ushort(__float2half_rn(value));
#else
    return ::tandem::float_to_f16(value);
#endif
  }
  __device__ static float2 widen_pair(std::uint32_t pair) {
    return make_float2(widen(static_cast<std::uint16_t>(pair)), widen(static_cast<std::uint16_t>(pair >> 16)));
  }
  __device__ static std::uint32_t narrow_pair(float low, float high) {
    return std::uint32_t{narrow(low)} | std::uint32_t{narrow(high)} << 16;
  }
};

/// Calls `call` with the element type that `type` names.
template <class Call>
void with_element(DType type, const Call& call) {
  switch (type) {
    case DType::f32:
      return call(F32{});
    case DType::f16:
      return call(F16{});
    case DType::bf16:
      return call(Bf16{});
  }
}

// ---- memory. `at` is a multiple of sizeof(Vector).

/// Vector: uint2, uint4, float2, float4 and the like.
template <class Vector>
__device__ __forceinline__ Vector load_vector(const void* at) {
#ifdef __CUDACC__
  return *static_cast<const Vector*>(at);
#else
  cuda_emulator::check_access(at, sizeof(Vector), sizeof(Vector), "load_vector");
  Vector value;
  std::memcpy(&value, at, sizeof value);
  return value;
#endif
}

template <class Vector>
__device__ __forceinline__ void store_vector(void* at, const Vector& value) {
#ifdef __CUDACC__
  *static_cast<Vector*>(at) = value;
#else
  cuda_emulator::check_access(at, sizeof(Vector), sizeof(Vector), "store_vector");
  std::memcpy(at, &value, sizeof value);
#endif
}

/// 16 bytes of global or pinned host memory that no thread writes while the kernel runs and that are read once: past
/// the first-level cache.
__device__ __forceinline__ uint4 load_stream(const void* at) {
#ifdef __CUDACC__
  uint4 value;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
               : "l"(at));
  return value;
#else
  cuda_emulator::check_access(at, sizeof(uint4), sizeof(uint4), "load_stream");
  cuda_emulator::note_constant_read(at, sizeof(uint4));
  uint4 value;
  std::memcpy(&value, at, sizeof value);
  return value;
#endif
}

// ---- asynchronous copies from global to shared memory (cp.async, sm_80 and later). When emulated, the destination
// holds NaN from the moment a copy is issued until the thread that issued it has waited for its group: reading too
// early and issuing into a stage that is still being read are both wrong results.

/// Starts copying 16 bytes past the first-level cache; both addresses are multiples of 16. With `valid` false nothing
/// is read and the destination becomes zero; `from` must still be a readable address.
__device__ __forceinline__ void async_copy_16(void* to_shared, const void* from_global, bool valid = true) {
#ifdef __CUDACC__
  const unsigned to = static_cast<unsigned>(__cvta_generic_to_shared(to_shared));
  const int bytes = valid ? 16 : 0;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from_global), "r"(bytes) : "memory");
#else
  cuda_emulator::async_copy(to_shared, from_global, 16, valid);
#endif
}

/// Closes the group of the copies that this thread has issued since its last call. A group may be empty.
__device__ __forceinline__ void async_commit() {
#ifdef __CUDACC__
  asm volatile("cp.async.commit_group;" ::: "memory");
#else
  cuda_emulator::async_commit();
#endif
}

/// Waits until at most the `kPending` latest groups of this thread are still under way. Other threads see the data
/// after a barrier that follows.
template <int kPending>
__device__ __forceinline__ void async_wait() {
#ifdef __CUDACC__
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
#else
  cuda_emulator::async_wait(kPending);
#endif
}

// ---- elements whose type is known at run time: for kernels that wait for memory anyway

__device__ __forceinline__ float load_1(const void* data, DType type, std::size_t i) {
  if (type == DType::f32) return static_cast<const float*>(data)[i];
  const std::uint16_t bits = static_cast<const std::uint16_t*>(data)[i];
  return type == DType::bf16 ? Bf16::widen(bits) : F16::widen(bits);
}

__device__ __forceinline__ void store_1(void* data, DType type, std::size_t i, float value) {
  if (type == DType::f32)
    static_cast<float*>(data)[i] = value;
  else
    static_cast<std::uint16_t*>(data)[i] = type == DType::bf16 ? Bf16::narrow(value) : F16::narrow(value);
}

/// Four neighbours; i is a multiple of 4 and `data` of four elements.
__device__ __forceinline__ float4 load_4(const void* data, DType type, std::size_t i) {
  if (type == DType::f32) return load_vector<float4>(static_cast<const float*>(data) + i);
  const uint2 bits = load_vector<uint2>(static_cast<const std::uint16_t*>(data) + i);
  const float2 low = type == DType::bf16 ? Bf16::widen_pair(bits.x) : F16::widen_pair(bits.x);
  const float2 high = type == DType::bf16 ? Bf16::widen_pair(bits.y) : F16::widen_pair(bits.y);
  return make_float4(low.x, low.y, high.x, high.y);
}

__device__ __forceinline__ void store_4(void* data, DType type, std::size_t i, float4 value) {
  if (type == DType::f32) {
    store_vector(static_cast<float*>(data) + i, value);
    return;
  }
  const bool bf16 = type == DType::bf16;
  store_vector(static_cast<std::uint16_t*>(data) + i,
               make_uint2(bf16 ? Bf16::narrow_pair(value.x, value.y) : F16::narrow_pair(value.x, value.y),
                          bf16 ? Bf16::narrow_pair(value.z, value.w) : F16::narrow_pair(value.z, value.w)));
}

constexpr std::uint32_t kMaxGridRows = 65535;  // of gridDim.y and gridDim.z

/// Blocks of `per_block` elements each.
inline unsigned blocks_for(std::size_t n, std::size_t per_block) {
  return static_cast<unsigned>((n + per_block - 1) / per_block);
}

/// Threads of a block for `n` elements, some `per_thread` for each: a whole number of warps, at least one.
inline unsigned threads_for(std::size_t n, std::size_t per_thread, unsigned most = 1024) {
  const std::size_t threads = (n + per_thread * kWarp - 1) / (per_thread * kWarp) * kWarp;
  return threads > most ? most : threads == 0 ? kWarp : static_cast<unsigned>(threads);
}

/// Whether rows of `cols` elements that begin at `data` can be read and written four at a time.
inline bool in_fours(const void* data, DType type, std::size_t cols) {
  return cols % 4 == 0 && reinterpret_cast<std::uintptr_t>(data) % (4 * size_of(type)) == 0;
}

// ---- arithmetic

/// 2^x to about 2 ulp; -infinity gives 0.
__device__ __forceinline__ float exp2_approximate(float x) {
#ifdef __CUDACC__
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#else
  return exp2f(x);
#endif
}

constexpr float kLog2E = 1.44269504088896340736f;
constexpr float kLn2 = 0.69314718055994530942f;

/// cos and sin of position * inverse_frequency, times scale: the angle in float64 and reduced there.
__device__ __forceinline__ float2 rotation(double inverse_frequency, std::uint32_t position, float scale) {
  const double angle = inverse_frequency * position;
  const double turns = rint(angle * 0.15915494309189533577);
  double rest = fma(-turns, 6.28318530717958623200, angle);
  rest = fma(-turns, 2.44929359829470635445e-16, rest);
  float sine, cosine;
  sincospif(static_cast<float>(rest * 0.31830988618379067154), &sine, &cosine);
  return make_float2(cosine * scale, sine * scale);
}

// ---- reductions, the same bits on every lane: every lane adds the same pairs, in either order

template <class Value>
__device__ __forceinline__ Value warp_sum(Value value) {
#pragma unroll
  for (unsigned step = kWarp / 2; step > 0; step /= 2) value += __shfl_xor_sync(kWholeWarp, value, step);
  return value;
}

__device__ __forceinline__ float warp_max(float value) {
#pragma unroll
  for (unsigned step = kWarp / 2; step > 0; step /= 2) value = fmaxf(value, __shfl_xor_sync(kWholeWarp, value, step));
  return value;
}

/// The values of the block's warps, each on the lane of its warp's number and `none` on the others. blockDim.x is a
/// multiple of 32, blockDim.y == blockDim.z == 1. `scratch` is 32 shared values that may be used again after the call.
template <class Value>
__device__ __forceinline__ Value of_warps(Value value, Value none, Value* scratch) {
  const unsigned warps = blockDim.x / kWarp, warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  if (lane == 0) scratch[warp] = value;
  __syncthreads();
  value = lane < warps ? scratch[lane] : none;
  __syncthreads();
  return value;
}

/// Sum and largest over the block, on every thread.
template <class Value>
__device__ __forceinline__ Value block_sum(Value value, Value* scratch) {
  return warp_sum(of_warps(warp_sum(value), Value{0}, scratch));
}
__device__ __forceinline__ float block_max(float value, float* scratch) {
  return warp_max(of_warps(warp_max(value), -__builtin_huge_valf(), scratch));
}

}  // namespace tandem::gpu
