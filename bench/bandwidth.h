// The attainable read bandwidth of the caller's machine, which the benches compare themselves with.
#pragma once

namespace tandem {

/// Bytes per second at which `threads` threads read 512 MiB of private memory each round, best of several; measured
/// once per thread count and kept.
double read_bandwidth(unsigned threads);

}  // namespace tandem
