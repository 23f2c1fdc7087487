// Costs of the operations that every decode step and prefill has, by shape alone: the engine's operations and the
// comparison with measured kernels (eval/validate) add them up from the same formulas.
#pragma once

#include <cstdint>

#include "engine/device/types.h"

namespace tandem {

/// Adds a product of `rows` f32 activations [rows][columns] with a matrix of outputs x columns: `weight_bytes` are read
/// once.
inline void add_product(Cost& cost, std::uint64_t rows, std::uint64_t outputs, std::uint64_t columns,
                        std::uint64_t weight_bytes) {
  cost.hbm += weight_bytes + rows * (columns + outputs) * sizeof(float);
  cost.flops += 2 * rows * outputs * columns;
}

/// Adds decode attention of `group` query heads over `tokens` K and V vectors of a KV head (of several heads: their
/// sum).
inline void add_decode_attention(Cost& cost, std::uint64_t tokens, std::uint64_t vector_bytes, std::uint64_t group,
                                 std::uint64_t head_dim) {
  const std::uint64_t bytes = tokens * 2 * vector_bytes;
  cost.hbm += bytes;
  cost.context += bytes;
  cost.flops += tokens * 4 * group * head_dim;
}

/// The same on the host.
inline void add_host_attention(Cost& cost, std::uint64_t tokens, std::uint64_t vector_bytes, std::uint64_t group,
                               std::uint64_t head_dim) {
  const std::uint64_t bytes = tokens * 2 * vector_bytes;
  cost.dram += bytes;
  cost.context += bytes;
  cost.flops += tokens * 4 * group * head_dim;
}

/// Bytes of queries and outputs of attention, both f32.
inline std::uint64_t query_bytes(std::uint64_t rows, std::uint64_t q_heads, std::uint64_t head_dim) {
  return 2 * rows * q_heads * head_dim * sizeof(float);
}

/// Adds causal attention of `rows` tokens behind `before` others of one sequence, of which `kv_bytes` are read.
inline void add_prefill_attention(Cost& cost, std::uint64_t before, std::uint64_t rows, std::uint64_t q_heads,
                                  std::uint64_t head_dim, std::uint64_t kv_bytes) {
  const std::uint64_t pairs = rows * before + rows * (rows + 1) / 2;
  cost.flops += 4 * pairs * q_heads * head_dim;
  cost.hbm += kv_bytes + query_bytes(rows, q_heads, head_dim);
}

}  // namespace tandem
