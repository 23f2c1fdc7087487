#include "engine/common/interrupt.h"

#include <atomic>

#include "engine/common/error.h"

namespace tandem {
namespace {

std::atomic<bool> flag{false};
static_assert(std::atomic<bool>::is_always_lock_free, "a signal handler may touch nothing else");

thread_local int keeping = 0;  // KeepingWork objects that live

}  // namespace

bool interrupted() {
  return flag.load(std::memory_order_relaxed);
}

void stop_if_interrupted() {
  if (interrupted() && keeping == 0) throw Interrupted();
}

KeepingWork::KeepingWork() {
  ++keeping;
}
KeepingWork::~KeepingWork() {
  --keeping;
}

bool interrupt() {
  return flag.exchange(true);
}

}  // namespace tandem
