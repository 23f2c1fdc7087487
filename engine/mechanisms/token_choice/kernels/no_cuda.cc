#include "engine/device/cuda/not_built.h"
#include "engine/mechanisms/token_choice/kernels/token_choice.h"

namespace tandem {

TANDEM_NOT_BUILT(choose_tokens_cuda);
TANDEM_NOT_BUILT(pack_tokens_cuda);

}  // namespace tandem
