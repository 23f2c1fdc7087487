// tandem gate: whether a run is as good as a baseline run, for CI.
#include "eval/gate/gate.h"

#include <cstdio>
#include <filesystem>
#include <fmt/core.h>

#include "cli/commands.h"
#include "cli/interrupt.h"
#include "cli/output.h"
#include "engine/common/error.h"
#include "engine/device/profile.h"
#include "engine/model/model.h"
#include "eval/report/line_file.h"
#include "eval/run/option_values.h"
#include "methods/options.h"

namespace tandem::cli {
namespace {

constexpr const char* kGateFooter =
    R"(
Examples:
  tandem compare --no-plot --out baseline              once, with the program that is good; keep the folder
  tandem compare --no-plot --out run                   the same command, with the program to judge
  tandem gate --baseline baseline --run run            exit code 0: as good; 1: not; 2: cannot be compared
  tandem gate --baseline baseline --run run --methods full,quest --latency-margin 0 --same-tokens --out gate.md
  tandem gate --baseline baseline --run run --as qwen3-14b --hw h200 --context 64K      predicted steps elsewhere
  tandem gate --baseline runs/a --run runs/c --noise runs/b      real times: how far two runs of one program differ

A method of the baseline is compared with the run's of the same label, on the baseline's samples.
)"
    "  accuracy  fails where McNemar's test finds a loss; --alpha is the chance of a false one over all methods, in "
    "practice half of it, since gains never fail. Passes where the 95 % interval of the difference ends above the "
    "margin's loss, or where the same computation made the same tokens. Else the samples cannot tell: that passes, "
    "with the number of samples that could, or fails with --strict.\n"
    "  times     TPOT and TTFT. Virtual time is exact: at each length, more than the margin fails. Measured times fail "
    "where the 95 % interval of the mean ratio lies above the margin, which --noise raises to what was seen. Batches "
    "that have other samples in the other run are left out.\n"
    "  steps     predicted where KV is most of the work (--as, --hw, --batch, --context), as exact as virtual time. "
    "`tandem compare` stores them in predicted.json, so that a slower schedule shows; where a run has none, this "
    "program predicts the methods whose options differ.\n"
    "  tokens    where both runs claim to be the same computation, samples with other tokens are counted.\n"
    R"(Runs of another protocol, model, tokenizer, seed, batch, hardware profile or machine are refused: docs/gate.md.)";

constexpr const char* kNoShape = "none";

struct GateArguments {
  std::string baseline, run, methods, out;
  std::vector<std::string> noise;
  double accuracy_margin = 3, alpha = 0.05;
  std::optional<double> latency_margin;
  std::string as = eval::GateShape().model, hardware = eval::GateShape().hardware, context = "32K";
  std::uint32_t batch = eval::GateShape().batch;
  bool shaped = false;  // --hw, --batch or --context is given
  bool strict = false, same_tokens = false, any_machine = false, subset = false, force = false;
};

double in_range(double value, const char* option, double low, double high, const char* unit) {
  if (!(value >= low && value <= high)) throw_input_error("{} is {}: give {} to {}{}.", option, value, low, high, unit);
  return value;
}

void gate(const GateArguments& arguments) {
  eval::GateOptions options;
  if (!arguments.methods.empty()) options.methods = split_method_list(arguments.methods);
  options.accuracy_margin = in_range(arguments.accuracy_margin, "--accuracy-margin", 0, 100, " points") / 100;
  if (arguments.latency_margin)
    options.latency_margin = in_range(*arguments.latency_margin, "--latency-margin", 0, 1000, " %") / 100;
  options.alpha = in_range(arguments.alpha, "--alpha", 0.0001, 0.5, "");
  options.strict = arguments.strict;
  options.same_tokens = arguments.same_tokens;
  options.any_machine = arguments.any_machine;
  options.subset = arguments.subset;
  if (arguments.as != kNoShape) {
    options.shape = {arguments.as, arguments.hardware, arguments.batch,
                     eval::parse_one_length(arguments.context, "--context")};
    eval::check_range("--batch", arguments.batch, 1, 256);
    load_shape(arguments.as);
    load_profile(arguments.hardware);
  } else if (arguments.shaped) {
    throw_input_error("--as none predicts nothing: leave --hw, --batch and --context away.");
  }
  options.interrupted = [] { return interrupted(); };
  check_ending(arguments.out, {".json", ".md"});
  check_new_file(arguments.out, arguments.force);
  std::error_code not_there;
  if (std::filesystem::equivalent(arguments.baseline, arguments.run, not_there))
    throw_input_error("--baseline and --run are the same folder, '{}', which is always as good as itself.",
                      arguments.run);
  std::vector<eval::RunFolder> noise;
  noise.reserve(arguments.noise.size());
  for (const std::string& folder : arguments.noise) noise.push_back(eval::RunFolder::open(folder));
  const eval::Gate result =
      eval::judge(eval::RunFolder::open(arguments.baseline), eval::RunFolder::open(arguments.run), noise, options);
  if (!arguments.out.empty())
    eval::write_file(arguments.out, ending_of(arguments.out) == ".md" ? eval::gate_text(result, /*markdown=*/true)
                                                                      : eval::gate_json(result));
  print("{}", eval::gate_text(result, /*markdown=*/false));
  check_stdout();
  if (result.verdict == eval::Verdict::failed)
    throw GateFailed(fmt::format("'{}' is not as good as '{}'.", arguments.run, arguments.baseline));
}

}  // namespace

void add_gate(Command app) {
  Command command = app.subcommand("gate", "Decide for CI whether a run is as good as a baseline run");
  auto arguments = std::make_shared<GateArguments>();
  command
      .option("--baseline", arguments->baseline, "Run folder of compare or of an eval that scores samples, found good")
      .required();
  command.option("--run", arguments->run, "Run folder to judge").required();
  command.option("--methods", arguments->methods, "Which of the baseline's methods, by label or name (default: all)");
  command
      .option("--accuracy-margin", arguments->accuracy_margin, "Largest loss of accuracy that is accepted, in points")
      .show_default();
  command.option("--latency-margin", arguments->latency_margin,
                 fmt::format("Per cent that TPOT, TTFT and predicted steps may rise [simulated: {}; measured: {}]",
                             100 * eval::kExactMargin, 100 * eval::kMeasuredMargin));
  command
      .option("--noise", arguments->noise,
              "A second run of the baseline program, which shows how much measured times vary; may be given again")
      .repeatable();
  command.option("--alpha", arguments->alpha, "Chance of a false failure, all methods together").show_default();
  command
      .option("--as", arguments->as,
              "Shape at which steps are predicted (a preset of `tandem info`, or a model folder); none: nowhere")
      .show_default();
  command.option("--hw", arguments->hardware, "Hardware profile of predicted steps").show_default();
  command.option("--batch", arguments->batch, "Sequences of predicted steps").show_default();
  command.option("--context", arguments->context, "Prompt tokens of each of these").show_default();
  command.flag("--strict", arguments->strict, "Where the samples cannot tell, fail");
  command.flag("--same-tokens", arguments->same_tokens, "Where a sample has other tokens, fail");
  command.flag("--any-machine", arguments->any_machine, "Compare measured times of two machines");
  command.flag("--subset", arguments->subset, "Judge a run that lacks samples of the baseline, by those that it has");
  command.option("--out", arguments->out, "Also write the verdict: JSON, or Markdown to a .md file");
  command.flag("--force", arguments->force, "Replace that file");
  command.footer(kGateFooter);
  command.callback([arguments, command] {
    arguments->shaped = command.given("--hw") || command.given("--batch") || command.given("--context");
    gate(*arguments);
  });
}

}  // namespace tandem::cli
