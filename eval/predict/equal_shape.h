// Budgets at equal bytes where only a shape is simulated (eval/match_bytes).
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "engine/device/profile.h"
#include "engine/model/model.h"
#include "engine/runtime/workload.h"
#include "eval/match_bytes/match_bytes.h"

namespace tandem::eval {

struct EqualShapeOptions {
  EqualBytes asked;
  std::vector<std::string> methods;  // specs
  std::uint32_t context = 0;         // prompt tokens
  std::uint32_t steps = 16;          // decode steps that bytes are the mean of, but for the first
  std::uint32_t prefill_chunk = 2048;
  unsigned threads = 0;
  std::function<bool()> interrupted;
  std::function<void(std::uint64_t done, std::uint64_t total, const std::string& what)> progress;
};

/// Of one sequence, on a machine like `hardware` with as much memory as it takes: bytes are no machine's. A method that
/// refuses the shape says why. `shape` may have fewer positions than the context takes. Throws Interrupted,
/// and InputError as find_equal().
Equal equal_at_shape(Model shape, const HardwareProfile& hardware, const Workload& workload,
                     const EqualShapeOptions& options);

}  // namespace tandem::eval
