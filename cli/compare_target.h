// The part of `tandem compare` that predicts at another shape: --as, --context, --workload.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/session.h"
#include "engine/device/profile.h"
#include "engine/model/model.h"
#include "eval/heads/heads.h"
#include "eval/run/dataset.h"
#include "eval/target/target.h"

namespace tandem::cli {

struct TargetArguments {
  std::string as, context = "32K", workload = "recorded";  // nothing is predicted without `as`
  bool shaped = false;                                     // --context or --workload is given
};

struct TargetPlan {
  Model shape;
  HardwareProfile hardware;
  std::optional<Workload> workload;  // none: recorded in this run
  eval::TargetOptions options;
  std::vector<eval::HeadPrompt> prompts;  // that a recorded one is recorded on
};

/// Reads and checks everything that can be known before the run, so that a typo costs nothing.
std::optional<TargetPlan> plan_target(const TargetArguments& arguments, const SessionOptions& session,
                                      const std::vector<std::string>& methods, std::uint32_t batch);

/// Takes the first sample of every task at the longest length where a workload is to be recorded. InputError where one
/// is too short for that.
void choose_prompts(TargetPlan& plan, const eval::Dataset& dataset, const Model& model);

eval::Target run_target(const TargetPlan& plan, const Session& session, bool quiet);

}  // namespace tandem::cli
