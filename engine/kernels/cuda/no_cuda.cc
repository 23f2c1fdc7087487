// The CUDA kernels of a build without CUDA: they throw.
#include "engine/device/cuda/not_built.h"
#include "engine/kernels/activation.h"
#include "engine/kernels/argmax.h"
#include "engine/kernels/attention.h"
#include "engine/kernels/attention_weights.h"
#include "engine/kernels/convert.h"
#include "engine/kernels/digest.h"
#include "engine/kernels/embedding.h"
#include "engine/kernels/fetch_list.h"
#include "engine/kernels/gather.h"
#include "engine/kernels/head_features.h"
#include "engine/kernels/head_network.h"
#include "engine/kernels/linear_gpu.h"
#include "engine/kernels/merge.h"
#include "engine/kernels/norm.h"
#include "engine/kernels/paged_attention.h"
#include "engine/kernels/qkv.h"
#include "engine/kernels/sampling.h"
#include "engine/kernels/topk.h"

namespace tandem {

TANDEM_NOT_BUILT(blend_weights_cuda);
TANDEM_NOT_BUILT(build_digests_cuda);
TANDEM_NOT_BUILT(choose_cuda);
TANDEM_NOT_BUILT(choose_scratch_bytes);
TANDEM_NOT_BUILT(convert_cuda);
TANDEM_NOT_BUILT(count_tokens_cuda);
TANDEM_NOT_BUILT(embed_cuda);
TANDEM_NOT_BUILT(gather_cuda);
TANDEM_NOT_BUILT(gather_lists_cuda);
TANDEM_NOT_BUILT(list_pages_cuda);
TANDEM_NOT_BUILT(list_units_cuda);
TANDEM_NOT_BUILT(log_sum_exp_cuda);
TANDEM_NOT_BUILT(merge_partials_cuda);
TANDEM_NOT_BUILT(number_pages_cuda);
TANDEM_NOT_BUILT(paged_attention_cuda);
TANDEM_NOT_BUILT(paged_token_scores_cuda);
TANDEM_NOT_BUILT(pages_of_ranges_cuda);
TANDEM_NOT_BUILT(pages_of_residents_cuda);
TANDEM_NOT_BUILT(pages_of_selection_cuda);
TANDEM_NOT_BUILT(pages_of_tokens_cuda);
TANDEM_NOT_BUILT(place_slots_cuda);
TANDEM_NOT_BUILT(predict_heads_cuda);
TANDEM_NOT_BUILT(prefill_attention_cuda);
TANDEM_NOT_BUILT(prepare_qkv_cuda);
TANDEM_NOT_BUILT(reduce_scores_cuda);
TANDEM_NOT_BUILT(rms_norm_cuda);
TANDEM_NOT_BUILT(sample_tokens_cuda);
TANDEM_NOT_BUILT(score_blocks_cuda);
TANDEM_NOT_BUILT(step_features_cuda);
TANDEM_NOT_BUILT(swiglu_cuda);
TANDEM_NOT_BUILT(top_k_cuda);
TANDEM_NOT_BUILT(whole_pages_cuda);

// The constructor throws, so the other members never run.
struct LinearCuda::State {};
LinearCuda::LinearCuda() {
  not_built();
}
LinearCuda::~LinearCuda() = default;
void LinearCuda::operator()(const void*, const MatrixView&, const float*, void*, DType, std::uint32_t, CudaStream) {}
void LinearCuda::add(const void*, const MatrixView&, float*, std::uint32_t, CudaStream) {}

}  // namespace tandem
