// The emulated twin of gpu::Launcher (engine/kernels/cuda/launch.cuh).
#pragma once

#include <tuple>
#include <utility>

#include "tests/engine/kernels/cuda_emulator/language.cuh"

namespace tandem::gpu {

class Launcher {
 public:
  /// `seed` decides the order of blocks and threads; the next launch takes the next one.
  explicit Launcher(unsigned seed = 1, unsigned multiprocessors = 4) : seed_(seed), multiprocessors_(multiprocessors) {}

  unsigned multiprocessors() const { return multiprocessors_; }

  template <class... Parameters, class... Arguments>
  void operator()(void (*kernel)(Parameters...), dim3 grid, dim3 block, std::size_t dynamic_shared,
                  Arguments... arguments) {
    if (grid.x == 0 || grid.y == 0 || grid.z == 0) return;
    const std::tuple<Parameters...> parameters(static_cast<Parameters>(arguments)...);
    cuda_emulator::run_grid({grid.x, grid.y, grid.z}, {block.x, block.y, block.z}, dynamic_shared, seed_++,
                            [&] { std::apply(kernel, parameters); });
  }

 private:
  unsigned seed_, multiprocessors_;
};

}  // namespace tandem::gpu
