// The user's wish to stop (^C), as a flag that long loops ask for. The program's signal handler sets it.
#pragma once

namespace tandem {

/// Whether the user asked to stop. Cheap; any thread may ask.
bool interrupted();

/// Interrupted where the user asked to stop.
void stop_if_interrupted();

/// Asks everybody to stop. Returns whether that had been asked for already. A signal handler may call it.
bool interrupt();

}  // namespace tandem
