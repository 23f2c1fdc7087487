#include "engine/device/cuda/not_built.h"
#include "engine/mechanisms/cache_rank/kernels/ahead_selection.h"
#include "engine/mechanisms/cache_rank/kernels/query_prediction.h"

namespace tandem {

TANDEM_NOT_BUILT(predict_next_cuda);
TANDEM_NOT_BUILT(push_queries_cuda);
TANDEM_NOT_BUILT(select_ahead_cuda);

}  // namespace tandem
