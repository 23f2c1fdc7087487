#include <array>

#include "engine/common/python.h"
#include "eval/report/table.h"

namespace tandem::eval {

std::string draw_plot(const std::string& script, const std::filesystem::path& folder) {
  switch (run_python(script, std::array{folder.string()})) {
    case PythonEnd::done:
      return "";
    case PythonEnd::failed:
      return "The plot was not drawn: " + script + " failed.";
    case PythonEnd::no_package:
      return "The plot was not drawn: python3 has no matplotlib (Debian package python3-matplotlib).";
    case PythonEnd::not_installed:
      return "The plot was not drawn: python3 is not installed.";
    case PythonEnd::not_started:
      break;
  }
  return "The plot was not drawn: no new process could be started.";
}

}  // namespace tandem::eval
