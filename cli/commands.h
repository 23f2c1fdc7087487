// The program's subcommands. A new one is a file cli/<name>.cc with `void add_<name>(Command)`, declared here and
// called in cli/program.cc; cli/info.cc is the example to follow.
//
// add_<name> declares the options and sets the subcommand's callback, which does the work and returns when all went
// well. Anything else is an exception, and program.cc turns it into a sentence on stderr and the exit code.
#pragma once

#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "cli/command.h"
#include "cli/output.h"

namespace tandem::cli {

/// Exit codes of the program.
enum ExitCode : int {
  kDone = 0,
  kGateFailed = 1,  // GateFailed: the run is fine, its result is not good enough
  kBadInput = 2,    // InputError, and what CLI11 says about the command line
  kRunFailed = 3,   // RunError, Interrupted and our own mistakes
};

/// Thrown by a subcommand that judges results and found them wanting.
class GateFailed : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

void add_advise(Command app);
void add_bench(Command app);
void add_calibrate(Command app);
void add_compare(Command app);
void add_completion(Command app);
void add_eval(Command app);
void add_fluxion(Command app);
void add_gate(Command app);
void add_generate(Command app);
void add_info(Command app);
void add_merge(Command app);
void add_methods(Command app);
void add_plan(Command app);
void add_profile(Command app);
void add_report(Command app);
void add_reproduce(Command app);
void add_simulate(Command app);
void add_validate(Command app);

void add_ruler(Command eval);  // of eval: compare by its other name

/// Names that `tandem reproduce` takes, sorted.
std::vector<std::string> reproduction_names();

/// What a paper publishes as statistics of models and not as times: ScoutAttention's "table1" and "fig6", by `tandem
/// profile layer-ahead` and `scout-recall` on the embedded model. Prints, and writes the profile as JSON.
void profile_model_figure(const std::string& figure, const OutFile& out, unsigned threads, bool quiet);

}  // namespace tandem::cli
