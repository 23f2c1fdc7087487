// tandem-probe: measures this machine for a hardware profile. See README.md in this folder.
#include <algorithm>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <thread>

#include "hardware/probe/gpu.h"
#include "hardware/probe/json_out.h"
#include "hardware/probe/probe.h"

namespace {

using namespace tandem::probe;

/// Writes beside the file and renames, so that a reader never sees half a document.
void write_file(const std::string& path, const std::string& text) {
  const std::string partial = path + ".partial";
  {
    std::ofstream file(partial, std::ios::binary | std::ios::trunc);
    file << text;
    file.flush();
    if (!file)
      throw std::runtime_error("'" + partial + "' could not be written; check that the folder exists and has room.");
  }
  if (std::rename(partial.c_str(), path.c_str()) != 0) {
    throw std::runtime_error("'" + partial + "' could not be renamed to '" + path + "'.");
  }
}

/// Ends the process when a call into the driver never returns, with what was measured until then. Such a call cannot be
/// interrupted, so the process leaves without running destructors.
class Watchdog {
 public:
  Watchdog(const Report& report, double seconds) : report_(report), thread_([this, seconds] { watch(seconds); }) {}
  ~Watchdog() {
    {
      const std::lock_guard lock(mutex_);
      done_ = true;
    }
    wake_.notify_all();
    thread_.join();
  }
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

 private:
  void watch(double seconds) {
    std::unique_lock lock(mutex_);
    if (wake_.wait_for(lock, std::chrono::duration<double>(seconds), [&] { return done_; })) return;
    std::fprintf(stderr, "tandem-probe: a section has not returned long after its time cap; giving up on it.\n");
    const std::string text = to_json(report_);
    try {
      if (report_.options.out.empty()) {
        std::fwrite(text.data(), 1, text.size(), stdout);
        std::fflush(stdout);
      } else {
        write_file(report_.options.out, text);
      }
    } catch (const std::exception& error) {
      std::fprintf(stderr, "tandem-probe: %s\n", error.what());
    }
    std::_Exit(3);
  }
  const Report& report_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool done_ = false;
  std::thread thread_;
};

int run(const Options& options) {
  Report report;
  report.options = options;
  // Caps end measuring, not the filling and checking of buffers: half as much again and half a minute is ample for
  // that. As it runs by default the probe promises four minutes, whatever hangs.
  const double ample = options.seconds * 1.5 + 30;
  const Watchdog watchdog(report, options.seconds <= Options().seconds ? std::min(ample, 240.0) : ample);
  run_probe(report, [&](const Section& section) {
    std::fprintf(stderr, "%-14s %-8s %3zu figures %7.1f s", section.name.c_str(), to_string(section.status),
                 section.figures.size(), section.seconds);
    if (!section.skipped.empty()) std::fprintf(stderr, "  %zu left out", section.skipped.size());
    if (!section.error.empty()) std::fprintf(stderr, "  %s", section.error.c_str());
    std::fprintf(stderr, "\n");
    if (!options.out.empty()) write_file(options.out, to_json(report));
  });
  const std::string text = to_json(report);
  if (options.out.empty()) {
    std::cout << text << std::flush;
    if (!std::cout) throw std::runtime_error("Standard output could not be written.");
  } else {
    write_file(options.out, text);
  }
  int code = 0;
  for (const Section& section : report.sections) {
    if (section.status == Status::failed) code = 3;
  }
  if (gpu_hung()) {  // leaving main would wait for the device in the runtime's exit handlers
    std::fflush(nullptr);
    std::_Exit(code);
  }
  return code;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const std::vector<std::string> arguments(argv + 1, argv + argc);
    const Options options = parse_options(arguments);
    if (options.help) {
      std::cout << help_text();
      return 0;
    }
    // The result is renamed over the file: a device or a pipe would be replaced, too.
    if (!options.out.empty() && std::filesystem::exists(options.out) && !std::filesystem::is_regular_file(options.out))
      throw UsageError("--out: '" + options.out + "' is no regular file: name another.");
    if (!options.out.empty() && !options.force && std::filesystem::exists(options.out))
      throw UsageError("--out: '" + options.out + "' is there already; --force replaces it.");
    return run(options);
  } catch (const UsageError& error) {
    std::fprintf(stderr, "tandem-probe: %s\n", error.what());
    return 2;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "tandem-probe: %s\n", error.what());
    return 3;
  }
}
