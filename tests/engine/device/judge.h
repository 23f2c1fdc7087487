// Removes edges from recorded schedules: a test of the tests' schedules and of the checker itself.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "engine/device/hazard.h"

namespace tandem {

enum class EdgeVerdict : std::uint8_t {
  caught,   // without the edge the checker reports a hazard
  implied,  // the remaining edges order the two operations anyway
  missed,  // without the edge they are unordered and nothing conflicts: the edge is superfluous or an access is missing
};

struct EdgeReport {
  std::size_t op_index = 0, edge_index = 0;  // schedule[op_index].after[edge_index]
  EdgeVerdict verdict = EdgeVerdict::missed;
  std::string hazard;  // the checker's sentence where caught
};

inline bool is_judged(const ScheduleOp& op) {
  return op.form != ScheduleOp::Form::drain;
}

// `before` has seen schedule[0, op_index).
inline EdgeReport judge_from(const HazardChecker& before, const std::vector<ScheduleOp>& schedule, std::size_t op_index,
                             std::size_t edge_index) {
  EdgeReport report{op_index, edge_index, EdgeVerdict::missed, {}};
  ScheduleOp changed = schedule[op_index];
  const Event removed = changed.after[edge_index];
  changed.after.erase(changed.after.begin() + static_cast<std::ptrdiff_t>(edge_index));
  if (before.clock_before(changed).covers(removed)) {
    report.verdict = EdgeVerdict::implied;
    return report;
  }
  HazardChecker checker = before;
  try {
    checker.add(changed);
    for (std::size_t i = op_index + 1; i < schedule.size(); ++i) checker.add(schedule[i]);
  } catch (const HazardError& error) {
    report.verdict = EdgeVerdict::caught;
    report.hazard = error.what();
  }
  return report;
}

/// Removes one explicit edge from a schedule that is free of hazards and says what the checker makes of it.
inline EdgeReport judge_edge(const std::vector<ScheduleOp>& schedule, std::size_t op_index, std::size_t edge_index,
                             const ScheduleNames* names = nullptr) {
  TANDEM_CHECK(op_index < schedule.size() && edge_index < schedule[op_index].after.size(),
               "operation {} has no edge {}", op_index, edge_index);
  HazardChecker checker(names);
  for (std::size_t i = 0; i < op_index; ++i) checker.add(schedule[i]);
  return judge_from(checker, schedule, op_index, edge_index);
}

/// judge_edge for every explicit edge of operations and host waits (drains and invalid events left out), in order.
inline std::vector<EdgeReport> judge_all_edges(const std::vector<ScheduleOp>& schedule,
                                               const ScheduleNames* names = nullptr) {
  std::vector<EdgeReport> reports;
  HazardChecker checker(names);
  for (std::size_t i = 0; i < schedule.size(); ++i) {
    const ScheduleOp& op = schedule[i];
    for (std::size_t edge = 0; is_judged(op) && edge < op.after.size(); ++edge) {
      if (op.after[edge].valid()) reports.push_back(judge_from(checker, schedule, i, edge));
    }
    checker.add(op);
  }
  return reports;
}

}  // namespace tandem
