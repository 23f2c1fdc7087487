// Attention over page lists on a GPU, layer after layer: a plan of how the lists are cut is made anew only where their
// lengths have changed, and stays in device memory.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/device/launch_context.h"
#include "engine/kernels/paged_attention.h"
#include "engine/kv/kv_store.h"

namespace tandem {

/// Where a partial result goes: [rows][Hq][D] and [rows][Hq] f32 in device memory.
struct PartialOut {
  float* o = nullptr;
  float* lse = nullptr;
};

/// The store's pages on the device.
inline KvPages device_pages(const BodyContext& ctx, const KvStore& kv) {
  const KvShape& shape = kv.shape();
  return {ctx.read<char>(kv.device_buffer()), shape.type, shape.kv_heads, shape.head_dim};
}

/// How many rows get scores of tokens at a time, each so many floats, where `room` is what all of these may take.
inline std::uint32_t rows_together(std::size_t room, std::size_t floats, std::size_t rows) {
  return static_cast<std::uint32_t>(std::max<std::size_t>(std::min(room / std::max<std::size_t>(floats, 1), rows), 1));
}

/// How many launches that takes.
inline std::uint32_t rounds_of(std::size_t rows, std::size_t together) {
  return static_cast<std::uint32_t>((rows + together - 1) / together);
}

/// Lists in device memory that a kernel is to fill.
struct ListRoom {
  PageEntry* entries = nullptr;     // [lists][capacity]
  std::uint32_t* counts = nullptr;  // [lists]
  std::uint32_t capacity = 0;
  bool per_kv_head = false;

  // NOLINTNEXTLINE(google-explicit-constructor)
  operator PageLists() const { return {entries, counts, capacity, per_kv_head}; }
};
inline ListRoom room_for_lists(LaunchContext& ctx, std::size_t lists, std::uint32_t capacity, bool per_kv_head) {
  return {ctx.scratch<PageEntry>(lists * capacity), ctx.scratch<std::uint32_t>(lists), capacity, per_kv_head};
}

/// A list each, with room for the longest of them, made on the device. `most`: upper bounds of their pages.
PageLists list_whole_pages(LaunchContext& ctx, const std::vector<WholePages>& lists, bool per_kv_head,
                           std::uint32_t most);

/// paged_attention_cuda of a plan whose work and merges are in device memory.
void run_attention(LaunchContext& ctx, const float* q /*[rows][Hq][D]*/, std::uint32_t group, const KvPages& kv,
                   const PageLists& lists, const AttentionPlan& plan, const AttentionWork* work,
                   const AttentionMerge* merges, const PartialOut& to);

class LaunchedAttention {
 public:
  /// paged_attention_cuda of all rows. `most`: upper bounds of the lists' counts, as plan_paged_attention() takes them.
  /// Of one stream.
  void run(LaunchContext& ctx, const float* q /*[rows][Hq][D]*/, std::uint32_t rows, std::uint32_t group,
           const KvPages& kv, const PageLists& lists, std::span<const std::uint32_t> most, const PartialOut& to);

 private:
  std::vector<std::uint32_t> most_;  // that the plan was made for
  bool per_kv_head_ = false;
  AttentionPlan plan_;
  CudaMemory work_, merges_;     // the plan's
  std::vector<CudaMemory> old_;  // too small; giving memory back waits for all streams
};

}  // namespace tandem
