#include "engine/kernels/kernels_cpu.h"

namespace tandem::TANDEM_ISA_NAMESPACE {

constinit const KernelTable table = [] {
  KernelTable made{};
#define TANDEM_KERNEL(result, name, parameters) made.name = name
#if defined(__AVX512BF16__)
  made.linear_bf16_depth = kBf16Depth;
#else
#define TANDEM_BF16_KERNEL(result, name, parameters)
#endif
#include "engine/kernels/kernel_list.h"
  return made;
}();

}  // namespace tandem::TANDEM_ISA_NAMESPACE
