#include "cli/compare_target.h"

#include <algorithm>

#include "cli/interrupt.h"
#include "cli/progress.h"
#include "cli/workload.h"
#include "engine/common/error.h"
#include "eval/predict/record.h"
#include "eval/run/option_values.h"
#include "methods/registry.h"

namespace tandem::cli {
namespace {

constexpr std::uint32_t kSteps = 64;  // windows slide and blocks fill up meanwhile

/// What is predicted of the methods that are compared by default: they have budgets for the embedded tasks' short
/// prompts, and a predictor of head properties that was trained for the embedded model alone or none.
std::vector<std::string> specs_at_target(const std::vector<std::string>& compared, std::uint32_t context) {
  if (compared != default_comparison(true) && compared != default_comparison(false)) return compared;
  return default_prediction(context);
}

}  // namespace

std::optional<PredictionPlan> plan_prediction(const TargetArguments& arguments, const SessionOptions& session,
                                              const std::vector<std::string>& methods, std::uint32_t batch) {
  if (arguments.as.empty()) {
    if (arguments.shaped)
      throw_input_error("--context and --workload belong to --as, the shape that is predicted: give it too.");
    return std::nullopt;
  }
  if (session.device != "sim")
    throw_input_error("--as predicts with a hardware profile: it needs --device sim, not {}.", session.device);
  const std::uint32_t context = eval::parse_one_length(arguments.context, "--context");
  PredictionPlan plan{load_shape(arguments.as), load_profile(session.hardware), std::nullopt, {}, {}};
  plan.options.methods = specs_at_target(methods, context);
  plan.options.compared = methods;
  if (session.prefill_chunk) plan.options.prefill_chunk = chunk_of(session);
  plan.options.batch = batch;
  plan.options.context = context;
  plan.options.steps = kSteps;
  plan.options.threads = session.threads;
  plan.options.ranges = true;
  plan.options.interrupted = [] { return interrupted(); };
  eval::check_target(plan.shape, plan.hardware, plan.options);
  if (arguments.workload == "recorded") return plan;
  plan.workload = read_workload(arguments.workload, "recorded, ");
  return plan;
}

void choose_prompts(PredictionPlan& plan, const eval::Dataset& dataset, const Model& model) {
  if (plan.workload) return;
  const std::vector<std::uint32_t> lengths = dataset.lengths();
  const std::uint32_t length = *std::max_element(lengths.begin(), lengths.end());
  for (const std::string& task : dataset.tasks()) {
    eval::HeadPrompt& prompt = plan.prompts.emplace_back();
    eval::DatasetSample sample = dataset.sample(task, length, 0);
    prompt.tokens = std::move(sample.prompt);
    prompt.name = task;
    prompt.first_query = static_cast<std::uint32_t>(prompt.tokens.size() - 1);
    const auto answer = model.tokenizer->encode(" " + sample.answers.front(), /*add_bos=*/false);
    prompt.tokens.insert(prompt.tokens.end(), answer.begin(), answer.end());
    if (prompt.tokens.size() < eval::kRecordedTokens) {
      throw_input_error(
          "--as records how the heads of this run attend, for which a sample of {} at length {} is too short: with its "
          "answer it has {} tokens of the {} that are needed. Give longer --lengths, or --workload published.",
          task, length, prompt.tokens.size(), eval::kRecordedTokens);
    }
  }
}

eval::Prediction run_prediction(const PredictionPlan& plan, const Session& session, bool quiet) {
  Workload workload;
  if (plan.workload) {
    workload = *plan.workload;
  } else {
    EngineOptions one = session.engine;
    one.max_batch = 1;
    Engine engine(session.model, *session.device, *session.pool, one);
    workload = eval::record_workload(session.model, engine, *session.pool, plan.prompts);
  }
  Progress progress("predicting", Progress::standard(quiet));
  eval::PredictionOptions target = plan.options;
  target.progress = [&](std::uint64_t done, std::uint64_t total) { progress.update(done, total); };
  return eval::predict(plan.shape, plan.hardware, workload, target);
}

}  // namespace tandem::cli
