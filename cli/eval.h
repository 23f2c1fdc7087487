// How a dataset is asked, by `tandem eval` and `compare`: a run folder is filled, and its report written and shown.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cli/run.h"
#include "cli/session.h"
#include "eval/run/dataset_command.h"
#include "eval/run/run_dataset.h"

namespace tandem::cli {

void add_dataset_options(Command command, const std::vector<eval::DatasetOption>& options);

inline constexpr const char* kMethodsHelp =
    "METHOD[:OPTION=VALUE,...], with commas between; what has a '=' and no ':' is an option of the method before it. "
    "`tandem methods` lists both. The first method is the baseline";

/// A command that asks a dataset, as the command line has it.
struct EvalCommand {
  explicit EvalCommand(const eval::DatasetEntry& of)
      : entry(of), dataset(of.make()), methods(of.methods), batch(of.batch) {}

  eval::DatasetEntry entry;
  std::unique_ptr<eval::DatasetCommand> dataset;
  SessionOptions session;
  RunOptions run;
  std::string methods;
  std::uint32_t batch;
};

/// The options of such a command behind --methods.
void add_eval_options(Command command, EvalCommand& eval);

/// An EvalCommand that was checked, its model loaded and its dataset read. `options` has no hooks yet.
struct PreparedEval {
  std::unique_ptr<Session> session;  // whose model the dataset refers to
  std::unique_ptr<eval::Dataset> dataset;
  eval::DatasetRunOptions options;
};

/// Checks the command, makes the session and reads the dataset; says on stderr what the user has to know of either.
/// InputError for what cannot be run.
PreparedEval prepare_eval(EvalCommand& eval, const Command& command, std::vector<std::string> methods);

/// "tandem compare --model ...": the command as it can be typed again, without where the results go. `more`: behind
/// --methods.
std::string recorded_command(const EvalCommand& eval, const std::string& name, const std::vector<std::string>& methods,
                             const eval::Dataset& dataset, const std::string& more = "");

/// Work of a run that neither the dataset nor its report does.
struct EvalHooks {
  using AddToReport = std::function<void(const eval::RunFolder&, eval::RunReport&)>;
  /// Calls `decode`, which decodes all samples with these options.
  std::function<void(eval::RunFolder&, eval::DatasetRunOptions&, const std::function<void()>& decode)> around;
  std::vector<AddToReport> add;
  /// Slow parts, made one by one: the report is written and printed before, and again with each part.
  std::vector<AddToReport> add_later;
};

/// Decodes what the folder of the run lacks of the dataset with every method, and reports on it. `what`: "leval", the
/// folder's name by default; `command`: as it can be typed again.
void answer(EvalCommand& eval, PreparedEval& prepared, const char* what, const std::string& command,
            const EvalHooks& hooks = {});

}  // namespace tandem::cli
