#include "eval/kernels/gpu_limits.h"

#include <algorithm>

namespace tandem::eval {

GpuLimits::GpuLimits(ThreadPool& pool, const GpuLimitSizes& sizes)
    : sizes_(sizes), memory_(KernelTarget::cuda, pool), copy_(memory_.output<char>(2 * sizes.copy)) {}

double GpuLimits::of(const KernelCase& one) {
  if (one.bound == Bound::bf16) return product_rate();
  if (one.bound != Bound::bytes) return 0;
  return one.link != Link::none ? link_rate(one.link) : 2 * copy_rate(copy_, copy_ + sizes_.copy, sizes_.copy);
}

double GpuLimits::copy_rate(void* to, const void* from, std::size_t bytes) {
  const double seconds = cuda_seconds(memory_.stream(), [&] { cuda_copy(to, from, bytes, memory_.stream()); });
  return static_cast<double>(bytes) / seconds;
}

double GpuLimits::link_rate(Link link) {
  if (host_ == nullptr) {
    host_ = memory_.host_bytes(sizes_.link);
    std::fill_n(static_cast<char*>(host_), sizes_.link, char{1});
  }
  return link == Link::to_device ? copy_rate(copy_, host_, sizes_.link) : copy_rate(host_, copy_, sizes_.link);
}

/// The best that cuBLASLt reached on a large bf16 product so far.
double GpuLimits::product_rate() {
  const std::uint32_t size = sizes_.product;
  const auto multiply = [&] { (*product_)(x_, weights_, nullptr, y_, DType::f32, size, memory_.stream()); };
  if (!product_) {
    auto product = std::make_unique<LinearCuda>();
    const std::size_t count = std::size_t{size} * size;
    x_ = memory_.stored_normals(count, DType::bf16, 1);
    weights_ = {memory_.stored_normals(count, DType::bf16, 2), DType::bf16, size, size};
    y_ = memory_.bytes(count * sizeof(float));
    product_ = std::move(product);
    multiply();  // chooses and loads the kernel
  }
  const double seconds = cuda_seconds(memory_.stream(), multiply);
  return best_product_ = std::max(best_product_, 2.0 * size * size * size / seconds);
}

}  // namespace tandem::eval
