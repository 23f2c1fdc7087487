#include "cli/progress.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <fmt/core.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "engine/common/printable.h"

namespace tandem::cli {
namespace {

constexpr double kRedrawSeconds = 0.1, kPlainSeconds = 10;
constexpr double kOutlier = 8;  // times the median

Progress::Options standard(bool quiet) {
  Progress::Options options;
  options.quiet = quiet;
  options.terminal = isatty(STDERR_FILENO) == 1;
  winsize size{};
  if (options.terminal && ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
    options.columns = size.ws_col;
  options.now = [] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  };
  options.write = [](std::string_view text) {
    std::fwrite(text.data(), 1, text.size(), stderr);
    std::fflush(stderr);
  };
  return options;
}

}  // namespace

void TimeLeft::update(double seconds, std::uint64_t done, std::uint64_t total) {
  total_ = total;
  if (!started_ || done < done_) {
    started_ = true;
    intervals_.clear();
  } else if (done > done_) {
    intervals_.push_back({std::max(0.0, seconds - last_), done - done_});
  } else {
    return;
  }
  last_ = seconds;
  done_ = done;
}

std::optional<double> TimeLeft::seconds_left(double now) const {
  if (intervals_.size() < 2) return std::nullopt;
  const auto per_unit = [](const Interval& interval) { return interval.seconds / static_cast<double>(interval.units); };
  std::vector<double> rates;
  rates.reserve(intervals_.size());
  for (const Interval& interval : intervals_) rates.push_back(per_unit(interval));
  const auto middle = rates.begin() + static_cast<std::ptrdiff_t>((rates.size() - 1) / 2);
  std::nth_element(rates.begin(), middle, rates.end());
  const double median = *middle;
  double seconds = 0, units = 0;
  for (const Interval& interval : intervals_) {
    const double rate = median > 0 ? std::min(per_unit(interval), kOutlier * median) : per_unit(interval);
    seconds += rate * static_cast<double>(interval.units);
    units += static_cast<double>(interval.units);
  }
  const double rate = seconds / units;
  const double left = rate * static_cast<double>(total_ - std::min(total_, done_));
  // What has passed since the last finished unit is part of the next one, but never more than one unit's worth.
  return std::max(0.0, left - std::clamp(now - last_, 0.0, rate));
}

std::string clock_text(double seconds) {
  const auto whole = static_cast<std::uint64_t>(std::max(0.0, std::round(seconds)));
  const std::uint64_t hours = whole / 3600, minutes = whole / 60 % 60;
  if (hours > 0) return fmt::format("{}:{:02}:{:02}", hours, minutes, whole % 60);
  return fmt::format("{}:{:02}", minutes, whole % 60);
}

Progress::Progress(std::string label, bool quiet) : Progress(std::move(label), standard(quiet)) {}

Progress::Progress(std::string label, Options options) : label_(std::move(label)), options_(std::move(options)) {
  start_ = shown_ = options_.now();
}

Progress::~Progress() {
  try {
    finish();
  } catch (...) {  // a progress line is not worth a crash
  }
}

void Progress::update(std::uint64_t done, std::uint64_t total, std::string_view what) {
  const std::lock_guard lock(mutex_);
  if (options_.quiet || finished_) return;
  const double now = options_.now();
  done_ = done;
  total_ = total;
  what_ = what;
  left_.update(now, done, total);
  stale_ = true;
  const double pause = options_.terminal ? kRedrawSeconds : kPlainSeconds;
  if ((options_.terminal && !any_shown_) || now - shown_ >= pause) show(now);
}

void Progress::finish() {
  const std::lock_guard lock(mutex_);
  if (options_.quiet || finished_) return;
  finished_ = true;
  if (options_.terminal && any_shown_) {
    if (stale_) show(options_.now());
    options_.write("\n");
  } else if (any_shown_ && stale_) {
    show(options_.now());
  }
}

std::string Progress::line(double now) const {
  const double percent = total_ == 0 ? 100 : 100.0 * static_cast<double>(done_) / static_cast<double>(total_);
  // Rounded down: 100% is only said when all is done.
  std::string text = fmt::format("{}: {} of {} ({:.0f}%), {} so far", label_, done_, total_, std::floor(percent),
                                 clock_text(now - start_));
  if (done_ < total_) {
    const auto left = left_.seconds_left(now);
    text += left ? fmt::format(", about {} left", clock_text(*left)) : ", time left not known yet";
  }
  if (!what_.empty()) text += "  " + what_;
  return printable(text);
}

void Progress::show(double now) {
  std::string text = line(now);
  if (options_.terminal) {
    // One column stays free: a full last column makes some terminals wrap.
    const auto width = static_cast<std::size_t>(std::max(1, options_.columns - 1));
    if (text.size() > width) text.resize(width);
    options_.write("\r" + text + "\x1b[K");
  } else {
    options_.write(text + "\n");
  }
  shown_ = now;
  any_shown_ = true;
  stale_ = false;
}

}  // namespace tandem::cli
