// The hot loops that exist once per instruction set. Internal to engine/kernels: callers use the headers of the
// operations. Arguments were checked by the caller; scratch memory is the caller's.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "engine/kernels/attention_span.h"
#include "engine/kernels/tensor.h"

namespace tandem {

// Functions here are static, so that no build of a hot file leaves one for the others (vec.h).

/// One tile of prefill attention: `queries` queries times the `group` heads of one KV head.
struct PrefillTile {
  const float* q;                // first query, first head of the group
  size_t query_stride;           // floats between one query and the next, for q and out
  const void* const* k_pages;    // from token 0
  const void* const* v_pages;    //
  DType kv;                      // of the pages
  uint32_t first_position;       // of the first query of the tile
  uint32_t queries, group, dim;  //
  float* out;                    //
  float* scratch;                // prefill_scratch_floats(queries * group, dim)
};
constexpr uint32_t kPrefillTileTokens = 64;
constexpr uint32_t kMaxWidth = 16;
static constexpr size_t padded_dim(uint32_t dim) {
  return (size_t{dim} + 2 * kMaxWidth - 1) / (2 * kMaxWidth) * (2 * kMaxWidth);  // whole pairs of vectors
}
static constexpr size_t prefill_scratch_floats(uint32_t query_rows, uint32_t dim) {
  const size_t rows = (size_t{query_rows} + 15) / 16 * 16;  // whole tiles
  return padded_dim(dim) * (2 * (rows + kPrefillTileTokens) + 1) + rows * (kPrefillTileTokens + kMaxWidth + 1);
}

// Of partial_attention and token_scores: queries and sums; or in tiles (RunBuffers, attention_amx_cpu.h), with rows
// rounded up to 16, queries (rows / 2 times dim), 32 keys of bf16 (16 dim), sums (rows dim), 16 rows of them and the
// values of 32 tokens (16 dim each), and weights of 32 tokens (16 rows).
static constexpr size_t partial_scratch_floats(uint32_t group, uint32_t dim) {
  const size_t rows = (size_t{group} + 15) / 16 * 16;
  const size_t plain = (2 * size_t{group} + 1) * padded_dim(dim), tiles = (rows * 3 / 2 + 48) * dim + rows * 16;
  return plain > tiles ? plain : tiles;
}

/// Rows [first, last) of w times all n rows of x.
struct LinearRows {
  const float* packed_x;  // by linear_pack
  const void* w;
  DType type;
  uint32_t in, out, first, last;
  const float* bias;  // [out] or nullptr
  float* y;           // [n][out]
  uint32_t n;
};
static constexpr size_t linear_padded(uint32_t in) {
  return (size_t{in} + kMaxWidth - 1) / kMaxWidth * kMaxWidth;
}

constexpr uint32_t kPrefillColumns = 64;
constexpr uint32_t kPrefillDepth = 128;
static constexpr size_t linear_prefill_scratch_floats(uint32_t n) {
  return size_t{kPrefillDepth} * (kPrefillColumns + 1) + size_t{n} * kPrefillColumns;
}

/// Rows [row, row + rows) of x, rounded, times weight rows [column, column + columns), columns <= kPrefillColumns.
struct Bf16Block {
  const uint16_t* x;  // by linear_bf16_round, all_rows rows
  uint32_t all_rows, row, rows;
  const void* w;  // bf16
  uint32_t in, out, column, columns;
  const float* bias;  // [out] or nullptr
  float* y;           // [all_rows][out]
  float* scratch;     // linear_bf16_scratch_floats(linear_bf16_depth, rows), aligned to 64 bytes
};
static constexpr size_t linear_bf16_padded(uint32_t in) {
  return (size_t{in} + 31) / 32 * 32;
}
/// For a build whose blocks take `depth` elements of `in` at a time.
static constexpr size_t linear_bf16_scratch_floats(uint32_t depth, uint32_t rows) {
  return size_t{kPrefillColumns} * (depth / 2 + rows);
}

constexpr uint32_t kGramColumns = 8;

struct KernelTable {
#define TANDEM_KERNEL(result, name, parameters) result(*name) parameters  // NOLINT(bugprone-macro-parentheses)
#include "engine/kernels/kernel_list.h"
  uint32_t linear_bf16_depth;  // elements of `in` that linear_bf16_block takes at a time; 0 in builds without BF16
};

/// The table of active_isa(), or of the living ScopedIsa.
const KernelTable& kernels();

#define TANDEM_KERNEL_TABLE(isa)  \
  namespace isa {                 \
  extern const KernelTable table; \
  }
TANDEM_KERNEL_TABLE(isa_baseline)
TANDEM_KERNEL_TABLE(isa_avx2)
TANDEM_KERNEL_TABLE(isa_avx512)
TANDEM_KERNEL_TABLE(isa_avx512_bf16)
TANDEM_KERNEL_TABLE(isa_amx)
#undef TANDEM_KERNEL_TABLE

}  // namespace tandem
