// One row of a selection ahead, shared by its planning (cache_ranks.cc) and its execution (places.cc).
#pragma once

#include <cstdint>
#include <vector>

#include "engine/mechanisms/cache_rank/cache_ranks.h"
#include "engine/mechanisms/cache_rank/kernels/query_prediction.h"

namespace tandem {

struct CacheRanks::Selection {
  CacheRank rank;                                   // as it is when submitted
  DeviceBuffer from;                                // of queries: [layer][slots][Hq][D], that of a position at % slots
  std::uint32_t slots = 1;                          //
  Range positions;                                  // queries that the rank gets
  std::uint32_t known = 0;                          // queries in the window then
  std::uint32_t end = 0, keep = 0;                  // AheadRequest
  Range sent;                                       // pages that the rank gets
  std::vector<std::vector<std::uint32_t>> at;       // [layer of the pack][page] slots that the rank reads
  std::vector<std::vector<std::uint32_t>> leaving;  // the same of the pages that it gets, on the device

  std::uint32_t pushed() const { return positions.end - positions.begin; }
  std::uint64_t query_bytes() const { return std::uint64_t{pushed()} * rank.width() * sizeof(float); }  // of a layer
  /// Of a layer: what the rank reads and writes to choose, and computes.
  void add_choice(Cost& cost, std::uint64_t& bytes) const {
    const KvShape& shape = rank.shape;
    bytes += 2 * query_bytes();
    if (keep == 0) return;
    // The window, every key, a score per token and KV head out and in, K and V of the choice in and out.
    const std::uint64_t window = std::uint64_t{known} * rank.width(), candidates = std::uint64_t{end} * shape.kv_heads;
    bytes += window * sizeof(float) + candidates * (shape.vector_bytes() + 2 * sizeof(float)) +
             std::uint64_t{4} * keep * shape.kv_heads * shape.vector_bytes();
    cost.context += window * sizeof(float) + candidates * shape.vector_bytes();
    cost.flops += std::uint64_t{2} * end * rank.width();
    cost.solved += rank.q_heads * prediction_flops(rank.rule, known, shape.head_dim);
  }
  std::uint64_t packed_bytes() const {  // of a layer
    return std::uint64_t{2} * keep * rank.shape.kv_heads * rank.shape.vector_bytes();
  }
};

}  // namespace tandem
