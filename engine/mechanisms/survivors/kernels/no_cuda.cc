#include "engine/device/cuda/not_built.h"
#include "engine/mechanisms/survivors/kernels/heavy.h"

namespace tandem {

TANDEM_NOT_BUILT(keep_heavy_cuda);
TANDEM_NOT_BUILT(update_heavy_alike_cuda);
TANDEM_NOT_BUILT(update_heavy_cuda);

}  // namespace tandem
