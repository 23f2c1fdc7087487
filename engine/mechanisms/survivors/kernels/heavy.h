// Survivors: tokens that compete for places on the device by the attention mass that they have gathered. H2O calls them
// heavy (Zhang et al. 2023, section 4). A set is of one KV head, in no order. Rows of K and V are [D] of KvPages::type.
#pragma once

#include <cstdint>
#include <span>

#include "engine/common/on_both.h"
#include "engine/device/cuda/launch_array.h"
#include "engine/device/cuda/runtime.h"  // CudaStream
#include "engine/kernels/page_list.h"

namespace tandem {

/// A competition between what a set holds and the tokens of a new prompt, [arriving_begin, arriving_end), which come
/// behind all that are held. Those from `window_begin` on stay, the newest `room` of them at most; in the rest of the
/// room stay the heaviest others. Of equals the older stays; NaN is as -infinity.
struct HeavyCompetition {
  // The set as it was; nothing of it is changed.
  const float* mass = nullptr;               // [held]
  const std::uint32_t* positions = nullptr;  // [held], each once
  const void* keys = nullptr;                // [held][D]
  const void* values = nullptr;              // [held][D]
  std::uint32_t held = 0;
  const float* arriving = nullptr;  // [arriving_end - arriving_begin]: mass
  std::uint32_t arriving_begin = 0, arriving_end = 0;
  const std::uint32_t* slots = nullptr;  // of the pages that hold these tokens, from arriving_begin / 16 on
  std::uint32_t kv_head = 0;
  std::uint32_t room = 0, window_begin = 0;
  // The set as it becomes: kept() tokens, ascending.
  float* kept_mass = nullptr;
  std::uint32_t* kept_positions = nullptr;
  void* kept_keys = nullptr;
  void* kept_values = nullptr;
  std::uint32_t* scratch = nullptr;  // [arriving_end + room]; GPU only

  TANDEM_ON_BOTH std::uint32_t kept() const {
    const std::uint32_t all = held + (arriving_end - arriving_begin);
    return all < room ? all : room;
  }
};
void keep_heavy(const HeavyCompetition& set, const KvPages& kv);

/// A decode step of one set: every token's mass grows by its weights, summed over the query heads of the group in
/// their order, and the step's own token takes a place: the next one, or in a full set that of the lightest token
/// before the window, of equals the newest. NaN is the heaviest. A full set
/// has a token before the window.
struct HeavyStep {
  const float* scores = nullptr;  // [group][stride]: of the tokens in their places
  const float* own = nullptr;     // [group], own_stride apart: of the own token
  std::size_t stride = 0, own_stride = 0;
  const float* lse = nullptr;  // [group]
  float* mass = nullptr;       // [room]
  std::uint32_t* positions = nullptr;
  void* keys = nullptr;    // [room][D]
  void* values = nullptr;  // [room][D]
  std::uint32_t held = 0, room = 0, window_begin = 0;
  std::uint32_t position = 0;  // of the own token
  std::uint32_t slot = 0;      // of the page that holds it
  std::uint32_t kv_head = 0;

  /// Scores that lie together, [group][held + 1], the own token's first.
  void set_scores(const float* all) {
    own = all;
    scores = all + 1;
    stride = own_stride = std::size_t{held} + 1;
  }
};
void update_heavy(const HeavyStep& set, std::uint32_t group, const KvPages& kv);

/// The same for the sets of all KV heads of a layer, which hold the same tokens in the same places: mass is this step's
/// alone, and the lightest token is that of the least mass summed over the sets (TOVA, Oren et al. 2024).
void update_heavy_alike(std::span<const HeavyStep> sets, std::uint32_t group, const KvPages& kv);

/// The same on the GPU, for many sets at once. The lists and all that they name are device memory. `most`: the largest
/// kept().
void keep_heavy_cuda(const HeavyCompetition* sets /*[count]*/, std::uint32_t count, std::uint32_t most,
                     const KvPages& kv, CudaStream stream);
void update_heavy_cuda(const LaunchArray<HeavyStep>& sets /*[count]*/, std::uint32_t count, std::uint32_t group,
                       const KvPages& kv, CudaStream stream);
/// update_heavy_alike of `count` layers and sequences. `most`: the largest `held`.
void update_heavy_alike_cuda(const LaunchArray<HeavyStep>& sets /*[count][kv_heads]*/, std::uint32_t count,
                             std::uint32_t kv_heads, std::uint32_t most, std::uint32_t group, const KvPages& kv,
                             CudaStream stream);

}  // namespace tandem
