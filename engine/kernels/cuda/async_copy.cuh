// Asynchronous copies from global to shared memory (cp.async, sm_80 and later). When emulated, the destination holds
// NaN from the moment a copy is issued until the thread that issued it has waited for its group: reading too early and
// issuing into a stage that is still being read are both wrong results.
#pragma once

#include "engine/kernels/cuda/device.cuh"

namespace tandem::gpu {

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

}  // namespace tandem::gpu
