// One line of progress with the time left, on stderr: redrawn in place on a terminal, a plain line every ten seconds
// elsewhere (log files, CI), nothing with --quiet.
#pragma once

#include <cstdint>
#include <cstdio>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/common/error.h"

namespace tandem::cli {

/// Seconds left, from how long finished work took. One interval that is far off the others (a machine put to sleep, the
/// first sample that loads the weights) counts as at most eight times the median, so that it cannot spoil the estimate,
/// while the usual spread between short and long samples keeps its full weight.
class TimeLeft {
 public:
  /// The state at `seconds`. The first call is where counting starts: what was done before (a resumed run) is not taken
  /// as speed. Calls that finish nothing change nothing.
  void update(double seconds, std::uint64_t done, std::uint64_t total);
  /// Nothing until two intervals are known.
  std::optional<double> seconds_left(double now) const;

 private:
  struct Interval {
    double seconds;
    std::uint64_t units;
  };
  std::vector<Interval> intervals_;
  bool started_ = false;
  double last_ = 0;
  std::uint64_t done_ = 0, total_ = 0;
};

/// "0:07", "12:05", "3:00:09".
std::string clock_text(double seconds);

class Progress {
 public:
  struct Options {
    bool quiet = false;
    bool terminal = false;
    int columns = 80;                             // width of the terminal
    std::function<double()> now;                  // seconds, never going back
    std::function<void(std::string_view)> write;  // to stderr
  };

  /// On stderr, by the real clock.
  Progress(std::string label, bool quiet);
  Progress(std::string label, Options options);
  /// Ends the line, so that the next output begins on its own.
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// May be called from any thread, at any rate. `what`: the sample being worked on, if there is something to say.
  void update(std::uint64_t done, std::uint64_t total, std::string_view what = {});
  /// update(), for options that take it.
  auto hook() {
    return [this](std::uint64_t done, std::uint64_t total, std::string_view what = {}) { update(done, total, what); };
  }
  /// The last state once more, and the line's end. Further updates are ignored.
  void finish();

 private:
  std::string line(double now) const;
  void show(double now);

  std::mutex mutex_;
  std::string label_, what_;
  Options options_;
  TimeLeft left_;
  double start_ = 0, shown_ = 0;
  std::uint64_t done_ = 0, total_ = 0;
  bool any_shown_ = false, stale_ = false, finished_ = false;
};

/// Returns what `work` returns, which is given the hook of a line of progress. RunError that says `unfinished` where
/// ^C ends it without a result.
auto with_progress(const char* label, bool quiet, const auto& work,
                   const char* unfinished = "Interrupted; nothing was written.") {
  Progress progress(label, quiet);
  try {
    return work(progress.hook());
  } catch (const Interrupted&) {
    throw RunError(unfinished);
  }
}

}  // namespace tandem::cli
