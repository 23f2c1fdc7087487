// The user's wish to stop (^C), as a flag that long loops ask for. The program's signal handler sets it.
#pragma once

namespace tandem {

/// Whether the user asked to stop. Cheap; any thread may ask.
bool interrupted();

/// Interrupted where the user asked to stop, unless this thread is keeping its work.
void stop_if_interrupted();

/// While one lives, its thread goes on whatever the user asks: it saves what an interrupted run has finished.
class KeepingWork {
 public:
  KeepingWork();
  KeepingWork(const KeepingWork&) = delete;
  KeepingWork& operator=(const KeepingWork&) = delete;
  ~KeepingWork();
};

/// Asks everybody to stop. Returns whether that had been asked for already. A signal handler may call it.
bool interrupt();

}  // namespace tandem
