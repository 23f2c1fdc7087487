// Removes edges from recorded schedules: a test of the tests' schedules and of the checker itself.
#include "engine/device/hazard.h"

namespace tandem {
namespace {

bool is_judged(const ScheduleOp& op) {
  return op.form != ScheduleOp::Form::drain;
}

// `before` has seen schedule[0, op_index).
EdgeReport judge_from(const HazardChecker& before, const std::vector<ScheduleOp>& schedule, std::size_t op_index,
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

}  // namespace

const char* to_string(EdgeVerdict verdict) {
  switch (verdict) {
    case EdgeVerdict::caught:
      return "caught";
    case EdgeVerdict::implied:
      return "implied";
    case EdgeVerdict::missed:
      return "missed";
  }
  return "unknown verdict";
}

EdgeReport judge_edge(const std::vector<ScheduleOp>& schedule, std::size_t op_index, std::size_t edge_index,
                      const ScheduleNames* names) {
  TANDEM_CHECK(op_index < schedule.size() && edge_index < schedule[op_index].after.size(),
               "operation {} has no edge {}", op_index, edge_index);
  HazardChecker checker(names);
  for (std::size_t i = 0; i < op_index; ++i) checker.add(schedule[i]);
  return judge_from(checker, schedule, op_index, edge_index);
}

std::vector<EdgeReport> judge_all_edges(const std::vector<ScheduleOp>& schedule, const ScheduleNames* names) {
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
