// tandem gate: whether a run is as good as a baseline run, for CI.
#include "eval/gate/gate.h"

#include <filesystem>
#include <fmt/core.h>

#include "cli/commands.h"
#include "cli/output.h"
#include "engine/common/interrupt.h"
#include "engine/device/profile.h"
#include "engine/model/model.h"
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
  tandem gate --baseline baseline --run run --methods full,quest --latency-margin 0 --same-tokens --out gate.md --out gate.xml
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
  std::string baseline, run, methods, context = "32K";
  std::vector<std::string> noise;
  double accuracy_margin = 3;            // points
  std::optional<double> latency_margin;  // per cent
  eval::GateOptions options;
  eval::GateShape shape;
  bool shaped = false;  // --hw, --batch or --context is given
  std::vector<std::string> out;
  bool force = false;
  bool json = false;

  std::vector<OutFile> files() const {
    std::vector<OutFile> all;
    all.reserve(out.size());
    for (const std::string& name : out) all.push_back({name, force});
    return all;
  }
};

std::string text_for(const OutFile& file, const eval::Gate& result) {
  if (file.ending() == ".md") return eval::gate_text(result, /*markdown=*/true);
  return file.ending() == ".xml" ? eval::gate_junit(result) : eval::gate_json(result);
}

void gate(GateArguments& a) {
  eval::GateOptions& options = a.options;
  if (!a.methods.empty()) options.methods = split_method_list(a.methods);
  expect(a.accuracy_margin >= 0 && a.accuracy_margin <= 100, "--accuracy-margin", a.accuracy_margin, "0 to 100 points");
  options.accuracy_margin = a.accuracy_margin / 100;
  if (a.latency_margin) {
    expect(*a.latency_margin >= 0 && *a.latency_margin <= 1000, "--latency-margin", *a.latency_margin, "0 to 1000 %");
    options.latency_margin = *a.latency_margin / 100;
  }
  expect(options.alpha >= 0.0001 && options.alpha <= 0.5, "--alpha", options.alpha, "0.0001 to 0.5");
  if (a.shape.model != kNoShape) {
    a.shape.context = eval::parse_one_length(a.context, "--context");
    eval::check_range("--batch", a.shape.batch, 1, 256);
    load_shape(a.shape.model);
    load_profile(a.shape.hardware);
    options.shape = a.shape;
  } else if (a.shaped) {
    throw_input_error("--as none predicts nothing: leave --hw, --batch and --context away.");
  }
  options.interrupted = interrupted;
  for (const OutFile& file : a.files()) file.check({".json", ".md", ".xml"});
  std::error_code not_there;
  if (std::filesystem::equivalent(a.baseline, a.run, not_there))
    throw_input_error("--baseline and --run are the same folder, '{}', which is always as good as itself.", a.run);
  std::vector<eval::RunFolder> noise;
  noise.reserve(a.noise.size());
  for (const std::string& folder : a.noise) noise.push_back(eval::RunFolder::open(folder));
  const eval::Gate result =
      eval::judge(eval::RunFolder::open(a.baseline), eval::RunFolder::open(a.run), noise, options);
  for (const OutFile& file : a.files()) file.write(text_for(file, result));
  print("{}", a.json ? eval::gate_json(result) : eval::gate_text(result, /*markdown=*/false));
  check_stdout();
  if (result.verdict == eval::Verdict::failed)
    throw GateFailed(fmt::format("'{}' is not as good as '{}'.", a.run, a.baseline));
}

}  // namespace

void add_gate(Command app) {
  Command command = app.subcommand("gate", "Decide for CI whether a run is as good as a baseline run", kGateFooter);
  auto a = std::make_shared<GateArguments>();
  command.required("--baseline", a->baseline, "Run folder of compare or of an eval that scores samples, found good");
  command.required("--run", a->run, "Run folder to judge");
  command.option("--methods", a->methods, "Which of the baseline's methods, by label or name (default: all)");
  command.option("--accuracy-margin", a->accuracy_margin, "Largest loss of accuracy that is accepted, in points");
  command.option("--latency-margin", a->latency_margin,
                 fmt::format("Per cent that TPOT, TTFT and predicted steps may rise [simulated: {}; measured: {}]",
                             100 * eval::kExactMargin, 100 * eval::kMeasuredMargin));
  command.option("--noise", a->noise,
                 "A second run of the baseline program, which shows how much measured times vary; may be given again");
  command.option("--alpha", a->options.alpha, "Chance of a false failure, all methods together");
  command.option("--as", a->shape.model,
                 "Shape at which steps are predicted (a preset of `tandem info`, or a model folder); none: nowhere");
  command.option("--hw", a->shape.hardware, "Hardware profile of predicted steps");
  command.option("--batch", a->shape.batch, "Sequences of predicted steps");
  command.option("--context", a->context, "Prompt tokens of each of these");
  command.flag("--strict", a->options.strict, "Where the samples cannot tell, fail");
  command.flag("--same-tokens", a->options.same_tokens, "Where a sample has other tokens, fail");
  command.flag("--any-machine", a->options.any_machine, "Compare measured times of two machines");
  command.flag("--subset", a->options.subset, "Judge a run that lacks samples of the baseline, by those that it has");
  command.option(
      "--out", a->out,
      "Also write the verdict: Markdown to a .md file, JUnit to an .xml file, else JSON; may be given again");
  command.flag("--force", a->force, "Replace these files");
  command.flag("--json", a->json, json_help("the verdict"));
  command.callback([a, command] {
    a->shaped = command.given("--hw") || command.given("--batch") || command.given("--context");
    gate(*a);
  });
}

}  // namespace tandem::cli
