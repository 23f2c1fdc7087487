// ^C and SIGTERM set interrupted(): the work in progress asks for it and stops in good order (Interrupted). A second
// signal ends the program at once.
#pragma once

#include "engine/common/interrupt.h"

namespace tandem::cli {

/// From here on SIGINT and SIGTERM set the flag. Signals the parent told us to ignore (nohup) stay ignored. SIGXFSZ is
/// ignored, so that a limit on the size of files is an error like a full disk.
void handle_interrupts();

/// Returns when a read of `descriptor` would not wait: true; or when a signal has arrived, be it before: false.
bool wait_for_input(int descriptor);

}  // namespace tandem::cli
