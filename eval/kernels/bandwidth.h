// The attainable read bandwidth of the caller's machine, which the benches compare themselves with.
#pragma once

#include <span>

#include "engine/kernels/thread_pool.h"

namespace tandem {

/// Bytes per second at which `threads` threads read 512 MiB of private memory each round, best of several; measured
/// once per thread count and kept.
double read_bandwidth(unsigned threads);

/// Bytes per second of one pass over 512 MiB of private memory, now: what a kernel that runs just before or after
/// should be compared with where other work on the machine takes bandwidth.
double read_bandwidth_now(ThreadPool& pool);

/// Bytes per second of one pass over this memory, a multiple of 1 MiB.
double read_rate(ThreadPool& pool, std::span<const char> memory);

}  // namespace tandem
