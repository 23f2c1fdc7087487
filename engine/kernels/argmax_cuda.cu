#include "engine/common/error.h"
#include "engine/kernels/argmax_kernels.cuh"

namespace tandem {

std::size_t choose_scratch_bytes(std::uint32_t n, std::uint32_t vocab) {
  return std::size_t{n} * gpu::blocks_for(vocab, gpu::kLogitsPart) * sizeof(gpu::LogitsPart);
}

void choose_cuda(const float* logits, std::uint32_t n, std::uint32_t vocab, const std::int32_t* tokens, TopTwo* top,
                 std::int32_t* best, double* log_probabilities, void* scratch, CudaStream stream) {
  TANDEM_CHECK(vocab >= 1, "An empty vocabulary has no best token.");
  TANDEM_CHECK(n <= gpu::kMaxGridRows, "{} rows of logits.", n);
  TANDEM_CHECK(reinterpret_cast<std::uintptr_t>(scratch) % alignof(gpu::LogitsPart) == 0,
               "The scratch of choose_cuda is not aligned to {} bytes.", alignof(gpu::LogitsPart));
  auto* const parts = static_cast<gpu::LogitsPart*>(scratch);
  const unsigned parts_per_row = gpu::blocks_for(vocab, gpu::kLogitsPart);
  gpu::Launcher launch(stream);
  launch(gpu::logits_parts_kernel, n == 0 ? dim3(0) : dim3(parts_per_row, n), gpu::kLogitsThreads, 0, logits, vocab,
         parts);
  launch(gpu::choose_kernel, n, gpu::kWarp, 0, logits, vocab, parts, parts_per_row, tokens, top, best,
         log_probabilities);
}

}  // namespace tandem
