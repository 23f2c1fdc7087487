// The part of `tandem compare` that predicts at another shape: --as, --context, --workload.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/session.h"
#include "engine/device/profile.h"
#include "engine/model/model.h"
#include "eval/heads/heads.h"
#include "eval/predict/prediction.h"
#include "eval/run/dataset.h"

namespace tandem::cli {

struct TargetArguments {
  std::string as, context = "32K", workload = "recorded";  // nothing is predicted without `as`
  bool shaped = false;                                     // --context or --workload is given
};

struct PredictionPlan {
  Model shape;
  HardwareProfile hardware;
  std::optional<Workload> workload;  // none: recorded in this run
  eval::PredictionOptions options;
  std::vector<eval::HeadPrompt> prompts;  // that a recorded one is recorded on
};

/// Reads and checks everything that can be known before the run, so that a typo costs nothing.
std::optional<PredictionPlan> plan_prediction(const TargetArguments& arguments, const SessionOptions& session,
                                              const std::vector<std::string>& methods, std::uint32_t batch);

/// Takes the first sample of every task at the longest length where a workload is to be recorded. InputError where one
/// is too short for that.
void choose_prompts(PredictionPlan& plan, const eval::Dataset& dataset, const Model& model);

eval::Prediction run_prediction(const PredictionPlan& plan, const Session& session, bool quiet);

}  // namespace tandem::cli
