// A gate's verdict as JUnit XML, which CI systems list: a test case per method of the baseline.
#include <fmt/core.h>
#include <fmt/ranges.h>

#include "engine/common/printable.h"
#include "eval/gate/gate.h"

namespace tandem::eval {
namespace {

std::string attribute(std::string_view text) {
  std::string out;
  for (const char c : printable(text)) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

}  // namespace

std::string gate_junit(const Gate& gate) {
  std::string cases;
  std::size_t failed = 0, untold = 0;
  for (const MethodVerdict& method : gate.methods) {
    Gate alone = gate;
    alone.methods = {method};
    const std::vector<std::string> failures = failures_of(alone), doubts = doubts_of(alone, gate.methods.size());
    const bool fails = method.verdict == Verdict::failed;
    const bool doubted = method.verdict == Verdict::cannot_tell;
    cases += fmt::format(R"(    <testcase classname="tandem gate" name="{}")", attribute(method.label));
    if (fails || doubted) {
      const bool counts = fails || gate.options.strict;
      (counts ? failed : untold) += 1;
      cases += fmt::format(">\n      <{} message=\"{}\"/>\n    </testcase>\n", counts ? "failure" : "skipped",
                           attribute(fmt::format("{}", fmt::join(fails ? failures : doubts, " "))));
    } else {
      cases += "/>\n";
    }
  }
  return fmt::format(R"(<?xml version="1.0" encoding="UTF-8"?>
<testsuites>
  <testsuite name="tandem gate" tests="{}" failures="{}" skipped="{}">
{}  </testsuite>
</testsuites>
)",
                     gate.methods.size(), failed, untold, cases);
}

}  // namespace tandem::eval
