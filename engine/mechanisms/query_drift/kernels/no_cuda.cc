// Linked where there is no CUDA.
#include "engine/device/cuda/not_built.h"
#include "engine/mechanisms/query_drift/kernels/drift.h"

namespace tandem {

TANDEM_NOT_BUILT(part_by_drift_cuda);

}  // namespace tandem
