// Matrix fragments of a warp: ldmatrix and mma.m16n8k16 (PTX ISA, "Warp Level Matrix Instructions", sm_80 and later).
//
// With group = lane / 4 and pair = 2 * (lane % 4), and words that hold two 16-bit elements, the first in the low half:
//   A [16][16] row-major     a[0] = A[group][pair..]      a[1] = A[group + 8][pair..]
//                            a[2] = A[group][pair + 8..]  a[3] = A[group + 8][pair + 8..]
//   B [16][8] k by n         b[0] = B[pair..][group]      b[1] = B[pair + 8..][group]
//   C, D [16][8] f32         c[0], c[1] = C[group][pair..]    c[2], c[3] = C[group + 8][pair..]
#pragma once

#include "engine/kernels/cuda/device.cuh"

namespace tandem::gpu {

/// Loads four 8x8 matrices of 16-bit elements from shared memory: lane i gives the address of row i % 8 of matrix i / 8
/// (16 bytes each, aligned to 16). out[m] = elements pair, pair + 1 of row `group` of matrix m. All 32 lanes take part.
__device__ __forceinline__ void load_matrices_4(std::uint32_t (&out)[4], const void* row_in_shared) {
#ifdef __CUDACC__
  const unsigned row = static_cast<unsigned>(__cvta_generic_to_shared(row_in_shared));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
               : "r"(row)
               : "memory");
#else
  cuda_emulator::load_matrices(out, row_in_shared, false);
#endif
}

/// The same with every matrix transposed: out[m] = elements `group` of rows pair and pair + 1 of matrix m.
__device__ __forceinline__ void load_matrices_4_transposed(std::uint32_t (&out)[4], const void* row_in_shared) {
#ifdef __CUDACC__
  const unsigned row = static_cast<unsigned>(__cvta_generic_to_shared(row_in_shared));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
               : "r"(row)
               : "memory");
#else
  cuda_emulator::load_matrices(out, row_in_shared, true);
#endif
}

/// c += A B, products exact, accumulated in f32. Element: Bf16 or F16. All 32 lanes take part.
template <class Element>
__device__ __forceinline__ void multiply_16x8x16(float (&c)[4], const std::uint32_t (&a)[4],
                                                 const std::uint32_t (&b)[2]);

#ifdef __CUDACC__
#define TANDEM_MMA(Element, type)                                                                     \
  template <>                                                                                         \
  __device__ __forceinline__ void multiply_16x8x16<Element>(float(&c)[4], const std::uint32_t(&a)[4], \
                                                            const std::uint32_t(&b)[2]) {             \
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." type "." type                               \
                 ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"               \
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])                                     \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));                 \
  }
TANDEM_MMA(Bf16, "bf16")
TANDEM_MMA(F16, "f16")
#undef TANDEM_MMA
#else
template <class Element>
void multiply_16x8x16(float (&c)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2]) {
  cuda_emulator::multiply_16x8x16(c, a, b, Element::widen);
}
#endif

}  // namespace tandem::gpu
