// Whether streams and this host can wait for each other here at all, asked before a run rather than in its middle.
#pragma once

#include <chrono>

namespace tandem {

/// A stream tells the host, waits for it, and copies pieces both ways, as operations of `cuda` do. InputError with what
/// did not arrive within `patience`: under WSL or confidential computing streams may not reach pinned memory.
void check_cuda_handshake(std::chrono::milliseconds patience = std::chrono::milliseconds(2000));

}  // namespace tandem
