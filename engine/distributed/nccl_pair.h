// Two ends in one process whose messages go from one GPU to another by NCCL: up to the sender's GPU, across, and down
// at the receiver's. Whoever waits polls, and gives up when the other end is gone, NCCL reports an error or the time is
// over; then nothing is sent between the two any more.
#pragma once

#include <chrono>
#include <string>

#include "engine/distributed/communicator.h"
#include "engine/distributed/gpu_libraries.h"

namespace tandem {

struct NcclPlaces {
  int first = 0, second = 1;  // GPUs, as the driver counts them
};

/// As make_thread_pair(), but that send() waits until its message has left. Each end may be used by two threads, of
/// which one sends and one receives. A receive that waits keeps one block of its GPU at work: NCCL's way of waiting.
/// InputError where the machine has not both GPUs, RunError where they cannot be set up: a message has gone each way
/// when this returns.
CommunicatorPair make_nccl_pair(const GpuLibraries& libraries, const NcclPlaces& places, std::string first,
                                std::string second, std::chrono::milliseconds patience);

}  // namespace tandem
