// The emulator's streams: threads that do what was put into them, one thing after the other and as late as they like,
// so that whatever is read too early, or overwritten too early, shows as it would on a GPU. The default stream does
// everything at once.
#pragma once

#include <cstdint>
#include <functional>

#include "engine/device/cuda/runtime.h"

namespace tandem::cuda_emulator {

/// What `work` throws is rethrown by every later wait for the stream, and nothing behind it runs, as on a GPU. Of the
/// default stream it comes out at once.
void enqueue(CudaStream stream, std::function<void()> work);

/// How much of what streams do was put into any of them, since the process began.
struct Calls {
  std::uint64_t kernels = 0, copies = 0, marks = 0, waits = 0;  // a batch of copies is one
};
Calls calls();
enum class Call : std::uint8_t { kernel, copy, mark, wait };
/// Counts it; whether it is to be done.
bool asked(Call call);

/// From here on kernels and copies are counted and not done, and memory begins as zeros: to measure what it takes to
/// ask for them. After a device is made, which tries that copies arrive.
void be_idle();
bool idle();

/// What a machine may lack: streams' words do not reach the host, the host's do not reach streams, copies of pieces do
/// nothing, or a stream cannot be told to wait at all. For as long as the object lives.
enum class Lack : std::uint8_t { nothing, writes, waits, copies, operations };
class Lacking {
 public:
  explicit Lacking(Lack what);
  ~Lacking();
};
Lack lack();

/// Whether the stream has done all that was put into it. Waits for nothing.
bool is_settled(CudaStream stream);

/// Every stream has done what was put into it: freeing memory waits for that, as on a GPU.
void settle_all();

}  // namespace tandem::cuda_emulator
