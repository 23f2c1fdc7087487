// How kernels read page lists and place the results of a piece of work.
#pragma once

#include "engine/kernels/cuda/device.cuh"
#include "engine/kernels/paged_attention.h"

namespace tandem::gpu {

__device__ __forceinline__ std::uint32_t all_heads(std::uint32_t group) {
  return group >= 32 ? 0xffffffffu : (1u << group) - 1u;
}

/// Bit t: slot t is in a span of first | tokens << 16.
__device__ __forceinline__ std::uint32_t token_bits(std::uint32_t span) {
  return ((1u << (span >> 16)) - 1u) << (span & 0xffffu);
}

__device__ __forceinline__ std::size_t list_of(const KvPages& kv, const PageLists& lists, std::uint32_t row,
                                               std::uint32_t kv_head) {
  return lists.per_kv_head ? std::size_t{row} * kv.kv_heads + kv_head : row;
}

/// Where a row's keys and values of one KV head lie, in bytes.
struct HeadPages {
  const unsigned char* k;   // of slot 0
  std::size_t slot_stride;  // from a slot to the next one
  std::size_t v_after_k;    // of the same slot

  __device__ __forceinline__ const unsigned char* slot(std::uint32_t number) const { return k + number * slot_stride; }
};
__device__ __forceinline__ HeadPages head_pages(const KvPages& kv, std::uint32_t row, std::uint32_t kv_head,
                                                std::size_t element_bytes) {
  const std::size_t page = std::size_t{kListPageTokens} * kv.dim * element_bytes;  // K or V of a slot
  RowPages of_row;
  of_row.pages = kv.pages;
  if (kv.of_rows != nullptr) of_row = kv.of_rows[row];
  const auto* const base = static_cast<const unsigned char*>(of_row.pages);
  if (of_row.room == 0) return {base + kv_head * 2 * page, kv.kv_heads * 2 * page, page};
  const std::size_t half = std::size_t{of_row.room} * kv.dim * element_bytes;
  return {base + kv_head * 2 * half, page, half};
}

/// Entries of a piece of work that its list has.
__device__ __forceinline__ std::uint32_t entries_of(const PageLists& lists, std::size_t list,
                                                    const AttentionWork& work) {
  const std::uint32_t count = lists.counts[list];
  return count <= work.first ? 0 : count - work.first < work.entries ? count - work.first : work.entries;
}

/// Where the result of a piece of work goes.
struct PieceOutput {
  float* o;    // [group][D]
  float* lse;  // [group]
};
__device__ __forceinline__ PieceOutput output_of(const PagedAttention& a, const AttentionWork& work) {
  const std::size_t dim = a.kv.dim;
  if (work.part == AttentionWork::kWhole) {
    const std::size_t head = (std::size_t{work.row} * a.kv.kv_heads + work.kv_head) * a.group;
    return {a.o + head * dim, a.lse + head};
  }
  const std::size_t at = std::size_t{work.part} * a.group;
  return {a.parts + at * dim, a.parts + std::size_t{a.part_count} * a.group * dim + at};
}

}  // namespace tandem::gpu
