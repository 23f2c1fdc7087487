// Errors as sentences. InputError: the user's command, file or option is wrong (exit code 2). RunError: a run failed
// through no fault of its input, for example a full disk (exit code 3). TANDEM_CHECK: our own mistakes, always on.
#pragma once

#include <fmt/core.h>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>

namespace tandem {

class InputError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class RunError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The user asked to stop (^C). What was finished is kept; the run can be resumed.
class Interrupted : public RunError {
 public:
  Interrupted() : RunError("Interrupted: finished samples are kept.") {}
};

class LogicError : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

template <class... Args>
[[noreturn]] void throw_input_error(fmt::format_string<Args...> format, Args&&... args) {
  throw InputError(fmt::format(format, std::forward<Args>(args)...));
}

template <class... Args>
[[noreturn]] void throw_run_error(fmt::format_string<Args...> format, Args&&... args) {
  throw RunError(fmt::format(format, std::forward<Args>(args)...));
}

[[noreturn]] void check_failed(const char* file, int line, const char* condition, const std::string& message);

/// Candidates that contain `name` (4 letters or more), or else the nearest: " Did you mean 'x'?"; empty: none is near.
std::string did_you_mean(std::string_view name, std::span<const std::string> candidates);

/// "a, b and c", for sentences that list what is possible.
std::string join_names(std::span<const std::string> names);

}  // namespace tandem

#define TANDEM_CHECK(condition, ...)      \
  (static_cast<bool>(condition) ? void(0) \
                                : ::tandem::check_failed(__FILE__, __LINE__, #condition, fmt::format(__VA_ARGS__)))
