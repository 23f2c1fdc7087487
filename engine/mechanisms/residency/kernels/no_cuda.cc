#include "engine/device/cuda/not_built.h"
#include "engine/mechanisms/residency/kernels/residency.h"

namespace tandem {

TANDEM_NOT_BUILT(split_residents_cuda);
TANDEM_NOT_BUILT(swap_residents_cuda);

}  // namespace tandem
