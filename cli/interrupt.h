// ^C and SIGTERM as a flag: the work in progress looks at it between samples and stops in good order (Interrupted). A
// second signal ends the program at once.
#pragma once

namespace tandem::cli {

/// From here on SIGINT and SIGTERM set the flag. Signals the parent told us to ignore (nohup) stay ignored. SIGXFSZ is
/// ignored, so that a limit on the size of files is an error like a full disk.
void handle_interrupts();

/// Whether one has arrived. Cheap; any thread may ask.
bool interrupted();

/// While it lives, ^C ends a read of the terminal instead of waiting for its line.
class EndsReading {
 public:
  EndsReading();
  ~EndsReading();
  EndsReading(const EndsReading&) = delete;
  EndsReading& operator=(const EndsReading&) = delete;
};

}  // namespace tandem::cli
