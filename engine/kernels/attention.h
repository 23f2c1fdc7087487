// Attention over KV as it is stored: partial attention of one token over chosen spans, causal prefill attention, and
// the merge of partial results. Grouped queries: the `group` query heads that share one KV head are computed together,
// so that K and V are read once.
#pragma once

#include <cstdint>
#include <span>

#include "engine/device/cuda/launch_array.h"
#include "engine/device/cuda/runtime.h"     // CudaStream
#include "engine/kernels/attention_span.h"  // KvSpan
#include "engine/kernels/page_list.h"
#include "engine/kernels/thread_pool.h"

namespace tandem {

/// Softmax attention over the tokens of all spans, scale 1 / sqrt(D): o = sum p_t v_t with p = softmax(q.k / sqrt(D)),
/// lse = ln sum exp(q.k / sqrt(D)). A head that attends no token gets o = 0 and lse = -infinity; never NaN where input
/// and sums of weights times values are finite; subnormal numbers may count as 0. Online softmax in one pass (Milakov
/// and Gimelshein 2018; Dao et al. 2022). Canonical order: a head's bits depend only on q and on the sequence of tokens
/// that it attends, not on how they are cut into spans, where they lie in memory, or what other heads do. Everything is
/// computed in f32; with bf16 KV the query and the weights that multiply V are rounded to bf16 (lse is of the weights
/// before that), and products of bf16 are exact.
///
/// scores, where given: the scores q.k / sqrt(D) of all tokens in span order; NaN and what is too large for f32 become
/// f32's largest number. Then every span is attended by every head. `stride`: from a head's scores to the next one's;
/// 0: as many as there are tokens.
void partial_attention(const float* q /*[group][D]*/, std::span<const KvSpan> spans, AttentionShape shape,
                       float* o /*[group][D]*/, float* lse /*[group]*/, float* scores /*[group][stride]*/ = nullptr,
                       std::size_t stride = 0);

/// The same for parts of the spans that follow each other, each with a result of its own, bit for bit that of its own
/// call: part i ends before span ends[i], the last one with the last span. One call reads memory without a pause
/// between parts. `scores`: of all spans, or nullptr.
void partial_attention_of_parts(const float* q /*[group][D]*/, std::span<const KvSpan> spans,
                                std::span<const std::size_t> ends /*[parts]*/, AttentionShape shape,
                                float* o /*[parts][group][D]*/, float* lse /*[parts][group]*/,
                                float* scores /*[group][stride]*/ = nullptr, std::size_t stride = 0);

/// The scores alone, bit for bit those of partial_attention(); head masks are not looked at. Reads no V.
void token_scores(const float* q /*[group][D]*/, std::span<const KvSpan> spans, AttentionShape shape,
                  float* scores /*[group][tokens]*/);

/// The oracles, in float64.
void partial_attention_reference(const float* q /*[group][D]*/, std::span<const KvSpan> spans, AttentionShape shape,
                                 float* o /*[group][D]*/, float* lse /*[group]*/);

void token_scores_reference(const float* q /*[group][D]*/, std::span<const KvSpan> spans, AttentionShape shape,
                            float* scores /*[group][tokens]*/);

inline constexpr std::uint32_t kPrefillPageTokens = 16;

/// The KV of one KV head, in pages. Both lists have at least ceil((first_position + n) / 16) entries.
struct PrefillKv {
  std::span<const void* const> k_pages;  // each [16][D] of `type`
  std::span<const void* const> v_pages;  // each [16][D] of `type`
  DType type = DType::f32;
};

/// Causal attention of n new tokens: query i attends tokens 0 .. first_position + i, whose K and V are in the pages
/// already. Query head h uses KV head h / (q_heads / kv_heads). Parallel over KV heads and tiles of queries; bits do
/// not depend on the number of threads. Computed in f32; with bf16 KV queries and weights are rounded to bf16, as in
/// partial_attention(). A query's result differs by rounding only (1e-5) when the prompt is cut into other chunks.
/// Token slots beyond first_position + n - 1 are not read.
void prefill_attention(ThreadPool& pool, const float* q /*[n][Hq][D]*/, std::span<const PrefillKv> kv /*[Hkv]*/,
                       std::uint32_t first_position, std::uint32_t n, std::uint32_t q_heads, std::uint32_t kv_heads,
                       std::uint32_t dim, float* out /*[n][Hq][D]*/);

void prefill_attention_reference(const float* q /*[n][Hq][D]*/, std::span<const PrefillKv> kv /*[Hkv]*/,
                                 std::uint32_t first_position, std::uint32_t n, std::uint32_t q_heads,
                                 std::uint32_t kv_heads, std::uint32_t dim, float* out /*[n][Hq][D]*/);

/// A chunk of a prompt on the GPU. Device memory; q and out are aligned to 8 bytes where tensor cores run.
struct PrefillChunk {
  const float* q = nullptr;              // [n][Hq][D]
  KvPages kv;                            // K and V of tokens [0, first_position + n) are there already
  const std::uint32_t* slots = nullptr;  // [ceil((first_position + n) / 16)]
  std::uint32_t first_position = 0, n = 0, q_heads = 0;
  float* out = nullptr;  // [n][Hq][D]
  float* lse = nullptr;  // [n][Hq], where it is wanted
};
/// prefill_attention of the chunk. bf16 and f16 KV of D = 64, 96, 128 or 256 run on tensor cores, with queries and
/// weights rounded to the type of the KV (FlashAttention-2, Dao 2023): a result differs from float64's by up to 2^-8
/// (bf16) or 2^-10 (f16) of the largest value, where sums are rounded. Tensor cores cut their sums off instead: a model
/// of that, not measured, makes results of 128K tokens of nearly equal weights 4e-4 (bf16) to 1e-3 (f16) too small on
/// an A100, half of it on an H100, and a tenth at 32K. Everything else runs on a plain kernel in f32, D up to 512. A
/// query's bits do not depend on how the prompt is cut into chunks. Throws CudaError where the launch is refused,
/// InputError for a larger D.
void prefill_attention_cuda(const PrefillChunk& chunk, CudaStream stream);

/// Joins partial results over disjoint sets of tokens (Dao et al. 2023, Flash-Decoding; Ye et al. 2025, FlashInfer
/// §2.2): out = sum_i exp(lse_i - lse) o_i with lse = ln sum_i exp(lse_i), row by row, parts in the order given. A part
/// with lse = -infinity is ignored whatever its o; where all are, out = 0 and out_lse = -infinity. Where one part is
/// left, out and out_lse are that part's, bit for bit. out may be one of the inputs' o, and out_lse one of the inputs'
/// lse.
void merge_partials(const float* const* o /*[parts] -> [rows][D]*/, const float* const* lse /*[parts] -> [rows]*/,
                    std::uint32_t parts, std::uint32_t rows, std::uint32_t dim, float* out /*[rows][D]*/,
                    float* out_lse /*[rows] or nullptr*/);

/// Rows for which the last part counts: of every `per_bit` rows together one bit, the lowest of the first word first.
/// per_bit 0: all.
struct LastPart {
  LaunchArray<std::uint32_t> bits;
  std::uint32_t per_bit = 0;
};

/// The same on the GPU. The parts are device memory or pinned: a partial result that the CPU wrote is read over the
/// link where it lies, each number once where there are up to 512 parts. Where the last part does not count it is not
/// read.
void merge_partials_cuda(const LaunchArray<const float*>& o /*[parts] -> [rows][D]*/,
                         const LaunchArray<const float*>& lse /*[parts] -> [rows]*/, std::uint32_t parts,
                         std::uint32_t rows, std::uint32_t dim, float* out /*[rows][D]*/,
                         float* out_lse /*[rows] or nullptr*/, CudaStream stream, const LastPart& last = {});

}  // namespace tandem
