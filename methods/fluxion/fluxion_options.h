// Fluxion's options: what they are called, what they mean, and which of them belong together.
#pragma once

#include <cstdint>
#include <string>

#include "methods/fluxion/labels.h"
#include "methods/fluxion/schedule.h"
#include "methods/fluxion/selector.h"
#include "methods/options.h"

namespace tandem {

struct FluxionOptions {
  std::uint32_t sinks = 64, window = 256, spill = 0, workers = 0;
  double bgt = 0.02, slope = 0.01, streaming = 0, tau = 0.1, cpu_share = 0.7;
  std::string heads = "fixed", budgets = "fluxion", line = "measured", stage = "skip", policy = "priority",
              guard = "no", union_mode = "masked";

  /// Refers to this object.
  OptionSet bind();

  bool own_only() const { return union_mode == "masked"; }
  SelectorStage selector_stage() const;
  SchedulePolicy schedule_policy() const;
  BudgetPolicy budget_policy() const;

  /// InputError for a guard that nobody asks, or that does not know how fast the sides are.
  void check_guard() const;
  /// InputError for what `heads`, `stage` and `policy` do not look at: an option with another value than its default,
  /// which would change nothing.
  void check_looked_at() const;

 private:
  void check_heads() const;
  void check_schedule() const;
};

}  // namespace tandem
