// Paged decode attention on tensor cores.
//
// A warp works alone: it streams the pages of its share of the work through a ring of stages in shared memory
// (cp.async) without a break between one piece of work and the next, and keeps o, the largest scores and the totals in
// registers. So no barrier ever stops the loads; only a page's 32 lanes meet.
//
// Why tensor cores for what memory bounds: at D 128, bf16, a token of one KV head is 512 bytes, so an H200 (4.8 TB/s,
// 132 SMs at 1.75 GHz) brings one every 14 ns per SM: its 4 schedulers have 98 warp instructions for it. With f32 FMAs
// it takes 8 (widening), 8 G (products), reductions and the softmax: about 70 at G 4 and over 100 at G 8. On tensor
// cores a page of 16 tokens takes 8 ldmatrix and 16 mma for the scores, 8 ldmatrix and 32 mma for o, 16 cp.async and
// about 70 for the softmax: 10 per token for any G up to 16, and 115 TFLOP/s of mma at full bandwidth, an eighth of the
// peak.
//
// Bytes in flight: 8 warps per SM, all stages but one of each: 128 KB at D 128, where 4.8 TB/s times 1 us are 36 per
// SM.
//
// Exactness: weights are split into a 16-bit number and the rest, so that o carries the rounding of f32 and not that of
// bf16; queries of f16 KV too. Those are half of the mma above.
#pragma once

#include "engine/kernels/attention_tiles.cuh"
#include "engine/kernels/page_list_device.cuh"

namespace tandem::gpu {

template <class Element, unsigned kDim>
struct PagedShape {
  // Rows are 16 bytes longer than their elements: eight rows then lie in eight different groups of four banks.
  static constexpr unsigned kRow = kDim + 8;  // elements
  static constexpr unsigned kStageElements = 2 * kListPageTokens * kRow;
  static constexpr unsigned kStages = kDim <= 64 ? 6 : kDim <= 96 ? 4 : kDim <= 128 ? 3 : 2;
  static constexpr unsigned kWarps = kDim <= 128 ? 4 : 2;  // of a block at most
  // Query fragments of D 256 would not leave room for o in the registers.
  static constexpr bool kQueryInShared = kDim > 128;
  static constexpr unsigned kQueryElements =
      kQueryInShared ? TensorTraits<Element>::kQueryParts * kListPageTokens * kRow : 0;
  static constexpr unsigned kWarpBytes = (kStages * kStageElements + kQueryElements) * 2;
  static constexpr unsigned kBlocksPerMultiprocessor = 2;  // 227 KB of shared memory; others hold one
};

/// What a stage holds.
struct PageStep {
  static constexpr std::uint32_t kNoWork = 0xffffffffu;
  std::uint32_t tokens;  // bit t: slot t is attended
  std::uint32_t heads;   // that attend it
  std::uint32_t work;    // the piece it belongs to; kNoWork: there are no more pages
  std::uint32_t last;    // of its piece
};

/// One warp's stream of pages: every `stride`-th piece of work, each page of it once. A piece without pages is one step
/// without tokens.
template <class Element, unsigned kDim>
class PageStream {
  using Shape = PagedShape<Element, kDim>;

 public:
  __device__ PageStream(const PagedAttention& attention, unsigned lane, unsigned first, unsigned stride)
      : attention_(attention), lane_(lane), work_(first), stride_(stride) {}

  /// Starts the loads of the next page and closes their group. Returns the step on every lane.
  __device__ __forceinline__ PageStep start(std::uint16_t* stage) {
    PageStep step{0, 0, PageStep::kNoWork, 0};
    if (work_ < attention_.work_count) {
      if (entry_ == 0) open();
      load(stage, step);
      step.work = work_;
      ++entry_;
      step.last = entry_ >= entries_ ? 1u : 0u;
      if (step.last) {
        work_ += stride_;
        entry_ = 0;
      }
    }
    async_commit();
    return step;
  }

 private:
  /// Each lane takes one entry of the piece: kMaxSplitEntries are as many as there are lanes.
  __device__ __forceinline__ void open() {
    static_assert(kMaxSplitEntries == kWarp);
    const AttentionWork& work = attention_.work[work_];
    const PageLists& lists = attention_.lists;
    const std::size_t list = list_of(attention_.kv, lists, work.row, work.kv_head);
    entries_ = entries_of(lists, list, work);
    pages_ = head_pages(attention_.kv, work.row, work.kv_head, sizeof(typename Element::Bits));
    slot_ = span_ = heads_ = 0;
    if (lane_ < entries_) {
      const PageEntry& entry = lists.entries[list * lists.capacity + work.first + lane_];
      slot_ = entry.slot;
      span_ = entry.first | std::uint32_t{entry.tokens} << 16;
      heads_ = entry.head_mask & all_heads(attention_.group);
    }
  }

  __device__ __forceinline__ void load(std::uint16_t* stage, PageStep& step) {
    std::uint32_t slot = __shfl_sync(kWholeWarp, slot_, entry_);
    const std::uint32_t span = __shfl_sync(kWholeWarp, span_, entry_);
    step.heads = __shfl_sync(kWholeWarp, heads_, entry_);
    if (step.heads != 0) step.tokens = token_bits(span);
    if (step.tokens == 0) slot = 0;  // nothing is read: the entry's own need not exist
    const unsigned char* from = pages_.slot(slot);
    constexpr unsigned kChunks = kDim / 8;  // of 16 bytes per row; rows 0..15 are K, 16..31 V
    static_assert(kChunks % 2 == 0);        // so that a warp's copies are all of K or all of V
#pragma unroll
    for (unsigned i = 0; i < kChunks; ++i) {
      const unsigned chunk = i * kWarp + lane_, row = chunk / kChunks, column = chunk % kChunks * 8;
      if (i == kChunks / 2) from += pages_.v_after_k;
      // Where nothing is read the first row stands for it: packed tokens need not fill their last page.
      const bool valid = (step.tokens >> row % kListPageTokens & 1u) != 0;
      const unsigned offset = valid ? 16 * (chunk % (kChunks * kListPageTokens)) : 0;
      async_copy_16(stage + row * Shape::kRow + column, from + offset, valid);
    }
  }

  const PagedAttention& attention_;
  unsigned lane_, work_, stride_;
  std::uint32_t entry_ = 0, entries_ = 0;
  HeadPages pages_{};                              // of the piece's row and KV head
  std::uint32_t slot_ = 0, span_ = 0, heads_ = 0;  // of entry `lane`
};

/// The query rows of a piece of work as A fragments: in registers, or in shared memory where those are scarce.
template <class Element, unsigned kDim, bool kInShared = PagedShape<Element, kDim>::kQueryInShared>
struct PagedQuery {
  static constexpr unsigned kSteps = kDim / 16;  // laid out side by side: registers have no index
  QueryFragments<Element, kDim> fragments;

  template <class Row>
  __device__ __forceinline__ void load(std::uint16_t*, unsigned lane, const Row& row) {
    fragments.load(lane, row);
  }
  __device__ __forceinline__ void fragment(const std::uint16_t*, unsigned, unsigned part, unsigned step,
                                           std::uint32_t (&a)[4]) const {
#pragma unroll
    for (unsigned i = 0; i < 4; ++i) a[i] = fragments.words[part][step][i];
  }
};
template <class Element, unsigned kDim>
struct PagedQuery<Element, kDim, true> {
  static constexpr unsigned kSteps = 2;
  static constexpr unsigned kRow = PagedShape<Element, kDim>::kRow;

  template <class Row>
  __device__ __forceinline__ void load(std::uint16_t* shared, unsigned lane, const Row& row) {
    auto* words = reinterpret_cast<std::uint32_t*>(shared);
    for (unsigned r = 0; r < 16; ++r) {
      const float* from = row(r);
#pragma unroll
      for (unsigned d = 2 * lane; d < kDim; d += 2 * kWarp) {
        float2 pair = make_float2(0.0f, 0.0f);
        if (from != nullptr) pair = load_vector<float2>(from + d);
        std::uint32_t high = 0, low = 0;
        split_pair<Element>(pair.x, pair.y, high, low);
        words[(r * kRow + d) / 2] = high;
        if constexpr (TensorTraits<Element>::kQueryParts == 2) words[((16 + r) * kRow + d) / 2] = low;
      }
    }
    __syncwarp();
  }
  __device__ __forceinline__ void fragment(const std::uint16_t* shared, unsigned lane, unsigned part, unsigned step,
                                           std::uint32_t (&a)[4]) const {
    load_matrices_4(a, shared + (part * 16 + a_row(lane)) * kRow + step * 16 + a_column(lane));
  }
};

/// Scores of 16 query rows with the 16 tokens of a page's K in shared memory, times `scale`; -infinity where the step
/// says that a row does not attend a token. s[n]: C fragments of tokens 8 n...
template <class Element, unsigned kDim, class Query>
__device__ __forceinline__ void page_scores(const Query& query, const std::uint16_t* query_shared,
                                            const std::uint16_t* k, unsigned lane, const PageStep& step, float scale,
                                            float (&s)[2][4]) {
  constexpr unsigned kRow = PagedShape<Element, kDim>::kRow, kParts = TensorTraits<Element>::kQueryParts;
  float sums[kParts][2][4];
#pragma unroll
  for (unsigned part = 0; part < kParts; ++part) {
#pragma unroll
    for (unsigned i = 0; i < 4; ++i) sums[part][0][i] = sums[part][1][i] = 0.0f;
  }
#pragma unroll Query::kSteps
  for (unsigned d = 0; d < kDim / 16; ++d) {
    std::uint32_t keys[4];
    load_matrices_4(keys, k + b_row(lane) * kRow + d * 16 + b_column(lane));
    const std::uint32_t early[2] = {keys[0], keys[1]}, late[2] = {keys[2], keys[3]};
#pragma unroll
    for (unsigned part = 0; part < kParts; ++part) {
      std::uint32_t a[4];
      query.fragment(query_shared, lane, part, d, a);
      multiply_16x8x16<Element>(sums[part][0], a, early);
      multiply_16x8x16<Element>(sums[part][1], a, late);
    }
  }
#pragma unroll
  for (unsigned n = 0; n < 2; ++n) {
#pragma unroll
    for (unsigned i = 0; i < 4; ++i) {
      const unsigned token = n * 8 + lane % 4 * 2 + i % 2, row = lane / 4 + i / 2 * 8;
      const bool attends = (step.tokens >> token & 1u) != 0 && (step.heads >> row & 1u) != 0;
      s[n][i] = attends ? score_of<kParts>(sums[0][n][i], sums[kParts - 1][n][i], scale) : kEmptyScore;
    }
  }
}

/// o += weights times V, the weights split in two so that nothing is lost to 16 bits.
template <class Element, unsigned kDim>
__device__ __forceinline__ void add_page_values(const float (&weights)[2][4], const std::uint16_t* v, unsigned lane,
                                                float (&o)[kDim / 8][4]) {
  constexpr unsigned kRow = PagedShape<Element, kDim>::kRow;
  std::uint32_t high[4], low[4];
#pragma unroll
  for (unsigned n = 0; n < 2; ++n) {
    split_pair<Element>(weights[n][0], weights[n][1], high[2 * n], low[2 * n]);
    split_pair<Element>(weights[n][2], weights[n][3], high[2 * n + 1], low[2 * n + 1]);
  }
#pragma unroll
  for (unsigned d = 0; d < kDim / 16; ++d) {
    std::uint32_t values[4];
    load_matrices_4_transposed(values, v + a_row(lane) * kRow + d * 16 + a_column(lane));
    const std::uint32_t left[2] = {values[0], values[1]}, right[2] = {values[2], values[3]};
    multiply_16x8x16<Element>(o[2 * d], high, left);
    multiply_16x8x16<Element>(o[2 * d + 1], high, right);
    multiply_16x8x16<Element>(o[2 * d], low, left);
    multiply_16x8x16<Element>(o[2 * d + 1], low, right);
  }
}

/// Grid: any number of blocks of up to kWarps warps. Dynamic shared memory: kWarpBytes for each warp.
template <class Element, unsigned kDim>
__global__ void __launch_bounds__(PagedShape<Element, kDim>::kWarps* kWarp,
                                  (PagedShape<Element, kDim>::kBlocksPerMultiprocessor))
    paged_attention_kernel(const __grid_constant__ PagedAttention attention) {
  using Shape = PagedShape<Element, kDim>;
  TANDEM_DYNAMIC_SHARED(shared);
  const unsigned warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  auto* const ring = reinterpret_cast<std::uint16_t*>(shared + warp * Shape::kWarpBytes);
  std::uint16_t* const query_shared = ring + Shape::kStages * Shape::kStageElements;
  constexpr float kBits = TensorTraits<Element>::kWeightBits;
  const float scale = 1.0f / sqrtf(static_cast<float>(kDim));

  // Neighbouring pieces go to different multiprocessors, so that few pieces load all of them.
  PageStream<Element, kDim> stream(attention, lane, warp * gridDim.x + blockIdx.x, blockDim.x / kWarp * gridDim.x);
  PageStep steps[Shape::kStages];
#pragma unroll
  for (unsigned i = 0; i + 1 < Shape::kStages; ++i) steps[i] = stream.start(ring + i * Shape::kStageElements);

  PagedQuery<Element, kDim> query;
  SoftmaxRows<kDim> rows;
  bool fresh = true;
  unsigned stage = 0;
  while (steps[0].work != PageStep::kNoWork) {
    const PageStep step = steps[0];
    async_wait<Shape::kStages - 2>();
    __syncwarp();  // this stage has arrived for all lanes, and all have left the one before it
    const unsigned before = stage == 0 ? Shape::kStages - 1 : stage - 1;
#pragma unroll
    for (unsigned i = 0; i + 2 < Shape::kStages; ++i) steps[i] = steps[i + 1];
    steps[Shape::kStages - 2] = stream.start(ring + before * Shape::kStageElements);

    const std::uint16_t* k = ring + stage * Shape::kStageElements;
    if (fresh) {
      fresh = false;
      const AttentionWork& work = attention.work[step.work];
      const float* q =
          attention.q + (std::size_t{work.row} * attention.kv.kv_heads + work.kv_head) * attention.group * kDim;
      query.load(query_shared, lane,
                 [q, &attention](unsigned row) { return row < attention.group ? q + row * kDim : nullptr; });
      rows.clear();
    }
    float s[2][4];
    page_scores<Element, kDim>(query, query_shared, k, lane, step, scale, s);
    rows.weigh(s, kBits);
    add_page_values<Element, kDim>(s, k + kListPageTokens * Shape::kRow, lane, rows.o);
    if (step.last != 0) {
      fresh = true;
      rows.finish();
      const PieceOutput out = output_of(attention, attention.work[step.work]);
#pragma unroll
      for (unsigned half = 0; half < 2; ++half) {
        const unsigned row = lane / 4 + half * 8;
        if (row >= attention.group) continue;
        rows.store(half, lane, out.o + row * kDim);
        if (lane % 4 == 0) out.lse[row] = rows.lse(half, kBits);
      }
    }
    stage = stage + 1 == Shape::kStages ? 0 : stage + 1;
  }
}

}  // namespace tandem::gpu
