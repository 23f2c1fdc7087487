// The attention kernels' twins in a build without CUDA: they say so.
#include "engine/device/cuda/runtime.h"
#include "engine/kernels/ahead_selection.h"
#include "engine/kernels/attention.h"
#include "engine/kernels/attention_weights.h"
#include "engine/kernels/cuda/no_cuda.h"
#include "engine/kernels/digest.h"
#include "engine/kernels/fetch_list.h"
#include "engine/kernels/head_features.h"
#include "engine/kernels/head_network.h"
#include "engine/kernels/heavy.h"
#include "engine/kernels/merge.h"
#include "engine/kernels/page_table.h"
#include "engine/kernels/paged_attention.h"
#include "engine/kernels/residency.h"
#include "engine/kernels/skewed.h"
#include "engine/kernels/topk.h"

namespace tandem {

void paged_attention_cuda(const PagedAttention&, CudaStream) {
  refuse_without_cuda();
}
void pages_of_selection_cuda(const LaunchArray<BlockSelection>&, std::uint32_t, std::uint32_t, std::uint32_t,
                             std::uint32_t, bool, std::uint32_t, PageEntry*, std::uint32_t*, CudaStream,
                             const SelectedTokens&) {
  refuse_without_cuda();
}
void whole_pages_cuda(const LaunchArray<WholePages>&, std::uint32_t, std::uint32_t, PageEntry*, std::uint32_t*,
                      CudaStream) {
  refuse_without_cuda();
}
void place_slots_cuda(const LaunchArray<std::uint32_t>&, std::uint32_t, std::uint32_t, std::uint32_t, std::uint32_t,
                      std::uint32_t*, CudaStream) {
  refuse_without_cuda();
}
void pages_of_ranges_cuda(const LaunchArray<PageRanges>&, const LaunchArray<TokenRange>&, std::uint32_t, bool,
                          std::uint32_t, PageEntry*, std::uint32_t*, CudaStream) {
  refuse_without_cuda();
}
void pages_of_tokens_cuda(const LaunchArray<SingleTokens>&, std::uint32_t, std::uint32_t, PageEntry*, std::uint32_t*,
                          CudaStream) {
  refuse_without_cuda();
}
void count_tokens_cuda(const PageLists&, std::uint32_t, std::uint32_t, std::uint64_t*, CudaStream) {
  refuse_without_cuda();
}
void paged_token_scores_cuda(const float*, std::uint32_t, std::uint32_t, const KvPages&, const PageLists&, float*,
                             CudaStream) {
  refuse_without_cuda();
}
void merge_partials_cuda(const LaunchArray<const float*>&, const LaunchArray<const float*>&, std::uint32_t,
                         std::uint32_t, std::uint32_t, float*, float*, CudaStream, const LastPart&) {
  refuse_without_cuda();
}
void prefill_attention_cuda(const PrefillChunk&, CudaStream) {
  refuse_without_cuda();
}
void build_digests_cuda(const KvPages&, const LaunchArray<DigestRun>&, std::uint32_t, std::uint32_t, std::uint32_t,
                        CudaStream, DigestKind) {
  refuse_without_cuda();
}
void score_blocks_cuda(const BlockScores*, std::uint32_t, std::uint32_t, std::uint32_t, AttentionShape, CudaStream,
                       DigestKind) {
  refuse_without_cuda();
}
void top_k_cuda(const LaunchArray<TopKRow>&, std::uint32_t, std::uint32_t, CudaStream) {
  refuse_without_cuda();
}
void reduce_scores_cuda(const LaunchArray<ScoreReduction>&, std::uint32_t, std::uint32_t, const ReductionShape&, Reduce,
                        CudaStream) {
  refuse_without_cuda();
}
void keep_heavy_cuda(const HeavyCompetition*, std::uint32_t, std::uint32_t, const KvPages&, CudaStream) {
  refuse_without_cuda();
}
void update_heavy_cuda(const LaunchArray<HeavyStep>&, std::uint32_t, std::uint32_t, const KvPages&, CudaStream) {
  refuse_without_cuda();
}
void update_heavy_alike_cuda(const LaunchArray<HeavyStep>&, std::uint32_t, std::uint32_t, std::uint32_t, std::uint32_t,
                             const KvPages&, CudaStream) {
  refuse_without_cuda();
}
void skew_grams_cuda(const SkewGrams*, std::uint32_t, std::uint32_t, const KvPages&, CudaStream) {
  refuse_without_cuda();
}
void skew_directions_cuda(double*, double*, std::uint32_t, std::uint32_t, std::uint32_t, float*, CudaStream) {
  refuse_without_cuda();
}
void skew_keys_cuda(const LaunchArray<SkewedKeys>&, std::uint32_t, std::uint32_t, std::uint32_t, const KvPages&,
                    CudaStream) {
  refuse_without_cuda();
}
void skewed_scores_cuda(const LaunchArray<SkewedScores>&, std::uint32_t, std::uint32_t, const SkewedShape&,
                        CudaStream) {
  refuse_without_cuda();
}
void choose_skewed_cuda(const SkewedChoice*, std::uint32_t, std::uint32_t, std::uint32_t, CudaStream) {
  refuse_without_cuda();
}
void choose_skewed_of_each_cuda(const SkewedChoice*, std::uint32_t, std::uint32_t, std::uint32_t, CudaStream) {
  refuse_without_cuda();
}
void choose_skewed_of_all_cuda(const SkewedChoice*, std::uint32_t, std::uint32_t, std::uint32_t, std::uint32_t,
                               CudaStream) {
  refuse_without_cuda();
}
void pages_of_residents_cuda(const LaunchArray<ResidentPages>&, std::uint32_t, std::uint32_t, PageEntry*,
                             std::uint32_t*, CudaStream) {
  refuse_without_cuda();
}
void split_residents_cuda(const LaunchArray<ResidentSplit>&, std::uint32_t, CudaStream) {
  refuse_without_cuda();
}
void swap_residents_cuda(const LaunchArray<ResidentSwap>&, std::uint32_t, CudaStream) {
  refuse_without_cuda();
}
void list_units_cuda(const LaunchArray<UnitFetch>&, std::uint32_t, std::uint32_t, std::uint32_t, std::uint32_t,
                     const FetchList&, CudaStream) {
  refuse_without_cuda();
}
void list_pages_cuda(const PageEntry*, const std::uint32_t*, std::uint32_t, std::uint32_t, std::uint32_t, std::uint32_t,
                     const FetchList&, CudaStream) {
  refuse_without_cuda();
}
void number_pages_cuda(PageEntry*, const std::uint32_t*, std::uint32_t, std::uint32_t, CudaStream) {
  refuse_without_cuda();
}
void push_queries_cuda(const PredictionRule&, const DeviceRope&, const LaunchArray<QueryPush>&, std::uint32_t,
                       std::uint32_t, std::uint32_t, CudaStream) {
  refuse_without_cuda();
}
void predict_next_cuda(const PredictionRule&, const DeviceRope&, const QueryWindow*, std::uint32_t, std::uint32_t,
                       std::uint32_t, double*, CudaStream) {
  refuse_without_cuda();
}
void choose_tokens_cuda(const float*, const LaunchArray<TokenChoiceRow>&, std::uint32_t, std::uint32_t, const KvPages&,
                        const PageLists&, float*, CudaStream) {
  refuse_without_cuda();
}
void pack_tokens_cuda(const TokenPack*, std::uint32_t, std::uint32_t, const KvPages&, CudaStream) {
  refuse_without_cuda();
}
void select_ahead_cuda(const PredictionRule&, const DeviceRope&, const AheadBatch&, CudaStream) {
  refuse_without_cuda();
}
void step_features_cuda(const StepFeatures*, std::uint32_t, const HeadShape&, CudaStream) {
  refuse_without_cuda();
}
void predict_heads_cuda(const HeadNetwork&, const float*, std::uint32_t, float*, CudaStream) {
  refuse_without_cuda();
}
void blend_weights_cuda(const LaunchArray<WeightBlend>&, std::uint32_t, std::uint32_t, float, float, CudaStream) {
  refuse_without_cuda();
}
void log_sum_exp_cuda(const LaunchArray<ScoreRow>&, std::uint32_t, CudaStream) {
  refuse_without_cuda();
}

}  // namespace tandem
