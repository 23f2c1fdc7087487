// Whether a plan is one that the engine may carry out: AttendPlan's rules, before anything is submitted.
#pragma once

#include "engine/runtime/plan.h"

namespace tandem {

/// LogicError naming the rule that `plan` breaks. Not checked: sources whose tokens are chosen later (KvTokens without
/// positions), and what a finisher attends; neither may be in other items too.
void check_plan(const LayerContext& context, const AttendPlan& plan);

}  // namespace tandem
