// What the tensor-core attention kernels share: fragments of queries, scores and weights of 16 rows and 16 tokens, and
// the online softmax of a lane's two rows (Dao et al. 2022). Lane roles are those of cuda/mma.cuh: a lane holds rows
// lane / 4 and lane / 4 + 8, and of 8 columns the pair 2 * (lane % 4).
#pragma once

#include "engine/kernels/cuda/device.cuh"
#include "engine/kernels/cuda/mma.cuh"

namespace tandem::gpu {

constexpr float kEmptyScore = -__builtin_huge_valf();
constexpr float kLargestScore = 3.402823466e38f;

/// How exact arithmetic with a 16-bit type is arranged.
template <class Element>
struct TensorTraits;
template <>
struct TensorTraits<Bf16> {
  static constexpr unsigned kQueryParts = 1;  // the CPU twin rounds the query too
  static constexpr float kWeightBits = 0.0f;
};
template <>
struct TensorTraits<F16> {
  static constexpr unsigned kQueryParts = 2;  // a query and what rounding took from it
  // Weights are times 2^14, so that f16's narrow exponent loses only what is below 2^-39 of the largest.
  static constexpr float kWeightBits = 14.0f;
};

/// x as a number of 16 bits and the rest, both packed in pairs.
template <class Element>
__device__ __forceinline__ void split_pair(float x, float y, std::uint32_t& high, std::uint32_t& low) {
  high = Element::narrow_pair(x, y);
  const float2 rounded = Element::widen_pair(high);
  low = Element::narrow_pair(x - rounded.x, y - rounded.y);
}

/// The element of row `row` and column `column` that this lane addresses for load_matrices_4 of a 16x16 tile, so that
/// the result is an A fragment of it (row-major), or, transposed, two B fragments {0, 1}, {2, 3} of columns 0.. and 8..
__device__ __forceinline__ unsigned a_row(unsigned lane) {
  return lane % 16;
}
__device__ __forceinline__ unsigned a_column(unsigned lane) {
  return lane / 16 * 8;
}
/// The same where the result is two B fragments {0, 1}, {2, 3} of the tile's rows 0.. and 8.., the tile taken as
/// [n][k].
__device__ __forceinline__ unsigned b_row(unsigned lane) {
  return lane / 16 * 8 + lane % 8;
}
__device__ __forceinline__ unsigned b_column(unsigned lane) {
  return lane / 8 % 2 * 8;
}

/// A score from the sums of the query's parts. What overflows stays comparable; -infinity stays. An infinite product
/// times the rest of a query, which may be zero, is no number, so the rest then does not count.
template <unsigned kParts>
__device__ __forceinline__ float score_of(float sum, float rest, float scale) {
  if constexpr (kParts == 2) sum = fabsf(sum) <= kLargestScore ? sum + rest : sum;
  return fminf(sum * scale, kLargestScore);
}

/// Largest and sum over the four lanes that hold a row, the same bits on each.
__device__ __forceinline__ float row_max(float value) {
  value = fmaxf(value, __shfl_xor_sync(kWholeWarp, value, 1));
  return fmaxf(value, __shfl_xor_sync(kWholeWarp, value, 2));
}
__device__ __forceinline__ float row_sum(float value) {
  value += __shfl_xor_sync(kWholeWarp, value, 1);
  return value + __shfl_xor_sync(kWholeWarp, value, 2);
}

/// Which dimensions make a step of 16 in a dot product. Any order serves if both factors have it.
enum class Order {
  tile,  // as they lie: what load_matrices_4 gives
  wide,  // such that a lane's words of two steps are 8 neighbours: one load of 16 bytes
};

/// Fragments of 16 query rows: [part][step of 16 dimensions][4 words].
template <class Element, unsigned kDim, Order kOrder = Order::tile>
struct QueryFragments {
  static constexpr unsigned kParts = TensorTraits<Element>::kQueryParts;
  std::uint32_t words[kParts][kDim / 16][4];

  /// row(r): the f32 query of row r < 16 as a const float* aligned to 8 bytes, or nullptr for a row of zeros.
  template <class Row>
  __device__ __forceinline__ void load(unsigned lane, const Row& row) {
#pragma unroll
    for (unsigned half = 0; half < 2; ++half) {
      const float* from = row(lane / 4 + half * 8);
#pragma unroll
      for (unsigned step = 0; step < kDim / 16; ++step) {
#pragma unroll
        for (unsigned side = 0; side < 2; ++side) {
          float2 pair = make_float2(0.0f, 0.0f);
          const unsigned d = kOrder == Order::tile ? step * 16 + side * 8 + lane % 4 * 2
                                                   : step / 2 * 32 + lane % 4 * 8 + step % 2 * 4 + side * 2;
          if (from != nullptr) pair = load_vector<float2>(from + d);
          std::uint32_t& word = words[0][step][side * 2 + half];
          if constexpr (kParts == 1)
            word = Element::narrow_pair(pair.x, pair.y);
          else
            split_pair<Element>(pair.x, pair.y, word, words[1][step][side * 2 + half]);
        }
      }
    }
  }
};

/// Online softmax of a lane's two rows with o of [16][kDim] in the warp's registers.
template <unsigned kDim>
struct SoftmaxRows {
  float o[kDim / 8][4];  // C fragments, not yet divided by the total
  float largest[2];
  float total[2];  // of this lane's columns

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (unsigned n = 0; n < kDim / 8; ++n) {
#pragma unroll
      for (unsigned i = 0; i < 4; ++i) o[n][i] = 0.0f;
    }
    largest[0] = largest[1] = kEmptyScore;
    total[0] = total[1] = 0.0f;
  }

  /// Takes `tiles` C fragments of scores, turns them into weights exp(score - largest) * 2^bits, and what was summed
  /// before into terms of the new largest score. A row's numbers do not depend on the other rows.
  template <unsigned kTiles>
  __device__ __forceinline__ void weigh(float (&s)[kTiles][4], float bits) {
    float factor[2];
    bool moved = false;
#pragma unroll
    for (unsigned row = 0; row < 2; ++row) {
      float most = largest[row];
#pragma unroll
      for (unsigned n = 0; n < kTiles; ++n) most = fmaxf(most, fmaxf(s[n][2 * row], s[n][2 * row + 1]));
      most = row_max(most);
      factor[row] = 1.0f;
      if (most > largest[row]) {
        moved = true;
        factor[row] = exp2_approximate((largest[row] - most) * kLog2E);
      }
      largest[row] = most;
    }
    if (__any_sync(kWholeWarp, moved)) {
      total[0] *= factor[0];
      total[1] *= factor[1];
#pragma unroll
      for (unsigned n = 0; n < kDim / 8; ++n) {
        o[n][0] *= factor[0];
        o[n][1] *= factor[0];
        o[n][2] *= factor[1];
        o[n][3] *= factor[1];
      }
    }
#pragma unroll
    for (unsigned row = 0; row < 2; ++row) {
      const float reference = largest[row] == kEmptyScore ? 0.0f : largest[row];
#pragma unroll
      for (unsigned n = 0; n < kTiles; ++n) {
#pragma unroll
        for (unsigned i = 2 * row; i < 2 * row + 2; ++i) {
          s[n][i] = exp2_approximate((s[n][i] - reference) * kLog2E + bits);
          total[row] += s[n][i];
        }
      }
    }
  }

  /// Totals over the row's lanes: called once, before the results are used.
  __device__ __forceinline__ void finish() {
    total[0] = row_sum(total[0]);
    total[1] = row_sum(total[1]);
  }
  __device__ __forceinline__ float inverse(unsigned row) const {
    return total[row] == 0.0f ? 0.0f : 1.0f / total[row];
  }
  /// o of this lane's columns of the row, divided by the total; `out` is its row of [kDim]. After finish().
  __device__ __forceinline__ void store(unsigned row, unsigned lane, float* out) const {
    const float share = inverse(row);
#pragma unroll
    for (unsigned n = 0; n < kDim / 8; ++n)
      store_vector(out + n * 8 + lane % 4 * 2, make_float2(o[n][2 * row] * share, o[n][2 * row + 1] * share));
  }
  __device__ __forceinline__ float lse(unsigned row, float bits) const {
    return total[row] == 0.0f ? kEmptyScore : largest[row] + (logf(total[row]) - bits * kLn2);
  }
};

}  // namespace tandem::gpu
