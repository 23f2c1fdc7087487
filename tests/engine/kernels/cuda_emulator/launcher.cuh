// The emulated twin of gpu::Launcher (engine/kernels/cuda/launch.cuh, which includes it).
#pragma once

#include <atomic>
#include <tuple>
#include <utility>

#include "engine/device/cuda/runtime.h"
#include "tests/engine/kernels/cuda_emulator/language.cuh"
#include "tests/engine/kernels/cuda_emulator/streams.h"

namespace tandem::gpu {

class Launcher {
 public:
  /// Every launch of the process takes the next seed for the order of its blocks and threads.
  explicit Launcher(CudaStream stream) : stream_(stream), all_judged_(false), seed_(shared_seed()) {}
  explicit Launcher(unsigned seed = 1) : all_judged_(true), own_seed_(seed), seed_(own_seed_) {}
  Launcher(const Launcher&) = delete;
  Launcher& operator=(const Launcher&) = delete;

  static unsigned multiprocessors() { return cuda_device().multiprocessors; }
  static std::size_t max_shared() { return cuda_emulator::max_shared(); }

  template <class... Parameters, class... Arguments>
  void operator()(void (*kernel)(Parameters...), dim3 grid, dim3 block, std::size_t dynamic_shared,
                  Arguments... arguments) {
    if (grid.x == 0 || grid.y == 0 || grid.z == 0) return;
    if (!cuda_emulator::asked(cuda_emulator::Call::kernel)) return;
    // The parameters are copied now, as a launch copies them.
    const std::tuple<Parameters...> parameters(static_cast<Parameters>(arguments)...);
    cuda_emulator::enqueue(stream_, [=, seed = seed_++, all = all_judged_] {
      cuda_emulator::run_grid({grid.x, grid.y, grid.z}, {block.x, block.y, block.z}, dynamic_shared,
                              dynamic_shared > kUnaskedShared, seed, reinterpret_cast<const void*>(kernel),
                              all || cuda_emulator::looks_for_races(reinterpret_cast<const void*>(kernel)),
                              [&] { std::apply(kernel, parameters); });
    });
  }

 private:
  static std::atomic<unsigned>& shared_seed() {
    static std::atomic<unsigned> seed = 1;
    return seed;
  }
  CudaStream stream_;
  bool all_judged_;  // launches of tests of kernels
  std::atomic<unsigned> own_seed_ = 0;
  std::atomic<unsigned>& seed_;
};

}  // namespace tandem::gpu
