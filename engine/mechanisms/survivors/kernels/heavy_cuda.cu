// Competitions for the places of a set, a block of threads per set.
#include <algorithm>

#include "engine/common/error.h"
#include "engine/kernels/cuda/launch.cuh"
#include "engine/kernels/radix_select.cuh"
#include "engine/mechanisms/survivors/kernels/heavy.h"

namespace tandem::gpu {

constexpr std::uint32_t kNoPlace = 0xffffffffu;

/// Candidates are numbered: places of the old set, then the tokens that arrive.
__device__ __forceinline__ float candidate_mass(const HeavyCompetition& set, std::uint32_t candidate) {
  return candidate < set.held ? set.mass[candidate] : set.arriving[candidate - set.held];
}

/// Finds who stays: scratch [arriving_end] candidates by position, then [room] those that stay.
__global__ void __launch_bounds__(kSelectThreads) choose_heavy_kernel(const HeavyCompetition* sets) {
  TANDEM_SHARED(SelectScratch, all_scratch, 1);
  SelectScratch& scratch = all_scratch[0];
  const HeavyCompetition& set = sets[blockIdx.x];
  const std::uint32_t end = set.arriving_end, kept = set.kept();
  if (kept == 0) return;
  std::uint32_t* const at = set.scratch;
  for (std::uint32_t p = threadIdx.x; p < end; p += kSelectThreads)
    at[p] = p < set.arriving_begin ? kNoPlace : set.held + (p - set.arriving_begin);
  __syncthreads();
  for (std::uint32_t i = threadIdx.x; i < set.held; i += kSelectThreads) at[set.positions[i]] = i;
  __syncthreads();
  std::uint32_t recent = 0, mine = 0;
  for (std::uint32_t p = set.window_begin + threadIdx.x; p < end; p += kSelectThreads) mine += at[p] != kNoPlace;
  sum_before(mine, scratch.sums, recent);
  const auto key_of = [&](std::uint32_t p) -> std::uint32_t {
    if (at[p] == kNoPlace) return 0;
    if (recent >= kept) return p >= set.window_begin ? p + 1 : 0;  // the newest
    return p >= set.window_begin ? 0xffffffffu : order_key(candidate_mass(set, at[p]));
  };
  walk_selection(key_of, end, end_of_selection(key_of, end, kept, scratch), scratch,
                 [&](std::uint32_t rank, std::uint32_t p) {
                   set.kept_mass[rank] = candidate_mass(set, at[p]);
                   set.kept_positions[rank] = p;
                   at[end + rank] = at[p];
                 });
}

/// Copies a row by the warp, two bytes per lane: rows may be of any even length.
__device__ __forceinline__ void copy_row(void* to, const void* from, std::size_t bytes, unsigned thread,
                                         unsigned threads) {
  for (std::size_t i = thread; i < bytes / 2; i += threads)
    static_cast<std::uint16_t*>(to)[i] = static_cast<const std::uint16_t*>(from)[i];
}

constexpr unsigned kMoveThreads = 128;

/// A warp per token that stays. Grid: {kept / warps, sets}.
__global__ void __launch_bounds__(kMoveThreads)
    move_heavy_kernel(const HeavyCompetition* sets, std::uint32_t first, const __grid_constant__ KvPages kv) {
  const HeavyCompetition& set = sets[first + blockIdx.y];
  const std::uint32_t place = blockIdx.x * (kMoveThreads / kWarp) + threadIdx.x / kWarp;
  if (place >= set.kept()) return;
  const std::size_t bytes = kv.row_bytes();
  const std::uint32_t candidate = set.scratch[set.arriving_end + place];
  const char *k = nullptr, *v = nullptr;
  if (candidate < set.held) {
    k = static_cast<const char*>(set.keys) + candidate * bytes;
    v = static_cast<const char*>(set.values) + candidate * bytes;
  } else {
    const std::uint32_t position = set.kept_positions[place];
    k = kv.key(set.slots[position / kListPageTokens - set.arriving_begin / kListPageTokens], set.kv_head, position);
    v = k + kv.page_bytes();
  }
  copy_row(static_cast<char*>(set.kept_keys) + place * bytes, k, bytes, threadIdx.x % kWarp, kWarp);
  copy_row(static_cast<char*>(set.kept_values) + place * bytes, v, bytes, threadIdx.x % kWarp, kWarp);
}

/// The token that goes: the one of smaller mass, or of two equals the later one. kNoPlace: none.
struct Lightest {
  float mass;
  std::uint32_t position, place;
};
__device__ __forceinline__ bool lighter(const Lightest& a, const Lightest& b) {
  if (a.place == kNoPlace || b.place == kNoPlace) return a.place != kNoPlace;
  return a.mass < b.mass || (a.mass == b.mass && a.position > b.position);
}

/// The weight of query head h on a token of that score.
__device__ __forceinline__ float step_weight(const HeavyStep& set, std::uint32_t h, float score) {
  const float infinity = __builtin_huge_valf(), lse = set.lse[h];
  return score == -infinity || lse == -infinity ? 0.0f : expf(score - lse);
}

/// The lightest of all threads' candidates, on every thread. `of_warps`: shared, one per warp.
__device__ __forceinline__ Lightest lightest_of_block(Lightest lightest, Lightest* of_warps) {
  for (unsigned step = kWarp / 2; step > 0; step /= 2) {
    Lightest other;
    other.mass = __shfl_xor_sync(kWholeWarp, lightest.mass, step);
    other.position = __shfl_xor_sync(kWholeWarp, lightest.position, step);
    other.place = __shfl_xor_sync(kWholeWarp, lightest.place, step);
    if (lighter(other, lightest)) lightest = other;
  }
  if (threadIdx.x % kWarp == 0) of_warps[threadIdx.x / kWarp] = lightest;
  __syncthreads();
  for (unsigned warp = 0; warp < kSelectThreads / kWarp; ++warp)
    if (lighter(of_warps[warp], lightest)) lightest = of_warps[warp];
  return lightest;
}

/// A token's candidacy; NaN is the heaviest, and the window stays.
__device__ __forceinline__ Lightest candidate_of(const HeavyStep& set, std::uint32_t place, float mass) {
  const std::uint32_t position = set.positions[place];
  return {mass == mass ? mass : __builtin_huge_valf(), position, position < set.window_begin ? place : kNoPlace};
}

/// The step's own token takes the place, by the block.
__device__ __forceinline__ void place_newest(const HeavyStep& set, std::uint32_t place, std::uint32_t group,
                                             const KvPages& kv) {
  const std::size_t bytes = kv.row_bytes();
  const char* const k = kv.key(set.slot, set.kv_head, set.position);
  copy_row(static_cast<char*>(set.keys) + place * bytes, k, bytes, threadIdx.x, kSelectThreads);
  copy_row(static_cast<char*>(set.values) + place * bytes, k + kv.page_bytes(), bytes, threadIdx.x, kSelectThreads);
  if (threadIdx.x != 0) return;
  float newest = 0.0f;
  for (std::uint32_t h = 0; h < group; ++h) newest += step_weight(set, h, set.own[h * set.own_stride]);
  set.mass[place] = newest;
  set.positions[place] = set.position;
}

__global__ void __launch_bounds__(kSelectThreads)
    update_heavy_kernel(const __grid_constant__ LaunchArray<HeavyStep> sets, std::uint32_t group,
                        const __grid_constant__ KvPages kv) {
  TANDEM_SHARED(Lightest, of_warps, kSelectThreads / kWarp);
  const HeavyStep set = sets[blockIdx.x];
  Lightest lightest{__builtin_huge_valf(), 0, kNoPlace};
  for (std::uint32_t i = threadIdx.x; i < set.held; i += kSelectThreads) {
    float mass = set.mass[i];
    for (std::uint32_t h = 0; h < group; ++h) mass += step_weight(set, h, set.scores[h * set.stride + i]);
    set.mass[i] = mass;
    const Lightest own = candidate_of(set, i, mass);
    if (lighter(own, lightest)) lightest = own;
  }
  lightest = lightest_of_block(lightest, of_warps);
  const std::uint32_t place = set.held < set.room ? set.held : lightest.place;
  if (place == kNoPlace) return;  // against the contract
  place_newest(set, place, group, kv);
}

/// The mass of a step alone. Grid: {places, sets}.
__global__ void __launch_bounds__(kSelectThreads)
    weigh_step_kernel(const __grid_constant__ LaunchArray<HeavyStep> sets, std::uint32_t first, std::uint32_t group) {
  const HeavyStep set = sets[first + blockIdx.y];
  const std::uint32_t i = blockIdx.x * kSelectThreads + threadIdx.x;
  if (i >= set.held) return;
  float mass = 0.0f;
  for (std::uint32_t h = 0; h < group; ++h) mass += step_weight(set, h, set.scores[h * set.stride + i]);
  set.mass[i] = mass;
}

/// One place for the sets of all KV heads, from the masses of the step. A block per layer and sequence.
__global__ void __launch_bounds__(kSelectThreads)
    place_alike_kernel(const __grid_constant__ LaunchArray<HeavyStep> sets, std::uint32_t kv_heads, std::uint32_t group,
                       const __grid_constant__ KvPages kv) {
  TANDEM_SHARED(Lightest, of_warps, kSelectThreads / kWarp);
  const auto own = [&](std::uint32_t head) -> const HeavyStep& {
    return sets[std::size_t{blockIdx.x} * kv_heads + head];
  };
  const HeavyStep& first = own(0);
  Lightest lightest{__builtin_huge_valf(), 0, kNoPlace};
  for (std::uint32_t i = threadIdx.x; i < first.held && first.held == first.room; i += kSelectThreads) {
    float sum = 0.0f;
    for (std::uint32_t head = 0; head < kv_heads; ++head) sum += own(head).mass[i];
    const Lightest candidate = candidate_of(first, i, sum);
    if (lighter(candidate, lightest)) lightest = candidate;
  }
  lightest = lightest_of_block(lightest, of_warps);
  const std::uint32_t place = first.held < first.room ? first.held : lightest.place;
  if (place == kNoPlace) return;  // against the contract
  for (std::uint32_t head = 0; head < kv_heads; ++head) place_newest(own(head), place, group, kv);
}

}  // namespace tandem::gpu

namespace tandem {
using namespace gpu;

void keep_heavy_cuda(const HeavyCompetition* sets, std::uint32_t count, std::uint32_t most, const KvPages& kv,
                     CudaStream stream) {
  launch(stream, choose_heavy_kernel, count, kSelectThreads, 0, sets);
  for (std::uint32_t first = 0; first < count; first += kMaxGridRows)
    launch(stream, move_heavy_kernel,
           dim3(blocks_for(most, kMoveThreads / kWarp), std::min(count - first, kMaxGridRows)), kMoveThreads, 0, sets,
           first, kv);
}

void update_heavy_cuda(const LaunchArray<HeavyStep>& sets, std::uint32_t count, std::uint32_t group, const KvPages& kv,
                       CudaStream stream) {
  launch(stream, update_heavy_kernel, count, kSelectThreads, 0, sets, group, kv);
}

void update_heavy_alike_cuda(const LaunchArray<HeavyStep>& sets, std::uint32_t count, std::uint32_t kv_heads,
                             std::uint32_t most, std::uint32_t group, const KvPages& kv, CudaStream stream) {
  TANDEM_CHECK(kv_heads >= 1, "Sets of no KV heads.");
  const std::uint32_t all = count * kv_heads;
  for (std::uint32_t first = 0; first < all; first += kMaxGridRows)
    launch(stream, weigh_step_kernel, dim3(blocks_for(most, kSelectThreads), std::min(all - first, kMaxGridRows)),
           kSelectThreads, 0, sets, first, group);
  launch(stream, place_alike_kernel, count, kSelectThreads, 0, sets, kv_heads, group, kv);
}

}  // namespace tandem
