#include "engine/device/cuda/not_built.h"
#include "engine/mechanisms/partial_key_index/kernels/skewed.h"

namespace tandem {

TANDEM_NOT_BUILT(choose_skewed_cuda);
TANDEM_NOT_BUILT(choose_skewed_of_all_cuda);
TANDEM_NOT_BUILT(choose_skewed_of_each_cuda);
TANDEM_NOT_BUILT(skew_directions_cuda);
TANDEM_NOT_BUILT(skew_grams_cuda);
TANDEM_NOT_BUILT(skew_keys_cuda);
TANDEM_NOT_BUILT(skewed_scores_cuda);

}  // namespace tandem
